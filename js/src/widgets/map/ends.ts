/** How each row in sight ends, in a word beside the Run Map: dead, NaN, ×10⁶. */

import { FLAG, NOT_FINITE_FLAGS } from "../../data/survey";
import type { Line } from "../../data/survey-lines";
import type { LastingMark } from "../../draw/map";
import { defined } from "../../lib/defined";
import { h, setText } from "../../lib/dom";
import type { MapStat } from "../../protocol/types";
import { lastPixel } from "./lasting";
import { shortValue } from "./text";

/** Lower rows have no room for a word. */
const LEAST_ROW = 12;

export interface RowEnd {
  /** upper edge in the map */
  y: number;
  line: Line;
  mark: LastingMark | undefined;
}

export class MapEnds {
  readonly el = h("div", { class: "smdw-map-ends", "aria-hidden": "true" });
  readonly #pool: HTMLElement[] = [];

  /** `end`: the pixel of the lines behind the last one in view. */
  update(
    rows: readonly RowEnd[],
    end: number,
    rowHeight: number,
    stat: MapStat,
    domain: readonly [number, number],
  ): void {
    const shown = rowHeight < LEAST_ROW ? [] : rows;
    const used = shown.map(({ y, line, mark }, i) => {
      const el = this.#pool[i] ?? h("span", {});
      this.#pool[i] = el;
      const [word, kind] = endOf(line, end, mark, stat, domain);
      setText(el, word);
      el.className = kind;
      el.style.transform = `translateY(${y}px)`;
      el.style.lineHeight = `${rowHeight}px`;
      return el;
    });
    if (this.el.childElementCount !== used.length) this.el.replaceChildren(...used);
  }
}

function endOf(
  line: Line,
  end: number,
  mark: LastingMark | undefined,
  stat: MapStat,
  domain: readonly [number, number],
): [string, string] {
  const last = lastPixel(line, end, NOT_FINITE_FLAGS);
  if (last < 0) return ["", ""];
  const flag = defined(line.flag[last]);
  if (flag & NOT_FINITE_FLAGS) return [flag & FLAG.nan ? "NaN" : "Inf", "smdw-end-nan"];
  if (mark && mark.to > last) return [mark.word, "smdw-end-state"];
  const code = defined(line.value[last]);
  return [shortValue(stat, code), stat === "growth" && (code < domain[0] || code > domain[1]) ? "smdw-end-state" : ""];
}
