import { finiteness, type Image, imageKey, imageValue, pixelText } from "../data/frames";
import { type CellWindow, indexText, type Matrix, matrixOf, overlaps, tileImage, within } from "../data/matrix";
import type { Tile } from "../data/store";
import type { TensorView } from "../data/tensor-view";
import {
  cellAt,
  clampWindow,
  colourPixels,
  drawHeatmap,
  type HeatmapPicture,
  type Layer,
  layoutHeatmap,
  zoomWindow,
} from "../draw/heatmap";
import type { Pixels } from "../draw/pen";
import { choose, colourDomain, PALETTES, type Table, table } from "../lib/colour";
import { field, h, iconButton, Select, setVisible, Toggle, textButton } from "../lib/dom";
import { count, minusSigns, num, truncate } from "../lib/format";
import { jsonEqual } from "../lib/json-equal";
import type { Pool } from "../protocol/types";
import { pythonValue, sliceText } from "../session/python-code";
import type { Scene } from "../session/session";
import { emptyReason } from "./frame-text";
import { HeatmapDetailLoader } from "./heatmap-detail-loader";
import { PicturePanel, type Rows } from "./panel";
import type { Context } from "./part";

const POOLS = [
  ["maxabs", "Max magnitude"],
  ["mean", "Mean"],
  ["min", "Minimum"],
  ["max", "Maximum"],
] as const;

export class HeatmapPanel extends PicturePanel {
  readonly #palette: Select;
  readonly #pool: Select;
  readonly #over: Toggle;
  readonly #lo = numberInput("Range minimum");
  readonly #hi = numberInput("Range maximum");
  /** controls that do not apply to a logged image */
  readonly #colouring: HTMLElement[];
  #scene: Scene | undefined;
  #matrix: Matrix | undefined;
  #picture: HeatmapPicture | undefined;
  #image: Image | undefined;
  #tile: Tile | undefined;
  #hover: [number, number] | undefined;
  readonly #details: HeatmapDetailLoader;
  #cache = new Map<string, { of: unknown; pixels: Pixels }>();
  #table: { key: string; table: Table } | undefined;

