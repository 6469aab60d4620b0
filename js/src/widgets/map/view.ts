/** The Run Map: one row per module or tensor over all steps, coloured by one statistic. */
import type { Survey } from "../../data/survey";
import { defined } from "../../lib/defined";
import { h, onResize, setText, setVisible } from "../../lib/dom";
import { truncate } from "../../lib/format";
import type { MapRow } from "../../lib/map-rows";
import { Memo } from "../../lib/memo";
import { QueryResults } from "../../session/query-results";
import { viewOf, withView } from "../../session/query-view";
import type { Scene } from "../../session/scene";
import { Deferred } from "../common/deferred";
import type { Context, Part } from "../common/part";
import { MapCells } from "./cells";
import { MapCursor } from "./cursor";
import type { Differences } from "./differences";
import { MapHover } from "./hover";
import { MapList } from "./list";
import { Minimap } from "./minimap";
import { MapNames, ROW } from "./names";
import { MapPointer } from "./pointer";
import { CellPositions } from "./positions";
import { MapScroll } from "./scroll";
import type { MapTable } from "./table";
import { MapZoom } from "./zoom";

const COARSE_ROW = 24;

export class RunMap implements Part {
  readonly el: HTMLElement;
  /** which tensors have rows */
  readonly results: QueryResults;
  readonly #plot: HTMLElement;
  readonly #empty = h("p", { class: "smdw-map-empty", role: "status" });
  readonly #list: MapList;
  readonly #scroll: MapScroll;
  readonly #positions: CellPositions;
  readonly #zoom: MapZoom;
  readonly #cells: MapCells;
  readonly #names: MapNames;
  readonly #cursor: MapCursor;
  readonly #pointer: MapPointer;
  readonly #hover: MapHover;
  readonly #minimap: Minimap;
  readonly #table: Deferred<MapTable>;
  readonly #differences: Deferred<Differences>;
  readonly #coarse = matchMedia("(pointer: coarse)");
  #scene: Scene | undefined;
  #survey: Survey | undefined;
  /** the tensors whose bins are asked for */
  readonly #asked = new Memo<readonly number[]>();
  #tableShown = false;
  #rowsHeight = "";

