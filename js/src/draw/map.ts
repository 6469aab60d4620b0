/** Draws the cells of the Run Map: rows of coloured pixels, marks of values that are not finite, hatches and dots. */

import { codePosition, codeValue, FLAG, NOT_FINITE_FLAGS } from "../data/survey";
import { type Line, STATE } from "../data/survey-lines";
import { NOT_FINITE } from "../lib/colour";
import { defined } from "../lib/defined";
import { factorText, num } from "../lib/format";
import { type MapPalette, type MapScale, mapPalette, type Rgb, STRONGEST, surpriseStrength } from "../lib/map-colour";
import { Memo } from "../lib/memo";
import type { MapStat } from "../protocol/types";
import type { Theme } from "./theme";

/** A state that lasts, such as dead, in pixels of its line; the end is exclusive. */
export interface LastingMark {
  from: number;
  to: number;
  word: string;
}

export interface MapPicture {
  /** of the rows in view, from top to bottom, each as wide as the canvas in device pixels */
  lines: readonly Line[];
  /** of each line */
  lasting: readonly (LastingMark | undefined)[];
  /** CSS pixels from the top of the canvas to the top of the first row */
  top: number;
  rowHeight: number;
  stat: MapStat;
  /** first and last code of the colour scale */
  domain: readonly [number, number];
  /** CSS size of the canvas, and device pixels of one CSS pixel */
  width: number;
  height: number;
  ratio: number;
}

/** What each statistic is called. */
export const STAT_NAMES: Record<MapStat, string> = {
  growth: "size relative to start",
  surprise: "unusual size",
  size: "size",
  l2: "L2 norm",
  update: "update ratio",
  zeros: "zeros",
  not_finite: "NaN and infinity",
};

const SCALES: Record<MapStat, MapScale> = {
  growth: "diverging",
  surprise: "diverging",
  size: "size",
  l2: "size",
  update: "size",
  zeros: "share",
  not_finite: "share",
};

/** Size of the marks of values that are not finite, in CSS pixels. */
const ONSET = 5;
const LASTING = 4;
/** Width of the mark of a sudden change. */
const SUDDEN = 2;
/** Every mark is at least this wide or high; a line that lasts, at least this high. */
const LEAST = 3;
const LEAST_LINE = 2;
/** The highest rows without a line between them. */
const DENSE = 6;

/** A CSS colour as numbers. */
function rgbOf(colour: string): Rgb {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  if (!probe) return [128, 128, 128];
  probe.fillStyle = colour;
  probe.fillRect(0, 0, 1, 1);
  const [r = 0, g = 0, b = 0] = probe.getImageData(0, 0, 1, 1).data;
  return [r, g, b];
}

export function paletteOf(stat: MapStat, theme: Theme): MapPalette {
  return mapPalette(SCALES[stat], theme.dark, theme.forced ? [rgbOf("Canvas"), rgbOf("CanvasText")] : undefined);
}

export interface Legend {
  table: Uint8Array;
  low: string;
  high: string;
}

/** The colours of a legend, the values at its ends, and what they are. */
export function legendOf(stat: MapStat, theme: Theme, [lo, hi]: readonly [number, number]): Legend {
  const { table } = paletteOf(stat, theme);
  if (stat === "surprise") return { table, low: `\u2212${STRONGEST}`, high: `+${STRONGEST} usual spreads` };
  if (stat === "growth")
    return { table, low: factorText(codePosition(stat, lo)), high: `${factorText(codePosition(stat, hi))} its start` };
  if (SCALES[stat] === "share") return { table, low: "0%", high: "100%" };
  return { table, low: num(codeValue(stat, lo), 2), high: num(codeValue(stat, hi), 2) };
}

/** The colour of NaN. */
export function nanColour(theme: Theme): string {
  return theme.forced ? "Highlight" : `rgb(${NOT_FINITE.nan.join()})`;
}

/**
 * The index of a code in the palette, and how opaque it is: what is not surprising is transparent, so that the ordinary
 * has the colour of the row.
 */
export function shade(stat: MapStat, code: number, n: number, domain: readonly [number, number]): [number, number] {
  if (stat === "surprise") {
    const strength = surpriseStrength(codePosition(stat, code), n);
    return [Math.round(127.5 + 127.5 * strength), Math.min(1, Math.abs(strength) * 4)];
  }
  const t = (code - domain[0]) / Math.max(1, domain[1] - domain[0]);
  return [Math.round(255 * Math.max(0, Math.min(1, t))), 1];
}

export class MapPainter {
  readonly #scratch = document.createElement("canvas");
  #image: ImageData | undefined;
  readonly #tiles = new Memo<[CanvasPattern | null, CanvasPattern | null]>();

