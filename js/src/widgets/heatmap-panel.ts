import { type Difference, estimatedDifference, showsPlane, valueRef } from "../data/difference";
import { finiteness, type Image, imageKey, imageValue, pixelText } from "../data/frames";
import { type CellWindow, indexText, type Matrix, matrixOf, overlaps, tileImage, within } from "../data/matrix";
import type { Tile } from "../data/store";
import type { TensorView } from "../data/tensor-view";
import {
  BESIDE,
  cellAt,
  clampWindow,
  colourPixels,
  drawHeatmap,
  type HeatmapPicture,
  type Layer,
  layoutHeatmap,
  MARGINS,
  zoomWindow,
} from "../draw/heatmap";
import type { Pixels } from "../draw/pen";
import { cssHex } from "../draw/theme";
import { choose, colourDomain, PALETTES, type Table, table } from "../lib/colour";
import { field, h, iconButton, Select, setVisible, Toggle, textButton } from "../lib/dom";
import { count, minusSigns, num, truncate } from "../lib/format";
import { jsonEqual } from "../lib/json-equal";
import type { Pool } from "../protocol/types";
import { pythonValue, sliceText } from "../session/python-code";
import type { Scene } from "../session/session";
import { differenceFault, shownView } from "../session/slots";
import { Figure } from "./figure";
import { emptyReason } from "./frame-text";
import { HeatmapDetailLoader } from "./heatmap-detail-loader";
import { PicturePanel, type Rows } from "./panel";
import type { Context } from "./part";
import { SliceBar } from "./slice-bar";

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
  /** A − B is shown: the exact differences that cover the window, the finest first */
  #differences: Difference[] | undefined;
  #estimate: { of: unknown[]; image: Image | undefined } | undefined;
  /** B, beside A */
  readonly #second: Figure;
  #beside = false;
  #hover: [number, number] | undefined;
  readonly #details: HeatmapDetailLoader;
  #cache = new Map<string, { of: unknown; pixels: Pixels }>();
  #table: { key: string; table: Table } | undefined;
  readonly #slice: SliceBar | undefined;

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
    // The explorer's line has no room for the slice.
    if (this.compact) this.#slice = new SliceBar(context);
    if (this.#slice) this.menu.append(this.#slice.el);
    this.menu.append(...this.#colouring);
    this.exports(true, () => ({
      name: `${this.#scene?.traits.tensor}-heatmap-step-${this.#scene?.main?.savedStep}`,
      units: "rows and columns, coloured by value",
      rows: () => this.#rows(),
      python: () => this.#python(),
    }));
    this.figure.canvas.tabIndex = 0;
    context.keys.on(this.figure.canvas, (event) => this.#key(event));
    this.figure.canvas.addEventListener("wheel", (event) => this.#wheel(event), { signal, passive: false });
    this.figure.canvas.addEventListener("dblclick", () => this.#zoom(0.4), { signal });
    this.#second = new Figure("heatmap", context);
    this.#second.el.classList.add("smdw-second");
    const pair = h("div", { class: "smdw-heatmaps" }, this.figure.el, this.#second.el);
    this.body.append(pair);
    for (const figure of [this.figure, this.#second])
      figure.gestures(
        {
          move: (at) => this.#point(figure, at?.x, at?.y),
          down: (start) => this.#drag(figure, start.x, start.y, start.event.shiftKey),
        },
        signal,
      );
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main, compared } = scene;
    const { session, theme } = this.context;
    const colours = theme();
    const subtracting =
      shownView(traits) === "diff" && main !== undefined && compared !== undefined && !differenceFault(main, compared);
    this.#beside = compared !== undefined && !subtracting && compared.frames.plan?.form !== "text";
    this.#slice?.update(scene);
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
    const ofB = compared?.frame?.images.get(key);
    const own = main?.frame?.images.get(key);
    const window = this.#window();
    this.#differences =
      subtracting && matrix
        ? session.store.differences(valueRef(main), valueRef(compared)).filter((each) => showsPlane(each, matrix))
        : undefined;
    const whole = this.#differences?.find(({ head }) => matrix && coversAll(head.image, matrix))?.image;
    const image = subtracting ? (whole ?? this.#estimated(own, ofB)) : own;
    this.#image = image;
    const empty = !matrix || matrix.rows * matrix.cols === 0;
    const [lo, hi] =
      traits.clip.length === 2 && !subtracting
        ? (traits.clip as [number, number])
        : image && main && !image.rgba
          ? subtracting
            ? [image.lo, image.hi]
            : this.#extent(image, key, this.#beside && compared ? [main, compared] : [main], traits.scale_over)
          : [0, 1];
    // The ordinary recedes: what did not change has the colour of the page.
    const diverging = traits.palette === "purple-green" ? traits.palette : "blue-red";
    const palette = subtracting ? diverging : choose(traits.palette, lo, hi);
    const clipped = traits.clip.length === 2 && !subtracting;
    const domain = clipped ? ([lo, hi] as [number, number]) : colourDomain(palette, lo, hi);
    const middle = subtracting ? cssHex(colours.surface) : undefined;
    const tableKey = `${palette}/${colours.dark}/${middle}`;
    if (this.#table?.key !== tableKey) this.#table = { key: tableKey, table: table(palette, colours.dark, middle) };
    const style = `${tableKey}/${domain}`;
    this.#tile =
      main && matrix && !subtracting
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
    const finer = this.#differences?.find(
      ({ head, image: part }) => part && part !== image && this.#inWindow(head.image),
    );
    if (finer?.image && finer.head.image) {
      const covers = [...finer.head.image.rows, ...finer.head.image.cols] as unknown as CellWindow;
      layers.push({ pixels: this.#pixels("part", finer.image, style, domain), covers });
    }
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
      margins: this.#margins(this.figure),
    };
    this.#picture = picture;
    this.figure.paint((pen, size, paint) => drawHeatmap(pen, size, paint, picture), colours);
    setVisible(this.#second.el, this.#beside);
    this.#second.el.parentElement?.classList.toggle("smdw-beside", this.#beside);
    if (this.#beside) this.#drawSecond(scene, picture, ofB, style, domain);
    const status = session.requests.get(subtracting ? "diff" : "tile");
    this.note(status ?? session.requests.get(session.framesSlot("main")));
    this.readout(this.#readoutText());
    const rgba = image?.rgba ?? false;
    this.title(
      subtracting
        ? "A \u2212 B, cell by cell"
        : `${rgba ? "Image" : "Heat map"}${this.#beside ? ": A left, B right" : ""}`,
    );
    for (const tool of [this.#pool.el, ...this.#colouring]) setVisible(tool, !rgba);
    const what = subtracting ? "Difference A minus B" : "Heat map";
    const description = rgba
      ? `Image ${truncate(traits.tensor, 80)}, ${count(matrix?.cols ?? 0)} pixels wide, ${count(matrix?.rows ?? 0)} high.`
      : matrix
        ? `${what} of ${truncate(traits.tensor, 80)}${sliceText(matrix.shape.length, matrix.axes, matrix.fixed)}: ${count(matrix.rows)} rows, ${count(matrix.cols)} columns, colours from ${num(domain[0])} to ${num(domain[1])}.`
        : "Heat map: no data.";
    this.figure.describe(description);
    this.summary(description);
    this.#second.describe(`B: ${description}`);
    if (matrix && !subtracting)
      this.#details.update(scene, {
        matrix,
        window,
        size: this.figure.size,
        pooled: this.#pooled(),
        tile: this.#tile,
        unknown: this.#readoutText().includes(" = ") ? undefined : this.#hover,
      });
  }

  /** Draws B with the colours of A. Without the shape of A, all of it is shown. */
  #drawSecond(
    { compared, traits }: Scene,
    first: HeatmapPicture,
    image: Image | undefined,
    style: string,
    domain: [number, number],
  ) {
    const m = matrixOf(compared, traits.axes, traits.fixed);
    const whole: CellWindow = [0, Math.max(1, m?.rows ?? 1), 0, Math.max(1, m?.cols ?? 1)];
    const same = m !== undefined && m.shape.join() === this.#matrix?.shape.join();
    const picture: HeatmapPicture = {
      ...first,
      layers: image && m ? [{ pixels: this.#pixels("second", image, style, domain), covers: whole }] : [],
      window: same ? first.window : whole,
      hover: same ? first.hover : undefined,
      marked: same ? first.marked : undefined,
      dim: Boolean(compared?.pending),
      emptyMessage: compared && Number.isNaN(compared.savedStep) && compared.frames.plan ? "B is not saved here" : "",
      margins: this.#margins(this.#second),
    };
    this.#second.paint((pen, size, paint) => drawHeatmap(pen, size, paint, picture), this.context.theme());
  }

  #margins(figure: Figure) {
    return this.#beside ? BESIDE[figure === this.figure ? 0 : 1] : MARGINS;
  }

  #box(window: CellWindow, figure = this.figure) {
    return layoutHeatmap(window, figure.size, this.#image?.rgba, this.#margins(figure));
  }

  /** The difference of the pooled values of both frames, computed once. */
  #estimated(a: Image | undefined, b: Image | undefined): Image | undefined {
    const of = [a, b];
    if (this.#estimate?.of.every((each, i) => each === of[i])) return this.#estimate.image;
    this.#estimate = { of, image: estimatedDifference(a, b) };
    return this.#estimate.image;
  }

  #window(): CellWindow {
    const m = this.#matrix;
    if (!m) return [0, 1, 0, 1];
    const zoom = this.context.session.state.get("zoom");
    return zoom.length === 4
      ? clampWindow(zoom as unknown as CellWindow, m.rows, m.cols)
      : [0, Math.max(1, m.rows), 0, Math.max(1, m.cols)];
  }

  #extent(image: Image, key: string, of: readonly TensorView[], over: "steps" | "step"): [number, number] {
    const isCodes = !(image.data instanceof Float32Array);
    const ends = (each: Image): number[] => {
      if (isCodes) return [each.lo, each.hi];
      let lo = Number.POSITIVE_INFINITY;
      let hi = Number.NEGATIVE_INFINITY;
      for (const x of each.data) if (Number.isFinite(x)) [lo, hi] = [Math.min(lo, x), Math.max(hi, x)];
      return [lo, hi];
    };
    const ranges = of.map(({ frames, frame }): number[] => {
      const own = frame?.images.get(key);
      if (over === "step") return own ? ends(own) : ends(image);
      return frames.range(`image/${key}`, (frame) => {
        const each = frame.images.get(key);
        return each && ends(each);
      });
    });
    return [Math.min(...ranges.map(([lo]) => lo as number)), Math.max(...ranges.map(([, hi]) => hi as number))];
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
    if (m && this.#differences) return this.#differenceText(m);
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

  /** Readout of A − B; "≈" while it is estimated from pooled values. */
  #differenceText(m: Matrix): string {
    const exact = this.#differences?.find(({ image, head }) => image && this.#inWindow(head.image));
    const about = exact ? "" : "\u2248 from pooled values   ";
    if (!this.#hover) return this.#image ? `${about}${this.#cellsText()}` : "";
    const [row, col] = this.#hover;
    const part = this.#differences?.find(
      ({ image, head }) => image && head.image && within(head.image.rows, row) && within(head.image.cols, col),
    );
    const image = part?.image ?? this.#image;
    if (!image) return indexText(m, row, col);
    const { rows, cols } = part?.head.image ?? { rows: [0, m.rows] as const, cols: [0, m.cols] as const };
    const [high, wide] = [rows[1] - rows[0], cols[1] - cols[0]];
    const r = Math.floor(((row - rows[0]) / high) * image.height);
    const c = Math.floor(((col - cols[0]) / wide) * image.width);
    const cells = Math.round((high / image.height) * (wide / image.width));
    const value = num(imageValue(image, r * image.width + c), 4);
    return `${about}${indexText(m, row, col)} A \u2212 B \u2248 ${value}${cells > 1 ? `  (largest of about ${count(cells)} cells)` : ""}`;
  }

  #inWindow(image: Difference["head"]["image"]): boolean {
    const [r0, r1, c0, c1] = this.#window();
    return (
      image !== undefined && image.rows[0] <= r0 && image.rows[1] >= r1 && image.cols[0] <= c0 && image.cols[1] >= c1
    );
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

  #point(figure: Figure, x: number | undefined, y: number | undefined) {
    const window = this.#window();
    const next =
      x === undefined || y === undefined || !this.#picture?.layers.length
        ? undefined
        : cellAt(window, this.#box(window, figure), x, y);
    if (jsonEqual(next, this.#hover)) return;
    this.#hover = next;
    this.context.redraw();
  }

  #drag(figure: Figure, x: number, y: number, select: boolean) {
    const start = this.#window();
    const box = this.#box(start, figure);
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

/** Whether an image of a difference is of the whole plane. */
const coversAll = (image: Difference["head"]["image"], m: Matrix): boolean =>
  image !== undefined &&
  image.rows[0] === 0 &&
  image.cols[0] === 0 &&
  image.rows[1] >= m.rows &&
  image.cols[1] >= m.cols;

function numberInput(label: string): HTMLInputElement {
  return h("input", { class: "smdw-input smdw-clip", inputmode: "decimal", "aria-label": label, placeholder: "auto" });
}
