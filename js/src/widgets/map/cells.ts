/** The cells of the Run Map on a canvas. They are drawn again only if what they show has changed. */

import type { Survey } from "../../data/survey";
import { type Line, LineMaker, newLine, STATE, StepBins, WholeRows } from "../../data/survey-lines";
import { MapPainter } from "../../draw/map";
import { h } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { IdleTimer } from "../../lib/idle-timer";
import type { MapRow } from "../../lib/map-rows";
import { Memo } from "../../lib/memo";
import { fullRange } from "../../lib/step-axis";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import { MapEnds, type RowEnd } from "./ends";
import { LastingStates } from "./lasting";
import type { MapList } from "./list";
import type { MapScroll } from "./scroll";

/** Cells that take longer to make and draw than this many milliseconds are not made again in each frame of a zoom. */
const FAST = 4;
/**
 * Milliseconds of a frame in which lines are made, and in which those are made that the picture lacks. The others are made in the
 * next frames.
 */
const BUDGET = 6;
const LACKING = 40;
/** The picture is stretched until the zoom rests, unless it lacks a part of the axis or is stretched by more than this. */
const REST = 90;
const MOST_STRETCHED = 2;
/** While a run is read, cells are drawn again after a pause of several times as long as that takes. */
const PAUSE = 3;
/** What is drawn beyond each end of the axis, as a share of the steps in view, so that a pan finds it. */
const BEYOND = 0.25;
/** Lines that are kept, as a multiple of the rows in sight. */
const KEPT = 8;

/** What decides how the cells look, beside the rows. */
export interface CellsPicture {
  survey: Survey | undefined;
  domain: [number, number];
  /** saved steps, ascending */
  steps: ArrayLike<number>;
  /** device pixels per pixel */
  ratio: number;
}

/** Lines of pixels between two steps, by the key of their row. */
class Lines {
  readonly #lines = new Map<string, Line>();
  readonly #empty: Line;
  /** milliseconds spent on them */
  cost = 0;

  constructor(
    readonly from: number,
    readonly to: number,
    /** device pixels */
    readonly pixels: number,
    /** lines of other inputs have nothing in common */
    readonly inputs: readonly unknown[],
    private readonly maker: LineMaker,
  ) {
    this.#empty = newLine(pixels);
    this.#empty.state.fill(STATE.blank);
  }

