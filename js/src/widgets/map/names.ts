/** The names of the rows in sight, with their badges, beside the Run Map. */

import { defined } from "../../lib/defined";
import { focusedNear, h, setAttributes } from "../../lib/dom";
import { count } from "../../lib/format";
import type { MapRow } from "../../lib/map-rows";
import { Memo } from "../../lib/memo";
import type { Traits } from "../../protocol/types";
import type { Session } from "../../session/session";
import type { Badges, MapList } from "./list";
import type { MapScroll } from "./scroll";
import { nameElement } from "./text";

/** Height of a name. Lower rows are those of a map of all rows, which names modules only. */
export const ROW = 14;

export class MapNames {
  readonly el = h("div", { class: "smdw-map-names", "aria-hidden": "true" });
  readonly #pool: HTMLElement[] = [];
  readonly #drawn = new Memo();

  constructor(
    private readonly session: Session,
    private readonly list: MapList,
    private readonly scroll: MapScroll,
  ) {}

  /** `active`: the key of the row that keys move from. */
  update({ run, tensor }: Traits, active: string | undefined): void {
    const { rows, rowHeight, version } = this.list;
    const { top, height } = this.scroll;
    const fit = rowHeight < ROW;
    if (!this.#drawn.changed([rows, version, rowHeight, top, height, tensor, active, focusedNear(this.el)])) return;
    const [first, last] = this.scroll.range();
    const shown = fit ? this.#labelled(first, last) : Array.from({ length: last - first }, (_, i) => first + i);
    const used = shown.map((i, k) => {
      const el = this.#pool[k] ?? h("div", { class: "smdw-map-row" });
      this.#pool[k] = el;
      el.style.transform = `translateY(${this.scroll.y(i)}px)`;
      el.style.height = fit ? `${ROW}px` : `${rowHeight}px`;
      this.#fill(el, rows[i] as MapRow, run, tensor, fit);
      return el;
    });
    if (this.el.childElementCount !== used.length) this.el.replaceChildren(...used);
  }

  /** In a map of all rows, the first of each module that has room for its name. */
  #labelled(first: number, last: number): number[] {
    const { rows, model, rowHeight } = this.list;
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

  #fill(el: HTMLElement, row: MapRow, run: number, tensor: string, fit: boolean) {
    const { session } = this;
    const { model } = this.list;
    const name = fit ? model.short(model.moduleOf(defined(row.tensors[0]))?.id ?? row.id) : row.label;
    // A folded module stands for its tensors.
    const chosen = model.indexOf(tensor);
    const selected = !fit && (row.letter ? row.id === tensor : !row.open && row.tensors.includes(chosen));
    const absent = row.letter !== "" && session.exported && !session.store.hasPictures(run, row.id);
    const badges = fit ? { notFinite: "", fired: 0 } : this.list.badges(row);
    const state = `${row.key}|${name}|${selected}|${row.open}|${row.tensors.length}|${badges.notFinite}|${badges.fired}|${absent}`;
    if (el.dataset.state === state) return;
    el.dataset.state = state;
    const module = row.letter === "" || fit;
    el.className = `smdw-map-row${module ? " smdw-map-module" : ""}${row.level ? " smdw-map-member" : ""}${selected ? " smdw-map-selected" : ""}${absent ? " smdw-absent" : ""}`;
    setAttributes(el, { title: `${row.id}${absent ? "\nNot in this file: statistics only" : ""}` });
    el.replaceChildren(
      h("span", { class: "smdw-map-mark" }, fit ? "" : row.letter || (row.open ? "\u25be" : "\u25b8")),
      nameElement(name),
      ...badgeElements(badges, row),
      ...(absent ? [h("span", { class: "smdw-absent-mark" }, "\u25cb")] : []),
      ...(row.letter === "" && !fit ? [h("span", { class: "smdw-map-size" }, count(row.tensors.length))] : []),
    );
  }
}

/** A module that is open leaves the firings to its tensors. */
function badgeElements({ notFinite, fired }: Badges, row: MapRow): HTMLElement[] {
  return [
    ...(notFinite ? [h("span", { class: "smdw-map-nan" }, notFinite)] : []),
    ...(fired && !row.open ? [h("span", { class: "smdw-map-fired" }, `\u25b2 ${count(fired)}`)] : []),
  ];
}
