/** A tensor as colours: its pooled image, sharper parts of it, B at its right, or A − B. */

import { finiteness } from "../../data/frames";
import { matrixOf, tileImage } from "../../data/matrix";
import { BESIDE, drawHeatmap, type HeatmapPicture, type Layer, layoutHeatmap, MARGINS } from "../../draw/heatmap";
import { field, focusedNear, h, iconButton, Select, setVisible, Toggle, textButton } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { count, num, plural, truncate } from "../../lib/format";
import { PALETTES } from "../../lib/palette";
import type { Pool } from "../../protocol/types";
import { framesSlot } from "../../session/connection";
import { pythonValue, sliceText } from "../../session/python-code";
import type { Scene } from "../../session/scene";
import { Figure } from "../common/figure";
import { emptyReason } from "../common/frame-text";
import { PicturePanel } from "../common/panel";
import type { Context } from "../common/part";
import { HeatmapColours } from "./colours";
import { cellsOf, coversWindow, type HeatmapContent, HeatmapContents, isPooled, wholeOf } from "./content";
import { HeatmapDetailLoader } from "./detail-loader";
import { HeatmapPointer } from "./pointer";
import { SliceBar } from "./slice-bar";
import { exactValue, fileRows, POOLS, readoutText } from "./text";

export class HeatmapPanel extends PicturePanel {
  readonly #palette: Select;
  readonly #pool: Select;
  readonly #over: Toggle;
  readonly #lo = numberInput("Range minimum");
  readonly #hi = numberInput("Range maximum");
  /** controls that do not apply to a logged image */
  readonly #colouring: HTMLElement[];
  readonly #contents: HeatmapContents;
  readonly #colours = new HeatmapColours();
  readonly #pointer: HeatmapPointer;
  readonly #details: HeatmapDetailLoader;
  /** B, beside A */
  readonly #second: Figure;
  readonly #slice: SliceBar | undefined;
  #content: HeatmapContent | undefined;

  constructor(context: Context) {
    super("heatmap", "Heat map", context);
    const { signal, session } = context;
    const { state } = session;
    this.#contents = new HeatmapContents(session.store);
    this.#details = new HeatmapDetailLoader(session, signal);
    this.#second = new Figure("heatmap", context);
    this.#pointer = new HeatmapPointer(context, this.figure, this.#second, (window, figure) =>
      layoutHeatmap(window, figure.size, this.#content?.image?.rgba, this.#margins(figure)),
    );
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
      iconButton("plus", "Zoom in", () => this.#pointer.zoom(0.5), signal),
      iconButton("minus", "Zoom out", () => this.#pointer.zoom(2), signal),
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
      name: `${this.#content?.scene.traits.tensor}-heatmap-step-${this.#content?.scene.main?.savedStep}`,
      units: "rows and columns, coloured by value",
      rows: () => this.#content && fileRows(this.#content),
      python: () => this.#python(),
    }));
    this.#second.el.classList.add("smdw-second");
    this.body.append(h("div", { class: "smdw-heatmaps" }, this.figure.el, this.#second.el));
  }

  update(scene: Scene): void {
    const { session } = this.context;
    const theme = this.context.theme();
    const content = this.#contents.of(scene);
    this.#content = content;
    this.#colours.update(content, theme);
    this.#updateControls(scene);
    const picture = this.#picture(content);
    this.#pointer.update(content, picture.layers.length > 0);
    this.figure.paint((pen, size, paint) => drawHeatmap(pen, size, paint, picture), theme);
    setVisible(this.#second.el, content.beside);
    this.#second.el.parentElement?.classList.toggle("smdw-beside", content.beside);
    if (content.beside) {
      const second = this.#secondPicture(content, picture);
      this.#second.paint((pen, size, paint) => drawHeatmap(pen, size, paint, second), theme);
    }
    const status = session.connection.requests.get(content.subtracting ? "diff" : "tile");
    this.note(status ?? session.connection.requests.get(framesSlot("main")));
    this.#describe(content);
    const { matrix, window, tile } = content;
    const { hover } = this.#pointer;
    const known = hover && exactValue(content, session.store, hover) !== undefined;
    if (matrix && !content.subtracting)
      this.#details.update(scene, {
        matrix,
        window,
        size: this.figure.size,
        pooled: isPooled(content),
        tile,
        unknown: known ? undefined : hover,
      });
  }

