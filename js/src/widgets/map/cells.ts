/** The cells of the Run Map on a canvas. They are drawn again only if what they show has changed. */

import type { Survey } from "../../data/survey";
import { type Line, LineMaker, STATE, StepBins } from "../../data/survey-lines";
import { MapPainter } from "../../draw/map";
import { h } from "../../lib/dom";
import { IdleTimer } from "../../lib/idle-timer";
import type { MapRow } from "../../lib/map-rows";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import { MapEnds, type RowEnd } from "./ends";
import { LastingStates } from "./lasting";
import type { MapList } from "./list";
import type { MapScroll } from "./scroll";

/**
 * While zooming, cells that take longer to draw than this many milliseconds are stretched until the zoom rests. While a
 * run is read, they are drawn again after a pause of several times as long as drawing takes.
 */
const FAST = 12;
const REST = 90;
const PAUSE = 3;

/** What decides how the cells look, beside the rows. */
export interface CellsPicture {
  survey: Survey | undefined;
  domain: [number, number];
  /** saved steps, ascending */
  steps: ArrayLike<number>;
  /** device pixels per pixel */
  ratio: number;
}

export class MapCells {
  readonly el = h("canvas", { "aria-hidden": "true" });
  /** the words at the ends of the rows */
  readonly ends = new MapEnds();
  readonly #lasting = new LastingStates();
  readonly #painter = new MapPainter();
  readonly #idle: IdleTimer;
  #lines = new Map<string, Line>();
  #maker: LineMaker | undefined;
  readonly #data = new Memo();
  readonly #ends = new Memo();
  readonly #look = new Memo();
  /** the lines are those of other data, or of another part of the axis */
  #renewed = false;
  #zoomed = false;
  /** ends of the axis for which the cells were drawn, when, and how long that took */
  #drawn: [number, number] = [0, 1];
  #ended = 0;
  #cost = 0;
  #stretched = false;

  constructor(
    private readonly context: Context,
    private readonly list: MapList,
    private readonly scroll: MapScroll,
  ) {
    this.#idle = new IdleTimer(context.signal);
  }

  update({ traits, stepAxis: axis }: Scene, { survey, domain, steps, ratio }: CellsPicture): void {
    const theme = this.context.theme();
    const width = axis.right - axis.left;
    const { rowHeight, rows } = this.list;
    const { top, height } = this.scroll;
    if (this.#ends.changed([axis.from, axis.to])) this.#zoomed = true;
    const { store } = this.context.session;
    const read = store.readings.get(traits.run)?.state === "complete";
    if (this.#data.changed([survey, survey?.version, read, steps, width, ratio])) this.#renewed = true;
    if (this.#lasting.update(store, traits.run, this.list.model.names)) this.#renewed = true;
    const looks = this.#look.changed([top, rows, rowHeight, height, theme, domain]);
    if (!this.#renewed && !this.#zoomed && !looks) return this.#stretch(axis.from, axis.to, width);
    if (this.#zoomed && !this.#renewed && this.#cost > FAST && !this.#stretched) {
      this.#stretch(axis.from, axis.to, width);
      this.#idle.schedule(REST, () => {
        this.#stretched = true;
        this.context.redraw();
      });
      return;
    }
    const pause = this.#cost > FAST ? this.#ended + PAUSE * this.#cost - performance.now() : 0;
    if (pause > 0 && !this.#zoomed && !looks) {
      this.#idle.schedule(pause, () => this.context.redraw());
      return;
    }
    this.#stretched = false;
    if (this.#renewed || this.#zoomed) {
      this.#renewed = this.#zoomed = false;
      this.#lines = new Map();
      const bins = new StepBins(steps, axis.from, axis.to, Math.max(1, Math.round(width * ratio)));
      this.#maker = new LineMaker(
        store.surveys,
        survey,
        bins,
        Math.round(3 * ratio),
        read ? STATE.blank : STATE.unread,
      );
    }
    const [first, last] = this.scroll.range();
    const y = this.scroll.y(first);
    this.context.paint(() => {
      const start = performance.now();
      const pixel = (step: number) => ((step - axis.from) / (axis.to - axis.from)) * Math.round(width * ratio);
      const ends = rows.slice(first, last).map((row, i): RowEnd => {
        const line = this.#line(row);
        return { y: this.scroll.y(first + i), line, mark: this.#lasting.mark(row, line, pixel) };
      });
      this.ends.update(ends, rowHeight, traits.map_stat, domain);
      this.#painter.paint(
        this.el,
        {
          lines: ends.map(({ line }) => line),
          lasting: ends.map(({ mark }) => mark),
          top: y,
          rowHeight,
          stat: traits.map_stat,
          domain,
          width,
          height,
          ratio,
        },
        theme,
      );
      this.#drawn = [axis.from, axis.to];
      this.#stretch(axis.from, axis.to, width);
      this.#ended = performance.now();
      this.#cost = this.#ended - start;
    });
  }

  #line(row: MapRow): Line {
    let line = this.#lines.get(row.key);
    if (!line) {
      line = (this.#maker as LineMaker).make(row.tensors);
      this.#lines.set(row.key, line);
    }
    return line;
  }

  /** Moves the cells that were drawn to where they are on the present axis. */
  #stretch(from: number, to: number, width: number) {
    const [start, end] = this.#drawn;
    const scale = (end - start) / (to - from);
    const shift = ((start - from) / (to - from)) * width;
    const transform = scale === 1 && shift === 0 ? "" : `translateX(${shift}px) scaleX(${scale})`;
    if (this.el.style.transform !== transform) this.el.style.transform = transform;
  }
}
