/** Small multiples: one curve or histogram per tensor of the query, in a grid of which only the cells in sight exist. */

import { histogramKey, histogramRequest, lastAtOrBefore } from "../../data/frames";
import { scalarNames, scalarsOnly } from "../../data/scalars";
import { surveyEnds } from "../../data/survey-columns";
import { defined } from "../../lib/defined";
import { capturePointer, h, onResize, Segments, setAttributes, setText, setVisible } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { plural } from "../../lib/format";
import { IdleTimer } from "../../lib/idle-timer";
import type { MapModel } from "../../lib/map-rows";
import { visibleRange } from "../../lib/virtual-rows";
import type { SeriesLine } from "../../protocol/types";
import type { QueryResults } from "../../session/query-results";
import { mapStatOf, viewOf } from "../../session/query-view";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import { CELL, type CellContent, curveTitle, MultipleCell, stepAt } from "./cell";

const GAP = 8;
const EDGE = 12;
/** A drag starts after this many pixels. */
const DRAG = 4;
/** Milliseconds without a change before histograms are requested. */
const REST = 150;
const BINS = 64;

let ids = 0;

/** The module and the name in it. */
function labelOf(model: MapModel, tensor: number): string {
  const module = model.moduleOf(tensor);
  const alone = !module || module.tensors.length === 1 || model.letters[tensor] === "S";
  return alone ? (model.flatRows([tensor])[0]?.label ?? "") : `${model.short(module.id)} ${model.label(tensor)}`;
}

/** Columns and the size of a cell: the smallest one, or a larger one with which all cells fill the space. */
export function cellsIn(n: number, width: number, height: number) {
  const most = Math.max(1, Math.floor((width + GAP) / (CELL.width + GAP)));
  const widthOf = (columns: number) => Math.floor((width + GAP) / columns) - GAP;
  let best = { columns: most, width: widthOf(most), height: CELL.height };
  for (let columns = 1; columns <= Math.min(n, most); columns++) {
    const fit = Math.floor((height + GAP) / Math.ceil(n / columns)) - GAP;
    const each = { columns, width: widthOf(columns), height: Math.min(CELL.tallest, fit) };
    if (fit >= CELL.height && each.width * each.height > best.width * best.height) best = each;
  }
  return best;
}

export class Multiples {
  readonly el: HTMLElement;
  readonly #list: HTMLElement;
  readonly #space = h("div", { class: "smdw-multiples-space", role: "presentation" });
  readonly #title = h("span", { class: "smdw-quiet" });
  readonly #scale: Segments<"shared" | "own">;
  readonly #empty = h("p", { class: "smdw-empty" });
  readonly #cells: MultipleCell[] = [];
  readonly #idle: IdleTimer;
  readonly #id = `smdw-multiples-${ids++}`;
  #scene: Scene | undefined;
  #model: MapModel | undefined;
  #tensors: readonly number[] = [];
  #columns = 1;
  /** distance of rows */
  #row = CELL.height + GAP;
  #width = 0;
  #height = 0;
  #active = 0;
  /** the tensor of the active cell, once one was chosen; -1 before */
  #activeTensor = -1;
  #ends: { key: unknown[]; value: [number, number] | undefined } = { key: [], value: undefined };
  /** histograms that were requested, by tensor and step */
  #asked: unknown;