  #updateControls(scene: Scene) {
    const { traits, main } = scene;
    this.#slice?.update(scene);
    // A logged histogram is not a matrix.
    setVisible(this.el, main?.frames.plan?.form !== "histogram");
    this.#pool.update(POOLS, traits.pool);
    this.#palette.update(
      PALETTES.map((name) => [name, name] as const),
      traits.palette,
    );
    this.#over.update(traits.scale_over === "steps");
    if (this.el.contains(focusedNear(this.el))) return;
    this.#lo.value = traits.clip.length ? String(traits.clip[0]) : "";
    this.#hi.value = traits.clip.length ? String(traits.clip[1]) : "";
  }

  #picture(content: HeatmapContent): HeatmapPicture {
    const { scene, matrix, window, image, differences } = content;
    const { traits, main } = scene;
    const colours = this.#colours;
    const layers: Layer[] = [];
    if (image && matrix && matrix.rows * matrix.cols)
      layers.push({ pixels: colours.pixels("frame", image), covers: wholeOf(matrix) });
    const tile = content.tile && tileImage(content.tile);
    if (tile && content.tile) layers.push({ pixels: colours.pixels("tile", tile), covers: cellsOf(content.tile.head) });
    const finer = differences?.find(
      ({ head, image: part }) => part && part !== image && coversWindow(head.image, window),
    );
    if (finer?.image && finer.head.image)
      layers.push({ pixels: colours.pixels("part", finer.image), covers: cellsOf(finer.head.image) });
    const [lo, hi] = colours.range;
    return {
      layers,
      window,
      table: colours.table,
      domain: colours.domain,
      blank: !(lo < hi) && finiteness(main?.frame).finite === 0,
      rgba: image?.rgba ?? false,
      hover: this.#pointer.hover,
      marked: traits.selection.kind === "cells" ? cellsOf(traits.selection) : undefined,
      dim: Boolean(main?.pending),
      emptyMessage: emptyReason(scene, "heat map"),
      margins: this.#margins(this.figure),
    };
  }

  /** B with the colours of A. Without the shape of A, all of it is shown. */
  #secondPicture({ scene, matrix, second }: HeatmapContent, first: HeatmapPicture): HeatmapPicture {
    const { compared, traits } = scene;
    const m = matrixOf(compared, traits.axes, traits.fixed);
    const whole = wholeOf(m);
    const same = m !== undefined && equal(m.shape, matrix?.shape);
    return {
      ...first,
      layers: second && m ? [{ pixels: this.#colours.pixels("second", second), covers: whole }] : [],
      window: same ? first.window : whole,
      hover: same ? first.hover : undefined,
      marked: same ? first.marked : undefined,
      dim: Boolean(compared?.pending),
      emptyMessage: compared && Number.isNaN(compared.savedStep) && compared.frames.plan ? "B is not saved here" : "",
      margins: this.#margins(this.#second),
    };
  }

  #margins(figure: Figure) {
    return this.#content?.beside ? BESIDE[figure === this.figure ? 0 : 1] : MARGINS;
  }

  #describe(content: HeatmapContent) {
    const { matrix, subtracting, beside } = content;
    const { tensor } = content.scene.traits;
    const rgba = content.image?.rgba ?? false;
    const { domain } = this.#colours;
    this.readout(readoutText(content, this.context.session.store, this.#pointer.hover));
    this.title(
      subtracting ? "A \u2212 B, cell by cell" : `${rgba ? "Image" : "Heat map"}${beside ? ": A left, B right" : ""}`,
    );
    for (const tool of [this.#pool.el, ...this.#colouring]) setVisible(tool, !rgba);
    const what = subtracting ? "Difference A minus B" : "Heat map";
    const description = rgba
      ? `Image ${truncate(tensor, 80)}, ${count(matrix?.cols ?? 0)} pixels wide, ${count(matrix?.rows ?? 0)} high.`
      : matrix
        ? `${what} of ${truncate(tensor, 80)}${sliceText(matrix.shape.length, matrix.axes, matrix.fixed)}: ${plural(matrix.rows, "row")}, ${plural(matrix.cols, "column")}, colours from ${num(domain[0])} to ${num(domain[1])}.`
        : "Heat map: no data.";
    this.figure.describe(description);
    this.summary(description);
    this.#second.describe(`B: ${description}`);
  }

  #python(): string {
    const { matrix: m, window, scene } = this.#content ?? {};
    const [r0, r1, c0, c1] = window ?? [0, 1, 0, 1];
    const cut =
      scene?.traits.zoom.length === 4 ? [Math.floor(r0), Math.ceil(r1), Math.floor(c0), Math.ceil(c1)] : undefined;
    return `${pythonValue(this.context.session, scene?.main)}${m ? sliceText(m.shape.length, m.axes, m.fixed, cut) : ""}`;
  }
}

function numberInput(label: string): HTMLInputElement {
  return h("input", { class: "smdw-input smdw-clip", inputmode: "decimal", "aria-label": label, placeholder: "auto" });
}