  constructor(context: Context) {
    super("heatmap", "Heat map", context);
    const { signal, session } = context;
    const { state } = session;
    this.#details = new HeatmapDetailLoader(session, signal);
    this.#pool = new Select("Pooling", (pool) => state.set({ pool: pool as Pool }), signal);
    this.#palette = new Select("Colormap", (palette) => state.set({ palette }), signal);
    this.#over = new Toggle("Shared scale", (on) => state.set({ scale_over: on ? "steps" : "step" }), signal);
    const clip = () => {
      const [lo, hi] = [Number.parseFloat(this.#lo.value), Number.parseFloat(this.#hi.value)];
      if (Number.isFinite(lo) && Number.isFinite(hi) && lo < hi) state.set({ clip: [lo, hi] });
      else if (!this.#lo.value && !this.#hi.value) state.set({ clip: [] });
    };
    for (const input of [this.#lo, this.#hi]) input.addEventListener("change", clip, { signal });
    this.tools.append(
      this.#pool.el,
      iconButton("plus", "Zoom in", () => this.#zoom(0.5), signal),
      iconButton("minus", "Zoom out", () => this.#zoom(2), signal),
      iconButton("fit", "Reset zoom", () => state.set({ zoom: [] }), signal),
    );
    this.#colouring = [
      field("Colormap", this.#palette.el),
      field("Value range", h("span", { class: "smdw-pair" }, this.#lo, this.#hi)),
      h(
        "div",
        { class: "smdw-actions" },
        this.#over.el,
        textButton("Reset range", () => state.set({ clip: [] }), signal),
      ),
    ];
    this.menu.append(...this.#colouring);
    this.exports(this.figure, () => ({
      name: `${this.#scene?.traits.tensor}-heatmap-step-${this.#scene?.main?.savedStep}`,
      rows: () => this.#rows(),
      python: () => this.#python(),
    }));
    this.figure.canvas.tabIndex = 0;
    context.keys.on(this.figure.canvas, (event) => this.#key(event));
    this.figure.canvas.addEventListener("wheel", (event) => this.#wheel(event), { signal, passive: false });
    this.figure.canvas.addEventListener("dblclick", () => this.#zoom(0.4), { signal });
    this.figure.gestures(
      {
        move: (at) => this.#point(at?.x, at?.y),
        down: (start) => this.#drag(start.x, start.y, start.event.shiftKey),
      },
      signal,
    );
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main } = scene;
    const { session, theme } = this.context;
    const colours = theme();
    // A logged histogram is not a matrix.
    setVisible(this.el, main?.frames.plan?.form !== "histogram");
    this.#pool.update(POOLS, traits.pool);
    this.#palette.update(
      PALETTES.map((name) => [name, name] as const),
      traits.palette,
    );
    this.#over.update(traits.scale_over === "steps");
    if (!this.el.contains((this.el.getRootNode() as Document | ShadowRoot).activeElement)) {
      this.#lo.value = traits.clip.length ? String(traits.clip[0]) : "";
      this.#hi.value = traits.clip.length ? String(traits.clip[1]) : "";
    }
    const matrix = matrixOf(main, traits.axes, traits.fixed);
    this.#matrix = matrix;
    const key = matrix ? imageKey(matrix.axes, matrix.fixed, traits.pool) : "";
    const image = main?.frame?.images.get(key);
    this.#image = image;
    const window = this.#window();
    const empty = !matrix || matrix.rows * matrix.cols === 0;
    const [lo, hi] =
      traits.clip.length === 2
        ? (traits.clip as [number, number])
        : image && main && !image.rgba
          ? this.#extent(image, key, main, traits.scale_over)
          : [0, 1];
    const palette = choose(traits.palette, lo, hi);
    const domain = traits.clip.length === 2 ? ([lo, hi] as [number, number]) : colourDomain(palette, lo, hi);
    const tableKey = `${palette}/${colours.dark}`;
    if (this.#table?.key !== tableKey) this.#table = { key: tableKey, table: table(palette, colours.dark) };
    const style = `${tableKey}/${domain}`;
    this.#tile =
      main && matrix
        ? session.store.tile(
            (head) =>
              head.tensor === main.tensor &&
              head.run === main.run &&
              head.worker === main.worker &&
              head.step === main.savedStep &&
              head.pool === traits.pool &&
              imageKey(head.axes, head.fixed, head.pool) === key &&
              overlaps([...head.rows, ...head.cols] as unknown as CellWindow, window),
          )
        : undefined;
    const layers: Layer[] = [];
    if (image && matrix && !empty)
      layers.push({ pixels: this.#pixels("frame", image, style, domain), covers: [0, matrix.rows, 0, matrix.cols] });
    const tile = this.#tile && tileImage(this.#tile);
    if (tile && this.#tile)
      layers.push({
        pixels: this.#pixels("tile", tile, style, domain),
        covers: [...this.#tile.head.rows, ...this.#tile.head.cols] as unknown as CellWindow,
      });
    const picture: HeatmapPicture = {
      layers,
      window,
      table: this.#table.table,
      domain,
      blank: !(lo < hi) && finiteness(main?.frame).finite === 0,
      rgba: image?.rgba ?? false,
      hover: this.#hover,
      marked:
        traits.selection.kind === "cells"
          ? ([...traits.selection.rows, ...traits.selection.cols] as unknown as CellWindow)
          : undefined,
      dim: Boolean(main?.pending),
      emptyMessage: emptyReason(scene, "heat map"),
    };
    this.#picture = picture;
    this.figure.paint((pen, size, paint) => drawHeatmap(pen, size, paint, picture), colours);
    const status = session.requests.get("tile");
    this.note(status ?? session.requests.get(session.framesSlot("main")));
    this.readout(this.#readoutText());
    const rgba = image?.rgba ?? false;
    this.title(rgba ? "Image" : "Heat map");
    for (const tool of [this.#pool.el, ...this.#colouring]) setVisible(tool, !rgba);
    const description = rgba
      ? `Image ${truncate(traits.tensor, 80)}, ${count(matrix?.cols ?? 0)} pixels wide, ${count(matrix?.rows ?? 0)} high.`
      : matrix
        ? `Heat map of ${truncate(traits.tensor, 80)}${sliceText(matrix.shape.length, matrix.axes, matrix.fixed)}: ${count(matrix.rows)} rows, ${count(matrix.cols)} columns, colours from ${num(domain[0])} to ${num(domain[1])}.`
        : "Heat map: no data.";
    this.figure.describe(description);
    this.summary(description);
    if (matrix)
      this.#details.update(scene, {
        matrix,
        window,
        size: this.figure.size,
        pooled: this.#pooled(),
        tile: this.#tile,
        unknown: this.#readoutText().includes(" = ") ? undefined : this.#hover,
      });
  }

  #box(window: CellWindow) {
    return layoutHeatmap(window, this.figure.size, this.#image?.rgba);
  }

  #window(): CellWindow {
    const m = this.#matrix;
    if (!m) return [0, 1, 0, 1];
    const zoom = this.context.session.state.get("zoom");
    return zoom.length === 4
      ? clampWindow(zoom as unknown as CellWindow, m.rows, m.cols)
      : [0, Math.max(1, m.rows), 0, Math.max(1, m.cols)];
  }

  #extent(image: Image, key: string, main: TensorView, over: "steps" | "step"): [number, number] {
    const isCodes = !(image.data instanceof Float32Array);
    const ends = (each: Image): number[] => {
      if (isCodes) return [each.lo, each.hi];
      let lo = Number.POSITIVE_INFINITY;
      let hi = Number.NEGATIVE_INFINITY;
      for (const x of each.data) if (Number.isFinite(x)) [lo, hi] = [Math.min(lo, x), Math.max(hi, x)];
      return [lo, hi];
    };
    if (over === "step") return ends(image) as [number, number];
    return main.frames.range(`image/${key}`, (frame) => {
      const each = frame.images.get(key);
      return each && ends(each);
    });
  }

  #pixels(slot: string, image: Image, style: string, domain: [number, number]): Pixels {
    const known = this.#cache.get(`${slot}/${style}`);
    if (known?.of === image.data) return known.pixels;
    const pixels = colourPixels(image, (this.#table as { table: Table }).table, domain);
    for (const old of this.#cache.keys()) if (old.startsWith(`${slot}/`)) this.#cache.delete(old);
    this.#cache.set(`${slot}/${style}`, { of: image.data, pixels });
    return pixels;
  }

  /** Readout of the cell under the pointer: its exact value if loaded, else the pooled value. */
  #readoutText(): string {
    const m = this.#matrix;
    const main = this.#scene?.main;
    if (!m || !main || !this.#hover)
      return this.#image?.rgba
        ? `${count(m?.cols ?? 0)} \u00d7 ${count(m?.rows ?? 0)} pixels`
        : this.#image
          ? `${this.#cellsText()}${this.#pooled() ? `, pooled by ${this.#pooling()}` : ""}`
          : "";
    const [row, col] = this.#hover;
    const index = indexText(m, row, col);
    const known = this.context.session.store.values(
      (head) =>
        head.run === main.run &&
        head.tensor === main.tensor &&
        head.worker === main.worker &&
        head.step === main.savedStep &&
        jsonEqual(head.axes, m.axes) &&
        jsonEqual(head.fixed, m.fixed) &&
        within(head.rows, row) &&
        within(head.cols, col),
    );
    if (known && !this.#image?.rgba)
      return `${index} = ${minusSigns(truncate(known.head.cells[row - known.head.rows[0]]?.[col - known.head.cols[0]] ?? "", 80))}`;
    const tile = this.#tile;
    const image = tile && within(tile.head.rows, row) && within(tile.head.cols, col) ? tileImage(tile) : this.#image;
    if (!image) return index;
    const [rows, cols] =
      image === this.#image
        ? [
            [0, m.rows],
            [0, m.cols],
          ]
        : [tile?.head.rows ?? [0, 1], tile?.head.cols ?? [0, 1]];
    const r = Math.floor(((row - (rows[0] as number)) / ((rows[1] as number) - (rows[0] as number))) * image.height);
    const c = Math.floor(((col - (cols[0] as number)) / ((cols[1] as number) - (cols[0] as number))) * image.width);
    const cells = Math.round(
      (((rows[1] as number) - (rows[0] as number)) / image.height) *
        (((cols[1] as number) - (cols[0] as number)) / image.width),
    );
    if (image.rgba)
      return `row ${count(row)}, column ${count(col)}: ${cells > 1 ? "about " : ""}${pixelText(image, r * image.width + c)}`;
    return `${index} \u2248 ${num(imageValue(image, r * image.width + c), 5)}${cells > 1 ? `  (${this.#pooling()} of about ${count(cells)} cells)` : ""}`;
  }

  /** Number of cells in view, and of all cells while zoomed. */
  #cellsText(): string {
    const m = this.#matrix;
    const all = `${count(m?.rows ?? 0)} \u00d7 ${count(m?.cols ?? 0)}`;
    const [r0, r1, c0, c1] = this.#window();
    const shown = [r1 - r0, c1 - c0].map((size) => count(Math.max(1, Math.round(size)))).join(" \u00d7 ");
    return shown === all ? `${all} cells` : `${shown} of ${all} cells`;
  }

  #pooling(): string {
    return (POOLS.find(([pool]) => pool === this.#scene?.traits.pool)?.[1] ?? "").toLowerCase();
  }

  #pooled(): boolean {
    const m = this.#matrix;
    return Boolean(m && this.#image && (this.#image.width < m.cols || this.#image.height < m.rows));
  }

  #point(x: number | undefined, y: number | undefined) {
    const window = this.#window();
    const next =
      x === undefined || y === undefined || !this.#picture?.layers.length
        ? undefined
        : cellAt(window, this.#box(window), x, y);
    if (jsonEqual(next, this.#hover)) return;
    this.#hover = next;
    this.context.redraw();
  }

  #drag(x: number, y: number, select: boolean) {
    const start = this.#window();
    const box = this.#box(start);
    const m = this.#matrix;
    const from = cellAt(start, box, x, y);
    if (!m || !from) return undefined;
    const { state } = this.context.session;
    const whole = start[1] - start[0] >= m.rows && start[3] - start[2] >= m.cols;
    return (at: { x: number; y: number }, done: boolean) => {
      const [dx, dy] = [at.x - x, at.y - y];
      if (Math.hypot(dx, dy) < 4) {
        if (done && state.get("selection").kind === "cells") state.set({ selection: {} });
        return;
      }
      // At full extent there is nowhere to pan to, so a drag selects cells.
      if (select || whole) {
        const to =
          cellAt(
            start,
            box,
            Math.max(box.x, Math.min(box.x + box.width - 0.01, at.x)),
            Math.max(box.y, Math.min(box.y + box.height - 0.01, at.y)),
          ) ?? from;
        const pair = (a: number, b: number): [number, number] => [Math.min(a, b), Math.max(a, b) + 1];
        state.set({ selection: { kind: "cells", rows: pair(from[0], to[0]), cols: pair(from[1], to[1]) } });
        return;
      }
      const rows = ((start[1] - start[0]) * dy) / box.height;
      const cols = ((start[3] - start[2]) * dx) / box.width;
      state.set({
        zoom: [...clampWindow([start[0] - rows, start[1] - rows, start[2] - cols, start[3] - cols], m.rows, m.cols)],
      });
    };
  }

  #zoom(by: number, at?: readonly [number, number]) {
    const m = this.#matrix;
    if (!m) return;
    const { state } = this.context.session;
    const window = this.#window();
    const middle = at ?? this.#hover ?? [(window[0] + window[1]) / 2, (window[2] + window[3]) / 2];
    const next = zoomWindow(window, by, middle, m.rows, m.cols);
    state.set({ zoom: next[1] - next[0] >= m.rows && next[3] - next[2] >= m.cols ? [] : [...next] });
  }

  /** The wheel zooms with Ctrl (or a pinch) or if the figure has the focus; otherwise the page scrolls. */
  #wheel(event: WheelEvent) {
    const focused = (this.el.getRootNode() as Document | ShadowRoot).activeElement === this.figure.canvas;
    if (!event.ctrlKey && !focused) return;
    event.preventDefault();
    this.#zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150));
  }

  #key(event: KeyboardEvent): boolean {
    const window = this.#window();
    const m = this.#matrix;
    const { state } = this.context.session;
    if (!m) return false;
    if (event.key === "+" || event.key === "=") this.#zoom(0.5);
    else if (event.key === "-") this.#zoom(2);
    else if (event.key === "0") state.set({ zoom: [] });
    else if (event.key === "Escape") state.set({ selection: {} });
    else if (event.key.startsWith("Arrow")) {
      // Arrows move a cell cursor. The window follows it.
      const [row, col] = this.#hover ?? [
        Math.floor((window[0] + window[1]) / 2),
        Math.floor((window[2] + window[3]) / 2),
      ];
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] as [
        number,
        number,
      ];
      const next: [number, number] = [
        Math.max(0, Math.min(m.rows - 1, row + by[0])),
        Math.max(0, Math.min(m.cols - 1, col + by[1])),
      ];
      this.#hover = next;
      const shift = (lo: number, hi: number, x: number) => (x < lo ? x - lo : x + 1 > hi ? x + 1 - hi : 0);
      const [dr, dc] = [shift(window[0], window[1], next[0]), shift(window[2], window[3], next[1])];
      if (dr || dc) state.set({ zoom: [window[0] + dr, window[1] + dr, window[2] + dc, window[3] + dc] });
      this.context.redraw();
    } else return false;
    return true;
  }

  #rows(): Rows | undefined {
    const m = this.#matrix;
    const tile = this.#tile && tileImage(this.#tile);
    const image = tile ?? this.#image;
    if (!image || !m) return undefined;
    const head = tile ? this.#tile?.head : undefined;
    const [r0, r1] = head?.rows ?? [0, m.rows];
    const [c0, c1] = head?.cols ?? [0, m.cols];
    if (image.rgba) {
      const pixels: Rows = [["first_row", "first_column", "red", "green", "blue", "alpha"]];
      for (let at = 0; at < image.width * image.height; at++)
        pixels.push([
          Math.floor(r0 + (Math.floor(at / image.width) * (r1 - r0)) / image.height),
          Math.floor(c0 + ((at % image.width) * (c1 - c0)) / image.width),
          ...image.data.subarray(4 * at, 4 * at + 4),
        ]);
      return pixels;
    }
    const rows: Rows = [
      ["first_row", "first_column", this.#pooled() && !head?.exact ? `${this.#scene?.traits.pool}` : "value"],
    ];
    for (let r = 0; r < image.height; r++)
      for (let c = 0; c < image.width; c++)
        rows.push([
          Math.floor(r0 + (r * (r1 - r0)) / image.height),
          Math.floor(c0 + (c * (c1 - c0)) / image.width),
          imageValue(image, r * image.width + c),
        ]);
    return rows;
  }

  #python(): string {
    const m = this.#matrix;
    const window = this.#scene?.traits.zoom.length === 4 ? this.#window() : undefined;
    const cut = window && [Math.floor(window[0]), Math.ceil(window[1]), Math.floor(window[2]), Math.ceil(window[3])];
    return `${pythonValue(this.context.session, this.#scene?.main)}${m ? sliceText(m.shape.length, m.axes, m.fixed, cut) : ""}`;
  }
}

function numberInput(label: string): HTMLInputElement {
  return h("input", { class: "smdw-input smdw-clip", inputmode: "decimal", "aria-label": label, placeholder: "auto" });
}