  constructor(private readonly context: Context) {
    const { signal, session, keys } = context;
    this.#list = h("div", { class: "smdw-multiples-list", role: "listbox", tabindex: 0 }, this.#space);
    this.#scale = new Segments(
      "Value axis",
      [
        ["shared", "Shared y"],
        ["own", "Own y"],
      ],
      (cell_scale) => session.state.set({ cell_scale }),
      signal,
    );
    this.el = h(
      "div",
      { class: "smdw-multiples" },
      h("header", {}, this.#title, this.#scale.el),
      this.#list,
      this.#empty,
    );
    this.#idle = new IdleTimer(signal);
    const resized = () => {
      const { clientWidth: width, clientHeight: height } = this.#list;
      if (width === this.#width && height === this.#height) return;
      [this.#width, this.#height] = [width, height];
      context.redraw();
    };
    onResize(this.#list, resized, signal);
    this.#list.addEventListener("scroll", () => context.redraw(), { signal });
    for (const type of ["focus", "blur"]) this.#list.addEventListener(type, () => context.redraw(), { signal });
    keys.on(this.#list, (event) => this.#key(event));
    this.#gestures(signal);
  }

  update(scene: Scene, results: QueryResults, tensors: readonly number[]): void {
    this.#scene = scene;
    this.#model = results.model;
    const histogram = viewOf(scene.query, scene.run) === "histograms" && !scalarsOnly(scene.run);
    this.#tensors = scalarsOnly(scene.run) && !results.sorted ? this.#scalars(scene, results) : tensors;
    const { length } = this.#tensors;
    // The active cell stays with its tensor when the order changes.
    const place = this.#tensors.indexOf(this.#activeTensor);
    if (place >= 0) this.#active = place;
    this.#active = Math.max(0, Math.min(this.#active, length - 1));
    const scale = scene.traits.cell_scale || (scalarsOnly(scene.run) ? "own" : "shared");
    this.#scale.update(scale);
    setVisible(this.#scale.el, !histogram);
    setText(this.#title, this.#heading(scene, histogram));
    setText(this.#empty, scene.query.text ? "No tensor matches" : "No tensors saved");
    setVisible(this.#empty, length === 0);
    setAttributes(this.#list, {
      "aria-label": `${plural(length, "tensor")} as ${histogram ? "histograms" : "curves"}`,
    });
    if (!this.#width) [this.#width, this.#height] = [this.#list.clientWidth, this.#list.clientHeight];
    const room = this.#width - 2 * EDGE;
    if (room < 1) return;
    const { columns, width: each, height } = cellsIn(length, room, this.#height);
    [this.#columns, this.#row] = [columns, height + GAP];
    const rows = Math.ceil(length / this.#columns);
    const { first, last, total, shift } = visibleRange(rows, this.#row, this.#list.scrollTop, this.#height);
    this.#space.style.height = `${total}px`;
    const from = first * this.#columns;
    const count = Math.max(0, Math.min(length, last * this.#columns) - from);
    // A cell keeps its tensor while the rows scroll.
    const slots = Math.max(this.#cells.length, (Math.ceil(this.#height / this.#row) + 1) * this.#columns);
    while (this.#cells.length < slots) this.#cells.push(new MultipleCell(this.context));
    const contents = this.#contents(scene, from, count, histogram, scale === "shared");
    const used = contents.map((content, k) => {
      const i = from + k;
      const cell = this.#cells[i % slots] as MultipleCell;
      const [row, column] = [Math.floor(i / this.#columns), i % this.#columns];
      cell.el.style.transform = `translate(${EDGE + column * (each + GAP)}px, ${row * this.#row - shift}px)`;
      cell.el.style.width = `${each}px`;
      cell.el.style.height = `${height}px`;
      setAttributes(cell.el, { id: `${this.#id}-${i}`, "aria-setsize": length, "aria-posinset": i + 1 });
      cell.el.classList.toggle("smdw-active", i === this.#active);
      cell.update(scene, content, each, height);
      return cell.el;
    });
    const shown = [...this.#space.children];
    if (shown.length !== used.length || used.some((el) => el.parentElement !== this.#space))
      this.#space.replaceChildren(...used);
    const inSight = this.#active >= from && this.#active < from + count;
    setAttributes(this.#list, { "aria-activedescendant": inSight ? `${this.#id}-${this.#active}` : undefined });
    const lines = contents.flatMap(({ line }) => line ?? []);
    this.context.session.lookAtCurves(lines);
    if (histogram) this.#askHistograms(contents);
  }

  /** Called when the multiples are hidden. */
  hide(): void {
    this.context.session.lookAtCurves([]);
  }

  #heading(scene: Scene, histogram: boolean): string {
    if (scalarsOnly(scene.run)) return "Scalars over steps";
    if (histogram) return "Histogram at the step in view";
    const { statistic } = scene.query.query;
    return `${statistic && !mapStatOf(statistic) ? statistic : curveTitle(scene.traits.map_stat)} over steps`;
  }

  #scalars({ run }: Scene, { matching }: QueryResults): number[] {
    const index = new Map(run?.names.map((name, i) => [name, i]));
    const all = scalarNames(run).map((name) => index.get(name) as number);
    return matching ? all.filter((tensor) => matching.has(tensor)) : all;
  }

  #contents(scene: Scene, from: number, count: number, histogram: boolean, shared: boolean): CellContent[] {
    const { traits, query } = scene;
    const { store } = this.context.session;
    const model = this.#model as MapModel;
    const { statistic } = query.query;
    const survey = store.surveys.find(traits.run, traits.worker, traits.mode, traits.map_stat);
    const series = statistic && !mapStatOf(statistic) ? statistic : undefined;
    let ends: [number, number] | undefined;
    if (shared && survey && !series && !histogram && !scalarsOnly(scene.run)) {
      const key = [survey, survey.version, this.#tensors];
      if (key.some((each, i) => each !== this.#ends.key[i]))
        this.#ends = {
          key,
          value: surveyEnds(
            survey,
            this.#tensors.filter((each) => model.letters[each] !== "S"),
          ),
        };
      ends = this.#ends.value;
    }
    return this.#tensors.slice(from, from + count).map((tensor): CellContent => {
      const name = model.names[tensor] as string;
      const content = { tensor, name, letter: model.letters[tensor] ?? "A", label: labelOf(model, tensor), histogram };
      const line: SeriesLine = { tensor: name, stat: "value", run: traits.run, worker: "", mode: "" };
      if (histogram) return content;
      if (model.letters[tensor] === "S") return { ...content, line };
      if (series) return { ...content, line: { ...line, stat: series, worker: traits.worker } };
      return { ...content, ...(survey && { survey }), ...(ends && { ends }) };
    });
  }

  // ---- histograms

  /** Requests one histogram at the step in view for each cell in sight, one after the other. */
  #askHistograms(contents: readonly CellContent[]) {
    const { session } = this.context;
    const scene = this.#scene;
    if (!scene || session.exported || Number.isNaN(scene.step)) return;
    const { run, worker } = scene.traits;
    const hist = { ...histogramRequest(scene.traits), edges: "own" as const };
    const missing = contents.flatMap(({ name }) => {
      const frames = session.store.findFrames(run, name, worker);
      const at = frames?.plan ? lastAtOrBefore(frames.steps, scene.step) : -1;
      if (frames?.plan && at < 0) return [];
      const step = at < 0 ? scene.step : defined(frames?.steps[at]);
      const frame = frames?.frames.get(step);
      const known = frame && [...frame.histograms.keys()].some((key) => key.startsWith(`${hist.scale}/`));
      return known || frame?.error ? [] : [{ name, step }];
    });
    const key = [run, worker, histogramKey(hist), missing];
    if (equal(key, this.#asked)) return;
    this.#idle.schedule(REST, async () => {
      this.#asked = key;
      const want = { stats: true, update: false, hist: { bins: BINS, ...hist }, image: null, percentiles: false };
      for (const { name: tensor, step } of missing) {
        if (this.#asked !== key) return;
        // A request of certain steps does not change which tensor the kernel keeps up to date.
        await session.connection.request("histograms", {
          what: "frames",
          role: "main",
          run,
          tensor,
          worker,
          near: step,
          want,
          steps: [step],
        });
      }
    });
  }

  // ---- choices

  #select(i: number) {
    const tensor = this.#model?.names[this.#tensors[i] ?? -1];
    if (tensor === undefined) return;
    this.#active = i;
    this.#activeTensor = defined(this.#tensors[i]);
    const lane = this.#model?.letters[defined(this.#tensors[i])] === "S" ? { lane: tensor } : {};
    this.context.session.state.set({ tensor, zoom: [], clip: [], ...lane });
    this.context.redraw();
  }

  #key(event: KeyboardEvent): boolean {
    const page = Math.max(1, Math.floor(this.#height / this.#row)) * this.#columns;
    const by = {
      ArrowLeft: -1,
      ArrowRight: 1,
      ArrowUp: -this.#columns,
      ArrowDown: this.#columns,
      PageUp: -page,
      PageDown: page,
      Home: Number.NEGATIVE_INFINITY,
      End: Number.POSITIVE_INFINITY,
    }[event.key];
    if (event.key === "Enter") this.#select(this.#active);
    else if (by === undefined) return false;
    else this.#moveTo(Math.max(0, Math.min(this.#tensors.length - 1, this.#active + by)));
    return true;
  }

  #moveTo(i: number) {
    this.#active = i;
    this.#activeTensor = this.#tensors[i] ?? -1;
    const y = Math.floor(i / this.#columns) * this.#row;
    const { scrollTop: top, clientHeight: height } = this.#list;
    this.#list.scrollTop = Math.max(y + this.#row - height, Math.min(top, y));
    this.context.redraw();
  }

  #gestures(signal: AbortSignal) {
    const list = this.#list;
    let start: { x: number; cell: MultipleCell; dragged: boolean } | undefined;
    const cellOf = (event: Event) => this.#cells.find(({ el }) => event.composedPath().includes(el));
    const stepOf = (cell: MultipleCell, x: number) => {
      const scene = this.#scene as Scene;
      const box = cell.el.getBoundingClientRect();
      return stepAt(cell.axis(scene, box.width), scene.axis.steps, x - box.left);
    };
    list.addEventListener(
      "pointerdown",
      (event) => {
        const cell = event.button === 0 ? cellOf(event) : undefined;
        start = cell && { x: event.clientX, cell, dragged: false };
      },
      { signal },
    );
    list.addEventListener(
      "pointermove",
      (event) => {
        if (!start || start.cell.content?.histogram) return;
        if (!start.dragged && Math.abs(event.clientX - start.x) > DRAG) {
          start.dragged = true;
          capturePointer(list, event);
        }
        if (!start.dragged) return;
        const [a, b] = [stepOf(start.cell, start.x), stepOf(start.cell, event.clientX)];
        const range: [number, number] = [Math.min(a, b), Math.max(a, b)];
        this.context.session.state.set({ selection: { kind: "steps", range } });
      },
      { signal },
    );
    let dragged = false;
    const end = () => {
      dragged = start?.dragged ?? false;
      start = undefined;
    };
    list.addEventListener("pointerup", end, { signal });
    list.addEventListener("pointercancel", end, { signal });
    list.addEventListener(
      "click",
      (event) => {
        const cell = cellOf(event);
        if (cell && !dragged) this.#select(this.#tensors.indexOf(cell.content?.tensor ?? -1));
        dragged = false;
      },
      { signal },
    );
  }
}
