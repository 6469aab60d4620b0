/** The cell of the Run Map that keys move from, which is also what a screen reader reads. */

import { nearestIndex } from "../../data/frames";
import type { Survey } from "../../data/survey";
import { defined } from "../../lib/defined";
import { focusedNear, h, setAttributes, setText, setVisible } from "../../lib/dom";
import type { MapRow } from "../../lib/map-rows";
import { lowerIndex } from "../../lib/sorted";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import type { MapList } from "./list";
import type { CellPositions } from "./positions";
import type { MapScroll } from "./scroll";
import { cellText, rowText } from "./text";
import type { MapZoom } from "./zoom";

let ids = 0;

export class MapCursor {
  /** has the keyboard's focus */
  readonly grid: HTMLElement;
  readonly frame = h("div", { class: "smdw-map-focus", hidden: true });
  readonly #cell: HTMLElement;
  /** the key of a row, and a step */
  #active: { key: string; step: number } | undefined;
  /** the index of that row when it was last looked for */
  #at = 0;
  #scene: Scene | undefined;

  constructor(
    private readonly context: Context,
    private readonly list: MapList,
    private readonly scroll: MapScroll,
    private readonly positions: CellPositions,
    private readonly zoom: MapZoom,
  ) {
    const id = `smdw-map-${ids++}`;
    this.#cell = h("span", { role: "gridcell", id });
    this.grid = h(
      "div",
      { class: "smdw-map-grid", role: "grid", tabindex: 0, "aria-label": "Run map", "aria-activedescendant": id },
      h("div", { class: "smdw-sr", role: "row" }, this.#cell),
    );
    const { signal } = context;
    for (const type of ["focus", "blur"]) this.grid.addEventListener(type, () => context.redraw(), { signal });
  }

  /** The key of the row. */
  get row(): string | undefined {
    return this.#active?.key;
  }

  /** Whether the map has the focus. */
  get focused(): boolean {
    return focusedNear(this.grid) === this.grid;
  }

  /** Without a step, it stays at its own. */
  set(row: MapRow, step = this.#active?.step ?? this.#scene?.step ?? Number.NaN): void {
    this.#active = { key: row.key, step };
  }

  update(scene: Scene, survey: Survey | undefined): void {
    this.#scene = scene;
    const { rows, rowHeight } = this.list;
    if (!rows.length) return;
    let i = this.#find();
    if (i < 0) {
      i = Math.max(
        0,
        rows.findIndex((row) => row.letter !== "" && row.id === scene.traits.tensor),
      );
      this.set(rows[i] as MapRow, scene.step);
    }
    const row = rows[i] as MapRow;
    const step = Number.isNaN(this.#active?.step) ? 0 : (this.#active?.step ?? 0);
    const place = this.positions.at(row, step);
    const text = place ? cellText(this.context.session.store, scene.traits.run, survey, place) : "no step saved";
    setAttributes(this.grid, { "aria-rowcount": rows.length, "aria-colcount": Math.max(1, scene.axis.steps.length) });
    setAttributes(this.#cell.parentElement as HTMLElement, { "aria-rowindex": i + 1 });
    setAttributes(this.#cell, {
      "aria-colindex": Math.max(0, nearestIndex(scene.axis.steps, step)) + 1,
      "aria-expanded": row.open === undefined ? undefined : String(row.open),
    });
    const spoken = place ? rowText(place) : row.id;
    setText(this.#cell, `${spoken}, ${text}`.replaceAll(" \u00b7 ", ", "));
    setVisible(this.frame, this.focused && place !== undefined);
    if (!place) return;
    const { stepAxis: axis } = scene;
    const half = Math.max(2, (axis.x(1) - axis.x(0)) / 2);
    const [x0, x1] = [axis.x(place.first) - half - axis.left, axis.x(place.last) + half - axis.left];
    this.frame.style.transform = `translate(${x0}px, ${this.scroll.y(i)}px)`;
    this.frame.style.width = `${x1 - x0}px`;
    this.frame.style.height = `${Math.max(3, rowHeight - 1)}px`;
  }

  /** The index of its row; -1: there is none. */
  #find(): number {
    const { rows } = this.list;
    const key = this.#active?.key;
    if (rows[this.#at]?.key !== key) this.#at = rows.findIndex((row) => row.key === key);
    return this.#at;
  }

  /** `choose`: called with the row and step for Enter. */
  key(event: KeyboardEvent, choose: (row: MapRow, step: number) => void): boolean {
    const scene = this.#scene;
    const { rows, rowHeight } = this.list;
    const active = this.#active;
    if (!scene || !active || !rows.length) return false;
    const i = Math.max(0, this.#find());
    const row = rows[i] as MapRow;
    const page = Math.max(1, Math.floor(this.scroll.height / rowHeight) - 1);
    const vertical: Record<string, number> = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page };
    const by = vertical[event.key];
    const { steps } = scene.axis;
    if (by !== undefined) this.#moveTo(i + by, active.step);
    else if (event.key === "Home") this.#moveTo(event.shiftKey ? 0 : i, steps[0] ?? 0);
    else if (event.key === "End") this.#moveTo(event.shiftKey ? rows.length - 1 : i, steps.at(-1) ?? 0);
    else if (event.key === "ArrowLeft") this.#moveBy(-1, i, row, active.step);
    else if (event.key === "ArrowRight") this.#moveBy(1, i, row, active.step);
    else if (event.key === "Enter") choose(row, active.step);
    else return false;
    return true;
  }

  /** Moves to the cell before or after that of a step. */
  #moveBy(by: -1 | 1, i: number, row: MapRow, step: number) {
    const place = this.positions.at(row, step);
    const { steps } = this.positions;
    if (!place) return;
    const at = by < 0 ? lowerIndex(steps, place.first) - 1 : lowerIndex(steps, place.last) + 1;
    this.#moveTo(i, defined(steps[Math.max(0, Math.min(steps.length - 1, at))]));
  }

  #moveTo(i: number, step: number) {
    const { rows } = this.list;
    const to = Math.max(0, Math.min(rows.length - 1, i));
    this.set(rows[to] as MapRow, step);
    this.scroll.toRow(to);
    this.zoom.toStep(step);
    this.context.redraw();
  }
}