  paint(canvas: HTMLCanvasElement, picture: MapPicture, theme: Theme): void {
    const { ratio, lines, rowHeight } = picture;
    const [width, height] = [Math.round(picture.width * ratio), Math.round(picture.height * ratio)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    }
    const c = canvas.getContext("2d");
    if (!c || !width || !height) return;
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, width, height);
    if (!lines.length) return;
    const edges = lines.map((_, i) => Math.round((picture.top + i * rowHeight) * ratio));
    edges.push(Math.round((picture.top + lines.length * rowHeight) * ratio));
    const between = rowHeight > DENSE ? Math.max(1, Math.round(ratio)) : 0;
    c.globalAlpha = theme.dark ? 0.05 : 0.032;
    c.fillStyle = theme.ink;
    for (const [i] of lines.entries()) this.#rect(c, 0, width, edges, i, between);
    c.globalAlpha = 1;
    this.#cells(c, picture, theme, width, edges);
    if (between) for (const [i] of lines.entries()) c.clearRect(0, defined(edges[i + 1]) - between, width, between);
    this.#patterns(c, picture, theme, width, edges, between);
    c.fillStyle = theme.ink;
    for (const [i, line] of lines.entries()) this.#marks(c, line, picture, width, edges, i, between);
    for (const [i, line] of lines.entries()) this.#notFinite(c, line, picture, theme, width, edges, i, between);
    if (theme.contrast && between) {
      c.fillStyle = theme.rule;
      for (const [i] of lines.entries()) c.fillRect(0, defined(edges[i + 1]) - between, width, between);
    }
  }

  #rect(c: CanvasRenderingContext2D, x0: number, x1: number, edges: readonly number[], i: number, between: number) {
    const top = defined(edges[i]);
    c.fillRect(x0, top, x1 - x0, Math.max(1, defined(edges[i + 1]) - top - between));
  }

  #cells(
    c: CanvasRenderingContext2D,
    { lines, stat, domain }: MapPicture,
    theme: Theme,
    width: number,
    edges: readonly number[],
  ) {
    const { table, steps } = paletteOf(stat, theme);
    // Without hues, what is smaller than usual has cells of half the height.
    const parts = steps && SCALES[stat] === "diverging" ? 2 : 1;
    const high = lines.length * parts;
    if (this.#image?.width !== width || this.#image.height !== high) this.#image = new ImageData(width, high);
    const image = this.#image;
    const data = new Uint32Array(image.data.buffer).fill(0);
    // Red is the lowest byte, and opacity the highest.
    const colours = Uint32Array.from(
      { length: 256 },
      (_, i) => (defined(table[3 * i + 2]) << 16) | (defined(table[3 * i + 1]) << 8) | defined(table[3 * i]),
    );
    const [from, span] = [domain[0], Math.max(1, domain[1] - domain[0])];
    lines.forEach((line, row) => {
      const { state, value, n } = line;
      if (!(line.states & (1 << STATE.value))) return;
      for (let p = 0; p < width; p++) {
        if (state[p] !== STATE.value) continue;
        let index = Math.round((255 * (defined(value[p]) - from)) / span);
        let alpha = 1;
        if (stat === "surprise") [index, alpha] = shade(stat, defined(value[p]), defined(n[p]), domain);
        else if (index < 0) index = 0;
        else if (index > 255) index = 255;
        if (alpha === 0) continue;
        const colour = defined(colours[index]) | (Math.round(255 * alpha) << 24);
        for (let part = parts === 2 && index < 128 ? 1 : 0; part < parts; part++)
          data[(row * parts + part) * width + p] = colour;
      }
    });
    const scratch = this.#scratch;
    if (scratch.width !== width) scratch.width = width;
    if (scratch.height !== high) scratch.height = high;
    scratch.getContext("2d")?.putImageData(image, 0, 0);
    c.imageSmoothingEnabled = false;
    const top = defined(edges[0]);
    c.drawImage(scratch, 0, 0, width, high, 0, top, width, defined(edges[lines.length]) - top);
  }

  /** Diagonal lines where nothing was saved, dots where nothing was read, a small mark where reading failed. */
  #patterns(
    c: CanvasRenderingContext2D,
    { lines, ratio }: MapPicture,
    theme: Theme,
    width: number,
    edges: readonly number[],
    between: number,
  ) {
    const [hatch, dots] = this.#tiles.of([c, ratio, theme], () => [
      this.#hatch(c, ratio, theme),
      this.#dots(c, ratio, theme),
    ]);
    const least = Math.round(LEAST * ratio);
    lines.forEach((line, i) => {
      for (const [state, pattern] of [
        [STATE.notSaved, hatch],
        [STATE.unread, dots],
      ] as const) {
        if (!pattern || !(line.states & (1 << state))) continue;
        c.fillStyle = pattern;
        for (const [from, to] of spans(width, (p) => line.state[p] === state))
          this.#rect(c, from, to, edges, i, between);
      }
      if (!(line.flags & FLAG.error)) return;
      c.fillStyle = theme.warn;
      for (const [from, to] of spans(width, (p) => (defined(line.flag[p]) & FLAG.error) > 0)) {
        const [top, bottom] = [defined(edges[i]), defined(edges[i + 1]) - between];
        const tall = Math.min(bottom - top, Math.round(LEAST_LINE * ratio));
        c.fillRect(from, bottom - tall, Math.max(least, to - from), tall);
      }
    });
  }

  #hatch(c: CanvasRenderingContext2D, ratio: number, theme: Theme) {
    return this.#pattern(c, ratio, (p, size) => {
      p.strokeStyle = theme.rule;
      p.globalAlpha = theme.forced || theme.contrast ? 1 : 0.55;
      p.lineWidth = ratio;
      p.beginPath();
      for (const shift of [-size, 0, size]) {
        p.moveTo(shift, size);
        p.lineTo(shift + size, 0);
      }
      p.stroke();
    });
  }

  #dots(c: CanvasRenderingContext2D, ratio: number, theme: Theme) {
    return this.#pattern(c, ratio, (p, size) => {
      p.fillStyle = theme.rule;
      p.fillRect(size / 2, size / 2, ratio, ratio);
    });
  }

  #pattern(c: CanvasRenderingContext2D, ratio: number, draw: (c: CanvasRenderingContext2D, size: number) => void) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = Math.round(5 * ratio);
    const p = tile.getContext("2d");
    if (p) draw(p, tile.width);
    return c.createPattern(tile, "repeat");
  }

  /** A bar where the size changes suddenly, and a line below a state that lasts. */
  #marks(
    c: CanvasRenderingContext2D,
    line: Line,
    { ratio, lasting }: MapPicture,
    width: number,
    edges: readonly number[],
    i: number,
    between: number,
  ) {
    const bar = Math.round(SUDDEN * ratio);
    for (const [from] of line.flags & FLAG.sudden
      ? spans(width, (p) => (defined(line.flag[p]) & FLAG.sudden) > 0, LEAST * bar)
      : [])
      this.#rect(c, from, Math.min(width, from + bar), edges, i, between);
    const mark = lasting[i];
    if (!mark) return;
    const bottom = defined(edges[i + 1]) - between;
    const thin = Math.min(bottom - defined(edges[i]), Math.round(LEAST_LINE * ratio));
    c.fillRect(mark.from, bottom - thin, mark.to - mark.from, thin);
    this.#rect(c, mark.from, Math.min(width, mark.from + Math.round(LEAST * ratio)), edges, i, between);
  }

  /** A block at the first step, then a line that leaves the colours of the finite values in sight. */
  #notFinite(
    c: CanvasRenderingContext2D,
    line: Line,
    { ratio }: MapPicture,
    theme: Theme,
    width: number,
    edges: readonly number[],
    i: number,
    between: number,
  ) {
    if (!(line.flags & NOT_FINITE_FLAGS)) return;
    const onset = Math.round(ONSET * ratio);
    const joined = spans(width, (p) => (defined(line.flag[p]) & NOT_FINITE_FLAGS) > 0, onset);
    const top = defined(edges[i]);
    const height = Math.max(1, defined(edges[i + 1]) - top - between);
    // A row of one pixel has a mark of three.
    const tall = Math.max(height, Math.round(LEAST * ratio));
    const thin = Math.max(Math.min(height, Math.round(LASTING * ratio)), Math.round(LEAST_LINE * ratio));
    c.fillStyle = nanColour(theme);
    for (const [from, to] of joined) {
      const start = Math.min(from, width - onset);
      c.fillRect(start, top - Math.floor((tall - height) / 2), onset, tall);
      c.fillRect(from, top + Math.floor((height - thin) / 2), to - from, thin);
      const infinite = (defined(line.flag[from]) & NOT_FINITE_FLAGS) === FLAG.infinite;
      if (!infinite || height < 9 * ratio) continue;
      c.fillStyle = "#fff";
      c.beginPath();
      const [x, y] = [start + onset / 2, top + 2 * ratio];
      c.moveTo(x, y);
      c.lineTo(x + 2 * ratio, y + 4 * ratio);
      c.lineTo(x - 2 * ratio, y + 4 * ratio);
      c.fill();
      c.fillStyle = nanColour(theme);
    }
  }
}

/** Ranges of pixels, the end exclusive; those closer than `near` are joined. */
function spans(width: number, has: (pixel: number) => boolean, near = 0): [number, number][] {
  const out: [number, number][] = [];
  for (let p = 0; p < width; p++) {
    if (!has(p)) continue;
    const last = out.at(-1);
    if (last && p - last[1] <= near) last[1] = p + 1;
    else out.push([p, p + 1]);
  }
  return out;
}