  /** `pointed`: called when the pointer is elsewhere over the map; what follows it is drawn by `hover`. */
  constructor(
    private readonly context: Context,
    pointed: () => void,
  ) {
    const { signal, session, keys } = context;
    const { store } = session;
    this.results = new QueryResults(session);
    this.#list = new MapList(store, this.results);
    this.#scroll = new MapScroll(this.#list, {
      scrolled: () => context.redraw(),
      shown: (row) => this.#scene && this.#cursor.set(row, this.#scene.step),
    });
    this.#positions = new CellPositions(store, this.#list);
    this.#zoom = new MapZoom(session);
    this.#cells = new MapCells(context, this.#list, this.#scroll);
    this.#names = new MapNames(session, this.#list, this.#scroll);
    this.#cursor = new MapCursor(context, this.#list, this.#scroll, this.#positions, this.#zoom);
    this.#pointer = new MapPointer(context, this.#cursor, this.#scroll, this.#zoom, {
      cell: (row, step, second) => this.#open(row, step, second),
      name: (row) => {
        if (row.open !== undefined) this.#fold(row);
        else if (row.letter !== "" && row.tensors.length === 1) this.#select(defined(row.tensors[0]));
      },
      brush: (from, to) => this.#brush(from, to),
      moved: pointed,
    });
    this.#hover = new MapHover(session, this.#list, this.#scroll, this.#positions);
    const scroll = this.#scroll;
    this.#minimap = new Minimap((share) => scroll.to(share * scroll.total - scroll.height / 2), signal);
    this.#table = new Deferred(context, async () => this.#makeTable(await import("./table")));
    this.#differences = new Deferred(
      context,
      async () => new (await import("./differences")).Differences(context, (tensor) => this.reveal(tensor)),
    );
    const { grid, frame } = this.#cursor;
    this.#plot = h("div", { class: "smdw-map-plot" }, this.#cells.el, this.#hover.band, this.#hover.cross, frame);
    // What is seen lies over the grid, which has the focus.
    grid.append(this.#names.el, this.#plot);
    this.el = h(
      "div",
      { class: "smdw-map" },
      grid,
      this.#cells.ends.el,
      this.#minimap.el,
      this.#empty,
      this.#table.el,
      this.#differences.el,
    );
    keys.on(grid, (event) => this.#cursor.key(event, (row, step) => this.#choose(row, step)) || this.key(event));
    const resized = () => {
      const { clientHeight } = this.el;
      if (clientHeight === this.#scroll.height) return;
      this.#scroll.height = clientHeight;
      context.redraw();
    };
    onResize(this.el, resized, signal);
  }

  /** Number of rows. */
  get rows(): number {
    return this.#list.rows.length;
  }

  /** The tensors of all rows, in their order. */
  get tensors(): readonly number[] {
    return this.#list.tensors;
  }

  /** What the pointer is over, in one line; "" if it is elsewhere. */
  get hoverText(): string {
    return this.#hover.text;
  }

  /** Marks the cell under the pointer, which needs nothing else to be drawn. */
  hover(): void {
    if (this.#scene) this.#hover.update(this.#scene, this.#survey, this.#pointer.at);
  }

  update(scene: Scene): void {
    this.#scene = scene;
    this.#tableShown = viewOf(scene.query, scene.run) === "table";
    const { traits, stepAxis: axis } = scene;
    const { store } = this.context.session;
    const survey = store.surveys.find(traits.run, traits.worker, traits.mode, traits.map_stat);
    this.#survey = survey;
    const { rows: before } = this.#list;
    this.#list.update(scene, survey, this.#scroll.height, this.#coarse.matches ? COARSE_ROW : ROW);
    this.#scroll.update(scene, before);
    this.el.style.setProperty("--gutter", `${axis.left}px`);
    this.#setRowsHeight();
    this.#plot.style.width = `${axis.right - axis.left}px`;
    setVisible(this.#table.el, this.#tableShown);
    setVisible(this.#cursor.grid, !this.#tableShown);
    setVisible(this.#minimap.el, !this.#tableShown);
    setVisible(this.#cells.ends.el, !this.#tableShown);
    if (this.#tableShown) this.#table.use((table) => table.update(scene, this.#list, survey));
    this.#differences.part?.update(scene, this.#list, survey);
    this.#updateEmpty(scene);
    this.#zoom.update(scene);
    this.#pointer.update(axis);
    this.#positions.update(scene, survey);
    const { top, height } = this.#scroll;
    if (!height || this.#tableShown) return;
    const domain = survey?.domain ?? [1, 65535];
    const ratio = Math.min(3, globalThis.devicePixelRatio || 1);
    this.#names.update(traits, this.#cursor.row);
    this.#cells.update(scene, { survey, domain, steps: this.#positions.steps, ratio });
    this.hover();
    this.#cursor.update(scene, survey);
    const { rows, summary } = this.#list;
    const total = Math.max(1, this.#scroll.total);
    const [from, to] = [top / total, (top + height) / total];
    this.#minimap.update(
      { rows, summary, stat: traits.map_stat, domain, from, to, height: Math.min(height, total) },
      this.context.theme(),
      ratio,
      this.context.paint,
    );
    this.#ask(axis.from, axis.to);
  }

  /** Brings the row of a tensor into view; that of its module if it is folded. */
  reveal(tensor: number): void {
    this.#scroll.reveal(tensor);
    this.context.redraw();
  }

  /** Lists the tensors that differ most between the steps of a range and all others. */
  showDifferences(range: readonly [number, number]): void {
    this.#differences.run((list) => list.show(range));
    this.context.redraw();
  }

  /** Keys that also work while the focus is elsewhere in the widget. */
  key(event: KeyboardEvent): boolean {
    if (event.key !== "t") return this.#zoom.key(event.key);
    this.#showTable(!this.#tableShown);
    return true;
  }

  #makeTable(module: typeof import("./table")): MapTable {
    const table = new module.MapTable(this.context, (tensor) => this.#select(tensor));
    this.context.keys.on(table.el, (event) => {
      if (event.key === "Escape") this.#showTable(false);
      return event.key === "Escape";
    });
    return table;
  }

  #showTable(shown: boolean) {
    const { session } = this.context;
    const { grid } = this.#cursor;
    const { query, run } = session.scene();
    session.state.set(withView(query, run, shown ? "table" : undefined));
    setVisible(this.#table.el, shown);
    setVisible(grid, !shown);
    if (shown) this.#table.run(({ el }) => el.focus({ preventScroll: true }));
    else grid.focus({ preventScroll: true });
    this.context.redraw();
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

  /** Beside pictures, the map is not higher than its rows. */
  #setRowsHeight() {
    const { rows, rowHeight } = this.#list;
    const height = `${Math.max(28, Math.ceil(rows.length * Math.min(ROW, rowHeight)))}px`;
    if (height === this.#rowsHeight) return;
    this.#rowsHeight = height;
    this.el.parentElement?.style.setProperty("--smdw-rows", height);
  }

  /** Tells the session which part of the survey is in view. */
  #ask(from: number, to: number) {
    const { rows } = this.#list;
    const [first, end] = this.#scroll.range(0.5);
    const tensors = this.#asked.of([rows, first, end], () => rows.slice(first, end).flatMap((row) => row.tensors));
    this.context.session.lookAt({ tensors, from, to, level: this.#positions.level });
  }

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

  #choose(row: MapRow, step: number) {
    if (row.open === undefined) this.#open(row, step);
    else this.#fold(row);
  }

  #open(row: MapRow, step: number, second = false) {
    const place = this.#positions.at(row, step);
    if (!place) return;
    const at = this.#positions.stepOf(place, step);
    this.#cursor.set(row, at);
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
    this.#cursor.set(row);
    this.context.session.state.set({ unfolded: row.open ? now.filter((id) => id !== row.id) : [...now, row.id] });
  }

  #brush(a: number, b: number) {
    const [from, to] = [this.#positions.saved(Math.min(a, b)), this.#positions.saved(Math.max(a, b))];
    this.context.session.state.set({ selection: { kind: "steps", range: [from, to] } });
  }
}
