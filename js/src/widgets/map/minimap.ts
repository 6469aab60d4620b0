import { hasNotFinite, type Summary } from "../../data/survey-summary";
import { nanColour, paletteOf, shade } from "../../draw/map";
import type { Theme } from "../../draw/theme";
import { capturePointer, h } from "../../lib/dom";
import type { MapRow } from "../../lib/map-rows";
import { Memo } from "../../lib/memo";
import type { MapStat } from "../../protocol/types";

const BAR = 12;
const LEFT = 48;

export interface MinimapPicture {
  rows: readonly MapRow[];
  summary: Summary;
  stat: MapStat;
  domain: readonly [number, number];
  /** shares of all rows that are in view */
  from: number;
  to: number;
  height: number;
}

/** All rows beside the map, each as its worst value. A drag scrolls. */
export class Minimap {
  readonly el = h("div", { class: "smdw-map-mini", "aria-hidden": "true" });
  readonly #canvas = h("canvas");
  readonly #frame = h("div", { class: "smdw-map-frame" });
  readonly #drawn = new Memo();

  /** `scroll`: called with the share of the rows that is to be in the middle. */
  constructor(scroll: (share: number) => void, signal: AbortSignal) {
    this.el.append(this.#canvas, this.#frame);
    const go = (event: PointerEvent) => {
      const box = this.el.getBoundingClientRect();
      scroll((event.clientY - box.top) / Math.max(1, box.height));
    };
    this.el.addEventListener(
      "pointerdown",
      (event) => {
        if (event.button !== 0) return;
        event.preventDefault();
        capturePointer(this.el, event);
        go(event);
      },
      { signal },
    );
    this.el.addEventListener("pointermove", (event) => event.buttons & 1 && go(event), { signal });
  }

  update(picture: MinimapPicture, theme: Theme, ratio: number, paint: (draw: () => void) => void): void {
    const { from, to, height } = picture;
    const all = from <= 0 && to >= 1;
    this.#frame.hidden = all;
    this.#frame.style.transform = `translateY(${from * height}px)`;
    this.#frame.style.height = `${Math.max(6, (to - from) * height)}px`;
    if (!this.#drawn.changed([picture.rows, picture.summary, picture.stat, ...picture.domain, height, theme, ratio]))
      return;
    paint(() => this.#paint(picture, theme, ratio));
  }

  #paint({ rows, summary, stat, domain, height }: MinimapPicture, theme: Theme, ratio: number) {
    const canvas = this.#canvas;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(BAR * ratio);
    canvas.height = Math.max(1, Math.round(height * ratio));
    canvas.style.left = `${LEFT}px`;
    canvas.style.width = `${BAR}px`;
    const c = canvas.getContext("2d");
    if (!c) return;
    c.globalAlpha = theme.dark ? 0.05 : 0.032;
    c.fillStyle = theme.ink;
    c.fillRect(0, 0, canvas.width, canvas.height);
    c.globalAlpha = 1;
    const { table } = paletteOf(stat, theme);
    const each = canvas.height / Math.max(1, rows.length);
    const least = Math.round(2 * ratio);
    const mark = (i: number, fill: string) => {
      c.fillStyle = fill;
      const top = Math.floor(i * each);
      c.fillRect(
        0,
        Math.min(top, canvas.height - least),
        canvas.width,
        Math.max(least, Math.ceil((i + 1) * each) - top),
      );
    };
    const notFinite: number[] = [];
    // The worst are drawn last, over their neighbours.
    const marks = rows.flatMap((row, i) => {
      let worst = -1;
      let flag = 0;
      let n = 0;
      for (const tensor of row.tensors) {
        flag |= summary.flag[tensor] ?? 0;
        n += summary.n[tensor] ?? 0;
        if (worst < 0 || (summary.score[tensor] ?? 0) > (summary.score[worst] ?? 0)) worst = tensor;
      }
      if (hasNotFinite(flag)) notFinite.push(i);
      const code = summary.code[worst] ?? 0;
      if (!code) return [];
      const [index, alpha] = shade(stat, code, n, domain);
      return alpha ? [{ i, index, alpha, score: summary.score[worst] ?? 0 }] : [];
    });
    for (const { i, index, alpha } of marks.sort((a, b) => a.score - b.score)) {
      c.globalAlpha = alpha;
      mark(i, `rgb(${table[3 * index]},${table[3 * index + 1]},${table[3 * index + 2]})`);
    }
    c.globalAlpha = 1;
    for (const i of notFinite) mark(i, nanColour(theme));
  }
}
