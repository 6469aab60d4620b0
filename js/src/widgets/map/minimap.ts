import { hasNotFinite, type Summary } from "../../data/survey-summary";
import { nanColour, paletteOf, shade } from "../../draw/map";
import type { Theme } from "../../draw/theme";
import { defined } from "../../lib/defined";
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
    const { height: pixels } = canvas;
    const each = pixels / Math.max(1, rows.length);
    const least = Math.round(2 * ratio);
    // The worst of the rows that share a pixel is drawn.
    const [row, score, notFinite] = [new Int32Array(pixels), new Float32Array(pixels).fill(-1), new Uint8Array(pixels)];
    const [code, n] = [new Float32Array(rows.length), new Float32Array(rows.length)];
    for (const [i, { tensors }] of rows.entries()) {
      let worst = -1;
      let flag = 0;
      for (const tensor of tensors) {
        flag |= summary.flag[tensor] ?? 0;
        n[i] = defined(n[i]) + (summary.n[tensor] ?? 0);
        const own = summary.score[tensor] ?? -1;
        if (own <= worst) continue;
        worst = own;
        code[i] = summary.code[tensor] ?? 0;
      }
      const top = Math.floor(i * each);
      const start = Math.min(top, pixels - least);
      const end = start + Math.max(least, Math.ceil((i + 1) * each) - top);
      for (let y = Math.max(0, start); y < Math.min(pixels, end); y++) {
        if (hasNotFinite(flag)) notFinite[y] = 1;
        if (worst <= defined(score[y])) continue;
        score[y] = worst;
        row[y] = i;
      }
    }
    for (let y = 0; y < pixels; y++) {
      const i = defined(row[y]);
      const [index, alpha] = shade(stat, defined(code[i]), defined(n[i]), domain);
      if (!notFinite[y] && (defined(score[y]) < 0 || !defined(code[i]))) continue;
      c.globalAlpha = notFinite[y] ? 1 : alpha;
      c.fillStyle = notFinite[y]
        ? nanColour(theme)
        : `rgb(${table[3 * index]},${table[3 * index + 1]},${table[3 * index + 2]})`;
      c.fillRect(0, y, canvas.width, 1);
    }
    c.globalAlpha = 1;
  }
}
