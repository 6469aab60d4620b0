/** The Run Map: one row per module or tensor over all steps, coloured by one statistic. */
import { nearestIndex } from "../data/frames";
import { FLAG, NOT_FINITE_FLAGS, type Survey } from "../data/survey";
import { type Line, LineMaker, StepBins } from "../data/survey-lines";
import { MapPainter } from "../draw/map";
import { capturePointer, h, setAttributes, setText, setVisible } from "../lib/dom";
import { count, truncate } from "../lib/format";
import { IdleTimer } from "../lib/idle-timer";
import type { MapRow } from "../lib/map-rows";
import { lowerIndex } from "../lib/sorted";
import { fullRange } from "../lib/step-axis";
import { QueryResults } from "../session/query-results";
import { viewOf, withView } from "../session/query-view";
import type { Scene } from "../session/session";
import { Differences } from "./map-differences";
import { type Badges, MapList } from "./map-list";
import { Minimap } from "./map-minimap";
import { MapTable } from "./map-table";
import { type CellPlace, cellText, nameElement, rowText } from "./map-text";
import type { Context, Part } from "./part";

const ROW = 14;
const COARSE_ROW = 24;
/** A drag starts after this many pixels. */
const DRAG = 4;
/** Most bins that are shown side by side. */
const MOST_BINS = 1024;
/** While zooming, cells that take longer to draw than this many milliseconds are stretched until the zoom rests. */
const FAST = 12;
const REST = 90;
/** A gesture of the wheel stays what it began as until it pauses this long, in milliseconds. */
const WHEEL_PAUSE = 250;

let ids = 0;

export class RunMap implements Part {
  readonly el: HTMLElement;
  readonly #names = h("div", { class: "smdw-map-names", "aria-hidden": "true" });
  readonly #plot = h("div", { class: "smdw-map-plot" });
  readonly #canvas = h("canvas", { "aria-hidden": "true" });
  readonly #cross = h("div", { class: "smdw-map-cross", hidden: true });
  readonly #band = h("div", { class: "smdw-map-band", hidden: true });
  readonly #focus = h("div", { class: "smdw-map-focus", hidden: true });
  readonly #empty = h("p", { class: "smdw-map-empty", role: "status" });
  readonly #grid: HTMLElement;
  readonly #cell: HTMLElement;
  readonly #minimap: Minimap;
  readonly #table: MapTable;
  readonly #differences: Differences;
  readonly #list: MapList;
  /** which tensors have rows */
  readonly results: QueryResults;
  readonly #painter = new MapPainter();
  readonly #idle: IdleTimer;
  readonly #pool: HTMLElement[] = [];
  readonly #coarse = matchMedia("(pointer: coarse)");
  #scene: Scene | undefined;
  #survey: Survey | undefined;
  #height = 0;
  #ratio = 1;
  #top = 0;
  #bins: StepBins | undefined;
  #lines = new Map<string, Line>();
  #maker: LineMaker | undefined;
  #linesKey: unknown[] = [];
  #drawnKey: unknown[] = [];
  #namesKey: unknown[] = [];
  /** ends of the axis for which the cells were drawn, and how long that took */
  #drawn: [number, number] = [0, 1];
  #cost = 0;
  #stretched = false;
  #pointer: { x: number; y: number } | undefined;
  #dragged = false;
  /** the cell that keys move from: the key of a row, and a step */
  #active: { key: string; step: number } | undefined;
  /** the run whose first finding has been shown, and the tensor in view then */
  #revealed: number | undefined;
  #tensor = "";
  /** the tensor whose row stays in sight, and the height for which it was brought there */
  #anchor: number | undefined;
  #anchored = 0;
  /** it is that of the first finding, which is shown with its module */
  #first = false;
  #wheel: { pans: boolean; at: number } = { pans: false, at: 0 };
  #hoverText = "";
  #tableShown = false;