  /** Makes the lines of rows until a time, and returns whether none is missing. */
  make(rows: readonly MapRow[], until: number): boolean {
    for (const key of this.#lines.keys()) {
      if (this.#lines.size <= KEPT * rows.length) break;
      this.#lines.delete(key);
    }
    const start = performance.now();
    let [now, complete] = [start, true];
    for (const { key, tensors } of rows) {
      if (this.#lines.has(key)) continue;
      complete = now < until;
      if (!complete) break;
      this.#lines.set(key, this.maker.make(tensors));
      now = performance.now();
    }
    this.cost += now - start;
    return complete;
  }

  /** The line of a row; an empty one until it has been made. */
  of({ key }: MapRow): Line {
    return this.#lines.get(key) ?? this.#empty;
  }

  pixel(step: number): number {
    return ((step - this.from) / (this.to - this.from)) * this.pixels;
  }
}

export class MapCells {
  readonly el = h("canvas", { "aria-hidden": "true" });
  /** the words at the ends of the rows */
  readonly ends = new MapEnds();
  readonly #lasting = new LastingStates();
  readonly #painter = new MapPainter();
  readonly #whole = new WholeRows();
  readonly #idle: IdleTimer;
  readonly #data = new Memo();
  readonly #ends = new Memo();
  readonly #look = new Memo();
  /** those on the canvas, and those that are being made to replace them */
  #shown: Lines | undefined;
  #next: Lines | undefined;
  /** the lines are those of other data, or of another part of the axis */
  #renewed = false;
  #zoomed = false;
  #rested = false;
  /** when the cells were drawn, and how long that took with making their lines */
  #ended = 0;
  #cost = 0;

  constructor(
    private readonly context: Context,
    private readonly list: MapList,
    private readonly scroll: MapScroll,
  ) {
    this.#idle = new IdleTimer(context.signal);
  }

  update(scene: Scene, picture: CellsPicture): void {
    const { traits, stepAxis: axis } = scene;
    const { survey, domain, steps, ratio } = picture;
    const theme = this.context.theme();
    const width = axis.right - axis.left;
    const { rowHeight, rows, model } = this.list;
    const { top, height } = this.scroll;
    if (this.#ends.changed([axis.from, axis.to])) this.#zoomed = true;
    const { store } = this.context.session;
    const read = store.readings.get(traits.run)?.state === "complete";
    if (this.#data.changed([survey, survey?.version, read, steps, width, ratio])) this.#renewed = true;
    if (this.#lasting.update(store, traits.run, model)) this.#renewed = true;
    const looks = this.#look.changed([top, rows, rowHeight, height, theme, domain]);
    const inputs = [survey, ratio, width];
    if (this.#isDue(axis.from, axis.to, inputs, looks)) {
      this.#renewed = this.#zoomed = this.#rested = false;
      this.#next = this.#begin(scene, picture, inputs, read);
      if (!equal(this.#shown?.inputs, inputs)) this.#shown = this.#next;
    }
    if (!this.#next && !looks) return this.#stretch(axis.from, axis.to, width);
    const [first, last] = this.scroll.range();
    const inSight = rows.slice(first, last);
    this.context.paint(() => {
      const start = performance.now();
      let whole = this.#shown?.make(inSight, start + LACKING) ?? false;
      const replaces = this.#next?.make(inSight, start + BUDGET) ?? false;
      if (replaces) {
        whole = true;
        this.#shown = this.#next;
        this.#next = undefined;
      }
      const lines = this.#shown as Lines;
      if (!whole) this.#look.changed([]);
      if (!whole || this.#next || this.#zoomed || this.#renewed) this.context.redraw();
      if (replaces || looks) {
        const ends = inSight.map((row, i): RowEnd => {
          const line = lines.of(row);
          const pixel = (step: number) => lines.pixel(step);
          return { y: this.scroll.y(first + i), line, mark: this.#lasting.mark(row, line, pixel) };
        });
        this.ends.update(ends, Math.round(lines.pixel(axis.to)), rowHeight, traits.map_stat, domain);
        this.#painter.paint(
          this.el,
          {
            lines: ends.map(({ line }) => line),
            lasting: ends.map(({ mark }) => mark),
            top: this.scroll.y(first),
            rowHeight,
            stat: traits.map_stat,
            domain,
            width: lines.pixels / ratio,
            height,
            ratio,
          },
          theme,
        );
        this.el.style.width = `${lines.pixels / ratio}px`;
      }
      this.#stretch(axis.from, axis.to, width);
      this.#ended = performance.now();
      lines.cost += this.#ended - start;
      if (replaces) this.#cost = lines.cost;
    });
  }

  /** Whether other lines are needed now. */
  #isDue(from: number, to: number, inputs: readonly unknown[], looks: boolean): boolean {
    const { redraw } = this.context;
    if (!this.#renewed && !this.#zoomed) return false;
    if (this.#next) return !equal(this.#next.inputs, inputs);
    if (!this.#shown || this.#cost < FAST || !equal(this.#shown.inputs, inputs)) return true;
    if (this.#zoomed) {
      const { from: start, to: end } = this.#shown;
      const [near, far] = [1 / MOST_STRETCHED, MOST_STRETCHED * (1 + 2 * BEYOND)];
      const stretched = (end - start) / (to - from);
      if (this.#rested || from < start || to > end || stretched < near || stretched > far) return true;
      this.#idle.schedule(REST, () => {
        this.#rested = true;
        redraw();
      });
      return false;
    }
    const pause = this.#ended + PAUSE * this.#cost - performance.now();
    if (pause <= 0 || looks) return true;
    this.#idle.schedule(pause, redraw);
    return false;
  }

  /** Lines of the part of the axis in view, and of a little beyond it. */
  #begin(
    { run, stepAxis: { from, to, left, right } }: Scene,
    { survey, steps, ratio }: CellsPicture,
    inputs: readonly unknown[],
    read: boolean,
  ): Lines {
    const [first, last] = fullRange(run?.steps ?? []);
    const room = (to - from) * BEYOND;
    const [start, end] = [Math.min(from, Math.max(first, from - room)), Math.max(to, Math.min(last, to + room))];
    const pixels = Math.max(1, Math.round(((right - left) * ratio * (end - start)) / (to - from)));
    const { surveys } = this.context.session.store;
    const none = read ? STATE.blank : STATE.unread;
    this.#whole.update(surveys, survey, steps, none);
    const bins = new StepBins(steps, start, end, pixels);
    const maker = new LineMaker(surveys, survey, bins, Math.round(3 * ratio), none, this.#whole);
    return new Lines(start, end, pixels, inputs, maker);
  }

  /** Moves the cells that were drawn to where they are on the present axis. */
  #stretch(from: number, to: number, width: number) {
    if (!this.#shown) return;
    const { from: start, to: end } = this.#shown;
    const scale = ((end - start) / (to - from)) * (width / Number.parseFloat(this.el.style.width));
    const shift = ((start - from) / (to - from)) * width;
    const transform =
      Math.abs(scale - 1) < 1e-3 && Math.abs(shift) < 1e-3 ? "" : `translateX(${shift}px) scaleX(${scale})`;
    if (this.el.style.transform !== transform) this.el.style.transform = transform;
  }
}