  constructor(private readonly context: Context) {
    const { signal, session, keys } = context;
    const id = `smdw-map-${ids++}`;
    this.results = new QueryResults(session);
    this.#list = new MapList(session.store, this.results);
    this.#cell = h("span", { role: "gridcell", id });
    this.#grid = h(
      "div",
      { class: "smdw-map-grid", role: "grid", tabindex: 0, "aria-label": "Run map", "aria-activedescendant": id },
      h("div", { class: "smdw-sr", role: "row" }, this.#cell),
    );
    this.#minimap = new Minimap((share) => this.#scrollTo(share * this.#total - this.#height / 2), signal);
    this.#table = new MapTable(context, (tensor) => this.#select(tensor));
    this.#differences = new Differences(context, (tensor) => this.reveal(tensor));
    this.#plot.append(this.#canvas, this.#band, this.#cross, this.#focus);
    this.el = h(
      "div",
      { class: "smdw-map" },
      this.#grid,
      this.#names,
      this.#plot,
      this.#minimap.el,
      this.#empty,
      this.#table.el,
      this.#differences.el,
    );
    // What is seen lies over the grid, which has the focus.
    this.#grid.append(this.#names, this.#plot);
    this.#idle = new IdleTimer(signal);
    keys.on(this.#grid, (event) => this.#gridKey(event));
    keys.on(this.#table.el, (event) => {
      if (event.key === "Escape") this.#showTable(false);
      return event.key === "Escape";
    });
    this.#gestures(signal);
    const observer = new ResizeObserver(() => {
      const height = this.el.clientHeight;
      if (height === this.#height) return;
      this.#height = height;
      context.redraw();
    });
    observer.observe(this.el);
    signal.addEventListener("abort", () => observer.disconnect());
    for (const type of ["focus", "blur"]) this.#grid.addEventListener(type, () => context.redraw(), { signal });
  }

  /** The tensors of all rows, in their order. */
  get tensors(): readonly number[] {
    return this.#list.tensors;
  }

  /** What the pointer is over, in one line; "" if it is elsewhere. */
  get hoverText(): string {
    return this.#hoverText;
  }

  update(scene: Scene): void {
    this.#scene = scene;
    this.#tableShown = viewOf(scene.query) === "table";
    const { traits, stepAxis: axis } = scene;
    const { store } = this.context.session;
    const survey = store.surveys.find(traits.run, traits.worker, traits.mode, traits.map_stat);
    this.#survey = survey;
    this.#ratio = Math.min(3, globalThis.devicePixelRatio || 1);
    const before = this.#list.rows;
    this.#list.update(scene, survey, this.#height, this.#coarse.matches ? COARSE_ROW : ROW);
    if (before !== this.#list.rows) this.#keepInPlace(before);
    this.#top = this.#within(this.#top);
    this.#keepInSight(scene);
    this.el.style.setProperty("--gutter", `${axis.left}px`);
    this.#plot.style.width = `${axis.right - axis.left}px`;
    setVisible(this.#table.el, this.#tableShown);
    setVisible(this.#grid, !this.#tableShown);
    setVisible(this.#minimap.el, !this.#tableShown);
    if (this.#tableShown) this.#table.update(scene, this.#list, survey);
    this.#differences.update(scene, this.#list, survey);
    this.#updateEmpty(scene);
    if (!this.#height || this.#tableShown) return;
    this.#updateNames(traits.tensor);
    this.#updateCells(scene);
    this.#updateHover();
    this.#updateActive();
    const { rows, summary } = this.#list;
    const total = Math.max(1, this.#total);
    this.#minimap.update(
      {
        rows,
        summary,
        stat: traits.map_stat,
        domain: this.#domain,
        from: this.#top / total,
        to: (this.#top + this.#height) / total,
        height: Math.min(this.#height, total),
      },
      this.context.theme(),
      this.#ratio,
      this.context.paint,
    );
    this.#ask(scene);
  }

  /** Brings the row of a tensor into view; that of its module if it is folded. */
  reveal(tensor: number): void {
    this.#anchor = tensor;
    this.#anchored = this.#height;
    this.#first = false;
    this.#show(tensor);
    this.context.redraw();
  }

  #show(tensor: number, withModule = false): void {
    const { rows } = this.#list;
    let i = rows.findIndex((row) => row.tensors.length === 1 && row.tensors[0] === tensor);
    if (i < 0) i = rows.findIndex((row) => row.tensors.includes(tensor));
    if (i < 0) return;
    const { rowHeight } = this.#list;
    const y = i * rowHeight;
    const module = withModule ? rows.findIndex(({ open, tensors }) => open && tensors.includes(tensor)) : -1;
    if (module >= 0) this.#top = this.#within(Math.max(y - 0.75 * this.#height, module * rowHeight - this.#height / 4));
    else if (y < this.#top || y > this.#top + this.#height - rowHeight) this.#top = this.#within(y - this.#height / 3);
    const row = rows[i] as MapRow;
    if (this.#scene) this.#active = { key: row.key, step: this.#scene.step };
  }

  /** Lists the tensors that differ most between the steps of a range and all others. */
  showDifferences(range: readonly [number, number]): void {
    this.#differences.show(range);
    this.context.redraw();
  }

  /** Keys that also work while the focus is elsewhere in the widget. */
  key(event: KeyboardEvent): boolean {
    if (event.key === "t") {
      this.#showTable(!this.#tableShown);
      return true;
    }
    return this.#zoomKey(event.key);
  }

  #showTable(shown: boolean) {
    const { session } = this.context;
    session.state.set(withView(session.scene().query, shown ? "table" : "map"));
    setVisible(this.#table.el, shown);
    setVisible(this.#grid, !shown);
    (shown ? this.#table.el : this.#grid).focus({ preventScroll: true });
    this.context.redraw();
  }

  get #total(): number {
    return this.#list.rows.length * this.#list.rowHeight;
  }

  /** Codes at both ends of the colour scale: whole decades, so that it rarely changes while a run grows. */
  get #domain(): [number, number] {
    const survey = this.#survey;
    if (!survey || survey.stat === "surprise" || survey.stat === "zeros" || survey.stat === "not_finite")
      return [1, 65535];
    const [lo, hi] = survey.extent() ?? [1, 65535];
    const decade = 65534 / 50;
    return [Math.floor((lo - 1) / decade) * decade + 1, Math.ceil((hi - 1) / decade) * decade + 1];
  }

  /**
   * Brings a row into sight: that of the first finding once it is known, or of the tensor in the inspector; then that of
   * each tensor that is chosen. It stays in sight when the map becomes lower, until the rows are scrolled.
   */
  #keepInSight({ traits, run }: Scene) {
    if (!this.#height || !run) return;
    const index = this.#list.model.names.indexOf(traits.tensor);
    const before = this.#anchor;
    if (this.#revealed !== traits.run) {
      const first = traits.inspect && index >= 0 ? index : this.#list.first(traits.run);
      if (first === undefined) return;
      this.#revealed = traits.run;
      this.#anchor = first;
      this.#first = first !== index;
    } else if (traits.tensor !== this.#tensor && index >= 0) {
      this.#anchor = index;
      this.#first = false;
    }
    this.#tensor = traits.tensor;
    if (this.#anchor === undefined || (this.#anchor === before && this.#height === this.#anchored)) return;
    this.#anchored = this.#height;
    this.#show(this.#anchor, this.#first);
  }

  /** Keeps the row at the top where it was when rows above it come or go. */
  #keepInPlace(before: readonly MapRow[]) {
    const height = this.#list.rowHeight;
    const first = Math.floor(this.#top / height);
    for (let i = first; i < Math.min(before.length, first + 40); i++) {
      const at = this.#list.rows.findIndex(({ key }) => key === before[i]?.key);
      if (at < 0) continue;
      this.#top += (at - i) * height;
      return;
    }
  }

  #updateEmpty({ run, query }: Scene) {
    const { rows, model } = this.#list;
    const text = !run
      ? "Waiting for run"
      : run.steps.length === 0
        ? "No step saved yet. New steps appear here."
        : rows.length === 0
          ? model.names.length
            ? `No tensor matches \u201c${truncate(query.text, 100)}\u201d`
            : "No tensors saved"
          : "";
    setText(this.#empty, text);
    setVisible(this.#empty, text !== "" && !this.#tableShown);
  }

  // ---- drawing

  #updateCells(scene: Scene) {
    const { traits, run, stepAxis: axis } = scene;
    const theme = this.context.theme();
    const width = axis.right - axis.left;
    const steps = traits.mode === "" ? (run?.steps ?? new Float64Array(0)) : scene.axis.steps;
    const data = [this.#survey, this.#survey?.version, steps, width, this.#ratio];
    const linesKey = [...data, axis.from, axis.to];
    const { rowHeight, rows } = this.#list;
    const rest = [this.#top, rows, rowHeight, this.#height, theme, ...this.#domain];
    const moved = linesKey.some((each, i) => each !== this.#linesKey[i]);
    if (!moved && rest.every((each, i) => each === this.#drawnKey[i])) return this.#stretch(axis.from, axis.to, width);
    const onlyZoomed = this.#linesKey.length > 0 && data.every((each, i) => each === this.#linesKey[i]);
    if (moved && onlyZoomed && this.#cost > FAST && !this.#stretched) {
      this.#stretch(axis.from, axis.to, width);
      this.#idle.schedule(REST, () => {
        this.#stretched = true;
        this.context.redraw();
      });
      return;
    }
    this.#stretched = false;
    if (moved) {
      this.#linesKey = linesKey;
      this.#lines = new Map();
      this.#bins = new StepBins(steps, axis.from, axis.to, Math.max(1, Math.round(width * this.#ratio)));
      const { surveys } = this.context.session.store;
      this.#maker = new LineMaker(surveys, this.#survey, this.#bins, Math.round(3 * this.#ratio));
    }
    this.#drawnKey = rest;
    const first = Math.floor(this.#top / rowHeight);
    const last = Math.min(rows.length, Math.ceil((this.#top + this.#height) / rowHeight));
    const domain = this.#domain;
    this.context.paint(() => {
      const start = performance.now();
      this.#painter.paint(
        this.#canvas,
        {
          lines: rows.slice(first, last).map((row) => this.#line(row)),
          top: first * rowHeight - this.#top,
          rowHeight,
          stat: traits.map_stat,
          domain,
          width,
          height: this.#height,
          ratio: this.#ratio,
        },
        theme,
      );
      this.#drawn = [axis.from, axis.to];
      this.#stretch(axis.from, axis.to, width);
      this.#cost = performance.now() - start;
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
    if (this.#canvas.style.transform !== transform) this.#canvas.style.transform = transform;
  }

  #updateNames(tensor: string) {
    const { rows, rowHeight, version } = this.#list;
    const fit = rowHeight < ROW;
    const key = [rows, version, rowHeight, this.#top, this.#height, tensor, this.#active?.key, document.activeElement];
    if (key.every((each, i) => each === this.#namesKey[i])) return;
    this.#namesKey = key;
    const first = Math.max(0, Math.floor(this.#top / rowHeight));
    const last = Math.min(rows.length, Math.ceil((this.#top + this.#height) / rowHeight));
    const shown = fit ? this.#labelled(first, last) : Array.from({ length: last - first }, (_, i) => first + i);
    const used = shown.map((i, k) => {
      const el = this.#pool[k] ?? h("div", { class: "smdw-map-row" });
      this.#pool[k] = el;
      this.#fill(el, rows[i] as MapRow, i, tensor, fit);
      return el;
    });
    if (this.#names.childElementCount !== used.length) this.#names.replaceChildren(...used);
  }

  /** In a map of all rows, the first of each module that has room for its name. */
  #labelled(first: number, last: number): number[] {
    const { rows, model, rowHeight } = this.#list;
    const out: number[] = [];
    let module = "";
    let free = Number.NEGATIVE_INFINITY;
    for (let i = first; i < last; i++) {
      const id = model.moduleOf((rows[i] as MapRow).tensors[0] as number)?.id ?? "";
      if (id === module) continue;
      module = id;
      if (i * rowHeight < free) continue;
      free = i * rowHeight + ROW;
      out.push(i);
    }
    return out;
  }

  #fill(el: HTMLElement, row: MapRow, i: number, tensor: string, fit: boolean) {
    const { session } = this.context;
    const { model, rowHeight } = this.#list;
    el.style.transform = `translateY(${i * rowHeight - this.#top}px)`;
    el.style.height = fit ? `${ROW}px` : `${rowHeight}px`;
    const module = fit ? (model.moduleOf(row.tensors[0] as number)?.id ?? row.id) : "";
    const name = fit ? model.short(module) : row.label;
    // A folded module stands for its tensors.
    const chosen = this.#list.model.names.indexOf(tensor);
    const selected = !fit && (row.letter ? row.id === tensor : !row.open && row.tensors.includes(chosen));
    const absent = row.letter !== "" && session.exported && !session.store.hasPictures(this.#run, row.id);
    const badges = fit ? { notFinite: "", fired: 0 } : this.#list.badges(row);
    const state = `${row.key}|${name}|${selected}|${row.open}|${row.tensors.length}|${badges.notFinite}|${badges.fired}|${absent}`;
    if (el.dataset.state === state) return;
    el.dataset.state = state;
    const module_ = row.letter === "" || fit;
    el.className = `smdw-map-row${module_ ? " smdw-map-module" : ""}${row.level ? " smdw-map-member" : ""}${selected ? " smdw-map-selected" : ""}${absent ? " smdw-absent" : ""}`;
    setAttributes(el, { title: `${row.id}${absent ? "\nNot in this file: statistics only" : ""}` });
    el.replaceChildren(
      h("span", { class: "smdw-map-mark" }, fit ? "" : row.letter || (row.open ? "\u25be" : "\u25b8")),
      nameElement(name),
      ...badgeElements(badges, row),
      ...(absent ? [h("span", { class: "smdw-absent-mark" }, "\u25cb")] : []),
      ...(row.letter === "" && !fit ? [h("span", { class: "smdw-map-size" }, count(row.tensors.length))] : []),
    );
  }

  // ---- places

  get #run(): number {
    return this.#scene?.traits.run ?? 0;
  }

  #rowAt(y: number): MapRow | undefined {
    return this.#list.rows[Math.floor((y + this.#top) / this.#list.rowHeight)];
  }

  /** The level whose bins are shown side by side. */
  #level(scene: Scene): number {
    const { from, to } = scene.stepAxis;
    return Math.max(0, Math.ceil(Math.log2((to - from) / MOST_BINS)));
  }

  /** The cell of a row that has a step. */
  #place(row: MapRow, step: number): CellPlace | undefined {
    const scene = this.#scene;
    const steps = this.#bins?.steps;
    if (!scene || !steps?.length) return undefined;
    const survey = this.#survey;
    const saved = steps[nearestIndex(steps, step)] as number;
    let best = row.tensors[0] as number;
    let worst = -2;
    let level = this.#level(scene);
    for (const tensor of row.tensors) {
      const cell = survey?.cell(tensor, saved);
      if (!cell?.saved) continue;
      const score = cell.flag & NOT_FINITE_FLAGS ? 1e6 + (cell.flag & FLAG.nan) : cell.score;
      if (score <= worst) continue;
      worst = score;
      best = tensor;
      level = cell.level;
    }
    if (worst < -1) level = Math.max(level, survey?.blocks.find(({ rows }) => rows.has(best))?.level ?? level);
    const bin = Math.floor(saved / 2 ** level);
    const first = steps[lowerIndex(steps, bin * 2 ** level)] as number;
    const last = steps[lowerIndex(steps, (bin + 1) * 2 ** level) - 1] as number;
    return { row, tensor: best, name: this.#list.model.names[best] ?? "", first, last };
  }

  #updateHover() {
    const scene = this.#scene;
    const at = this.#pointer;
    const row = at && this.#rowAt(at.y);
    const inPlot = scene && at && at.x >= scene.stepAxis.left && at.x < scene.stepAxis.right;
    const place = inPlot && row ? this.#place(row, scene.stepAxis.step(at.x)) : undefined;
    setVisible(this.#cross, place !== undefined);
    setVisible(this.#band, row !== undefined);
    this.#hoverText = "";
    if (!scene || !row || !at) return;
    const { rowHeight } = this.#list;
    const y = Math.floor((at.y + this.#top) / rowHeight) * rowHeight - this.#top;
    this.#band.style.transform = `translateY(${y}px)`;
    this.#band.style.height = `${rowHeight}px`;
    if (!place) {
      this.#hoverText = row.id;
      return;
    }
    const x = scene.stepAxis.x((place.first + place.last) / 2) - scene.stepAxis.left;
    this.#cross.style.transform = `translateX(${x}px)`;
    this.#hoverText = `${rowText(place)} \u00b7 ${cellText(this.context.session.store, scene.traits.run, this.#survey, place)}`;
  }

  #updateActive() {
    const scene = this.#scene;
    const { rows, rowHeight } = this.#list;
    if (!scene || !rows.length) return;
    if (!this.#active || !rows.some(({ key }) => key === this.#active?.key)) {
      const own = rows.find((row) => row.letter !== "" && row.id === scene.traits.tensor) ?? rows[0];
      this.#active = { key: (own as MapRow).key, step: scene.step };
    }
    const i = rows.findIndex(({ key }) => key === this.#active?.key);
    const row = rows[i] as MapRow;
    const step = Number.isNaN(this.#active.step) ? 0 : this.#active.step;
    const place = this.#place(row, step);
    const text = place ? cellText(this.context.session.store, scene.traits.run, this.#survey, place) : "no step saved";
    setAttributes(this.#grid, { "aria-rowcount": rows.length, "aria-colcount": Math.max(1, scene.axis.steps.length) });
    setAttributes(this.#cell.parentElement as HTMLElement, { "aria-rowindex": i + 1 });
    setAttributes(this.#cell, {
      "aria-colindex": Math.max(0, nearestIndex(scene.axis.steps, step)) + 1,
      "aria-expanded": row.open === undefined ? undefined : String(row.open),
    });
    const spoken = place ? rowText(place) : row.id;
    setText(this.#cell, `${spoken}, ${text}`.replaceAll(" \u00b7 ", ", "));
    const visible = (this.#grid.getRootNode() as Document | ShadowRoot).activeElement === this.#grid;
    setVisible(this.#focus, visible && place !== undefined);
    if (!place) return;
    const { stepAxis: axis } = scene;
    const half = Math.max(2, (axis.x(1) - axis.x(0)) / 2);
    const [x0, x1] = [axis.x(place.first) - half - axis.left, axis.x(place.last) + half - axis.left];
    this.#focus.style.transform = `translate(${x0}px, ${i * rowHeight - this.#top}px)`;
    this.#focus.style.width = `${x1 - x0}px`;
    this.#focus.style.height = `${Math.max(3, rowHeight - 1)}px`;
  }

  /** Tells the session which part of the survey is in view. */
  #ask(scene: Scene) {
    const { rows, rowHeight } = this.#list;
    const first = Math.max(0, Math.floor((this.#top - this.#height / 2) / rowHeight));
    const last = Math.ceil((this.#top + 1.5 * this.#height) / rowHeight);
    const tensors = rows.slice(first, last).flatMap((row) => row.tensors);
    const { from, to } = scene.stepAxis;
    this.context.session.lookAt({ tensors, from, to, level: this.#level(scene) });
  }

  // ---- choices

  #select(tensor: number, step?: number) {
    const name = this.#list.model.names[tensor];
    if (name === undefined) return;
    this.context.session.state.set({
      tensor: name,
      inspect: true,
      zoom: [],
      clip: [],
      ...(step === undefined ? {} : { step, follow: false }),
    });
  }

  /** The first step of a bin at which trouble is known to begin, else the saved step nearest to the pointer. */
  #stepOf(place: CellPlace, near: number): number {
    const { store } = this.context.session;
    const found = store.findings
      .get(this.#run)
      ?.findings.find(
        ({ tensors, first }) => tensors.includes(place.tensor) && first >= place.first && first <= place.last,
      );
    if (found) return found.first;
    const steps = this.#bins?.steps ?? [];
    const saved = steps[nearestIndex(steps, near)] as number;
    return Math.max(place.first, Math.min(place.last, saved));
  }

  #open(row: MapRow, step: number, second = false) {
    const place = this.#place(row, step);
    if (!place) return;
    const at = this.#stepOf(place, step);
    this.#active = { key: row.key, step: at };
    if (second) this.#setCompared(place.tensor, at);
    else this.#select(place.tensor, at);
  }

  #setCompared(tensor: number, step: number) {
    const { state } = this.context.session;
    const { tensor: _, offset: __, ...rest } = state.get("compare");
    const name = this.#scene?.run?.names[tensor];
    state.set({ compare: { ...rest, ...(name && name !== state.get("tensor") ? { tensor: name } : {}), step } });
  }

  #fold(row: MapRow) {
    const scene = this.#scene;
    if (!scene || row.open === undefined) return;
    const now = this.#list.unfolded(scene.traits);
    this.#active = { key: row.key, step: this.#active?.step ?? scene.step };
    this.context.session.state.set({ unfolded: row.open ? now.filter((id) => id !== row.id) : [...now, row.id] });
  }

  #within(top: number): number {
    return Math.max(0, Math.min(Math.round(top), this.#total - this.#height));
  }

  #scrollTo(top: number) {
    const next = this.#within(top);
    if (next === this.#top) return;
    this.#top = next;
    this.#anchor = undefined;
    this.context.redraw();
  }

  /** Shows steps from `from` to `to`; all of them where they reach beyond both ends. */
  #zoom(from: number, to: number) {
    const run = this.#scene?.run;
    if (!run?.steps.length) return;
    const [first, last] = fullRange(run.steps);
    const span = Math.min(last - first, Math.max(to - from, Math.min(last - first, 3)));
    let start = from + (to - from - span) / 2;
    start = Math.max(first, Math.min(last - span, start));
    const all = span >= last - first - 1e-9;
    this.context.session.state.set({ range: all ? [] : [start, start + span] }, true);
  }

  /** Zooms by a factor around a step. */
  #zoomAt(step: number, factor: number) {
    const axis = this.#scene?.stepAxis;
    if (axis) this.#zoom(step - (step - axis.from) * factor, step + (axis.to - step) * factor);
  }

  #pan(share: number) {
    const axis = this.#scene?.stepAxis;
    if (!axis) return;
    const by = (axis.to - axis.from) * share;
    this.#zoom(axis.from + by, axis.to + by);
  }

  #zoomKey(key: string): boolean {
    const scene = this.#scene;
    if (!scene) return false;
    const { stepAxis: axis, traits } = scene;
    const middle = scene.step >= axis.from && scene.step <= axis.to ? scene.step : (axis.from + axis.to) / 2;
    if (key === "w") this.#zoomAt(middle, 0.5);
    else if (key === "s") this.#zoomAt(middle, 2);
    else if (key === "a") this.#pan(-0.25);
    else if (key === "d") this.#pan(0.25);
    else if (key === "f" && traits.selection.kind === "steps") {
      const [from, to] = traits.selection.range;
      this.#zoom(Math.min(from, to), Math.max(from, to));
    } else if (key === "f") this.#zoom(middle - (axis.to - axis.from) / 2, middle + (axis.to - axis.from) / 2);
    else if (key === "0") {
      // A second press shows all rows too.
      const { state } = this.context.session;
      if (traits.range.length) state.set({ range: [] });
      else state.set({ map_fit: !traits.map_fit });
    } else return false;
    return true;
  }

  #gridKey(event: KeyboardEvent): boolean {
    const scene = this.#scene;
    const { rows, rowHeight } = this.#list;
    const active = this.#active;
    if (!scene || !active || !rows.length) return false;
    const i = Math.max(
      0,
      rows.findIndex(({ key }) => key === active.key),
    );
    const row = rows[i] as MapRow;
    const page = Math.max(1, Math.floor(this.#height / rowHeight) - 1);
    const vertical: Record<string, number> = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page };
    const by = vertical[event.key];
    if (by !== undefined) return this.#moveTo(i + by, active.step);
    if (event.key === "Home") return this.#moveTo(event.shiftKey ? 0 : i, scene.axis.steps[0] ?? 0);
    if (event.key === "End") return this.#moveTo(event.shiftKey ? rows.length - 1 : i, scene.axis.steps.at(-1) ?? 0);
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      const place = this.#place(row, active.step);
      const steps = this.#bins?.steps ?? [];
      if (!place) return true;
      const at = event.key === "ArrowLeft" ? lowerIndex(steps, place.first) - 1 : lowerIndex(steps, place.last) + 1;
      return this.#moveTo(i, steps[Math.max(0, Math.min(steps.length - 1, at))] as number);
    }
    if (event.key === "Enter") {
      if (row.open === undefined) this.#open(row, active.step);
      else this.#fold(row);
      return true;
    }
    return this.key(event);
  }

  #moveTo(i: number, step: number): boolean {
    const { rows, rowHeight } = this.#list;
    const to = Math.max(0, Math.min(rows.length - 1, i));
    this.#active = { key: (rows[to] as MapRow).key, step };
    const y = to * rowHeight;
    if (y < this.#top) this.#scrollTo(y);
    else if (y + rowHeight > this.#top + this.#height) this.#scrollTo(y + rowHeight - this.#height);
    const axis = this.#scene?.stepAxis;
    if (axis && step < axis.from) this.#pan((step - axis.from) / (axis.to - axis.from) - 0.1);
    if (axis && step > axis.to) this.#pan((step - axis.to) / (axis.to - axis.from) + 0.1);
    this.context.redraw();
    return true;
  }

  #gestures(signal: AbortSignal) {
    const grid = this.#grid;
    let start: { x: number; y: number; step: number } | undefined;
    const at = (event: PointerEvent | WheelEvent) => {
      const box = grid.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    grid.addEventListener(
      "pointerdown",
      (event) => {
        const axis = this.#scene?.stepAxis;
        if (event.button !== 0 || !axis) return;
        const from = at(event);
        this.#dragged = false;
        start = { ...from, step: axis.step(from.x) };
        if (from.x < axis.left || from.x >= axis.right) return;
        capturePointer(grid, event);
      },
      { signal },
    );
    grid.addEventListener(
      "pointermove",
      (event) => {
        const now = at(event);
        this.#pointer = now;
        const axis = this.#scene?.stepAxis;
        if (start && axis && start.x >= axis.left && start.x < axis.right) {
          this.#dragged ||= Math.abs(now.x - start.x) > DRAG;
          if (this.#dragged) this.#brush(start.step, axis.step(Math.max(axis.left, Math.min(axis.right, now.x))));
        }
        this.context.redraw();
      },
      { signal },
    );
    grid.addEventListener(
      "pointerup",
      (event) => {
        const from = start;
        start = undefined;
        const axis = this.#scene?.stepAxis;
        const row = this.#rowAt(at(event).y);
        if (!from || !axis || !row || this.#dragged) return;
        if (from.x >= axis.left) {
          if (from.x < axis.right) this.#open(row, axis.step(from.x), event.altKey);
        } else if (row.open !== undefined) this.#fold(row);
        else if (row.letter !== "" && row.tensors.length === 1) this.#select(row.tensors[0] as number);
        this.context.redraw();
      },
      { signal },
    );
    grid.addEventListener(
      "pointercancel",
      () => {
        start = undefined;
      },
      { signal },
    );
    grid.addEventListener(
      "pointerleave",
      () => {
        this.#pointer = undefined;
        this.context.redraw();
      },
      { signal },
    );
    grid.addEventListener("wheel", (event) => this.#onWheel(event, at(event)), { signal, passive: false });
  }

  #brush(a: number, b: number) {
    const steps = this.#bins?.steps ?? [];
    const saved = (step: number) => (steps[nearestIndex(steps, step)] as number | undefined) ?? step;
    const range: [number, number] = [saved(Math.min(a, b)), saved(Math.max(a, b))];
    this.context.session.state.set({ selection: { kind: "steps", range } });
  }

  /** The page scrolls unless the map has the focus. Ctrl and wheel zoom, at any time. */
  #onWheel(event: WheelEvent, { x }: { x: number }) {
    const axis = this.#scene?.stepAxis;
    if (!axis) return;
    const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.#zoomAt(axis.step(Math.max(axis.left, Math.min(axis.right, x))), Math.exp(event.deltaY * scale * 0.004));
      return;
    }
    if ((grid(this.#grid) as Element | null) !== this.#grid) return;
    event.preventDefault();
    const now = performance.now();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (now - this.#wheel.at > WHEEL_PAUSE) this.#wheel.pans = sideways;
    this.#wheel.at = now;
    if (this.#wheel.pans) this.#pan(((event.deltaX || event.deltaY) * scale) / (axis.right - axis.left));
    else this.#scrollTo(this.#top + event.deltaY * scale);
  }
}

/** The element with the focus in the same document or shadow tree. */
const grid = (el: Element) => (el.getRootNode() as Document | ShadowRoot).activeElement;

/** A module that is open leaves the firings to its tensors. */
function badgeElements({ notFinite, fired }: Badges, row: MapRow): HTMLElement[] {
  return [
    ...(notFinite ? [h("span", { class: "smdw-map-nan" }, notFinite)] : []),
    ...(fired && !row.open ? [h("span", { class: "smdw-map-fired" }, `\u25b2 ${count(fired)}`)] : []),
  ];
}
