/** Draws the histograms of all steps as a heat strip (one column per step) or as ridges (one outline per step). */

import { type Frame, type Histogram, lastAtOrBefore } from "../data/frames";
import { defined } from "../lib/defined";
import { num } from "../lib/format";
import type { Table } from "../lib/palette";
import { linear, type Scale } from "../lib/scale";
import type { StepAxis } from "../lib/step-axis";
import { type Box, bottomAxis, leftAxis, message } from "./axes";
import { valueScale } from "./histogram";
import { drawNotFinite, type NotFiniteRange, notFiniteColour } from "./not-finite";
import { crisp, line, type Pen, type Pixels, type Size } from "./pen";
import type { Theme } from "./theme";

export interface HistoryPicture {
  /** frames with a histogram, ascending by step */
  frames: readonly Frame[];
  /** steps at which the tensor has values that are not finite */
  notFinite: readonly NotFiniteRange[];
  key: string;
  domain: [number, number];
  range: [number, number];
  step: number;
  table: Table;
  label(step: number): string;
  /** changes with the data; the strip is recomputed only then */
  version: string;
  emptyMessage: string;
}

export interface HistoryLayout {
  box: Box;
  x: Scale;
  y: Scale;
}

export function layoutHistory(picture: HistoryPicture, size: Size, ridge: boolean): HistoryLayout | undefined {
  const first = picture.frames[0]?.histograms.get(picture.key);
  if (!first) return undefined;
  const box = { x: 52, y: 8, width: Math.max(20, size.width - 62), height: Math.max(20, size.height - 34) };
  if (ridge)
    return {
      box,
      x: valueScale(first, picture.domain, [box.x, box.x + box.width]),
      y: linear(picture.range[0], picture.range[1], [box.y + 36, box.y + box.height - 1]),
    };
  return {
    box,
    x: linear(picture.range[0], picture.range[1], [box.x, box.x + box.width]),
    y: valueScale(first, picture.domain, [box.y + box.height, box.y]),
  };
}

/** The layout of a strip on the shared axis. */
export function layoutStripLane(picture: HistoryPicture, axis: StepAxis, box: Box): HistoryLayout | undefined {
  const first = picture.frames[0]?.histograms.get(picture.key);
  if (!first) return undefined;
  return {
    box,
    x: linear(axis.from, axis.to, [axis.left, axis.right]),
    y: valueScale(first, picture.domain, [box.y + box.height, box.y]),
  };
}

/** Colours the share of finite values per pixel row by its square root, so that sparse tails stay visible. */
export function stripPixels(picture: HistoryPicture, layout: HistoryLayout): Pixels {
  const width = Math.max(1, Math.round(layout.box.width));
  const height = Math.max(1, Math.round(layout.box.height));
  const data = new Uint8ClampedArray(width * height * 4);
  const steps = picture.frames.map((frame) => frame.step);
  const { table } = picture;
  let column: Float64Array | undefined;
  let last: Histogram | undefined;
  for (let px = 0; px < width; px++) {
    const step = layout.x.invert(layout.box.x + px + 0.5);
    const i = lastAtOrBefore(steps, step);
    const hist = i < 0 ? undefined : picture.frames[i]?.histograms.get(picture.key);
    if (!hist) continue;
    if (hist !== last) {
      column = densities(hist, layout.y, layout.box.y, height);
      last = hist;
    }
    for (let py = 0; py < height; py++) {
      const density = defined(column?.[py]);
      if (!(density > 0)) continue;
      const colour = 3 * Math.max(8, Math.min(255, Math.round(255 * Math.sqrt(density))));
      const at = 4 * (py * width + px);
      data[at] = defined(table[colour]);
      data[at + 1] = defined(table[colour + 1]);
      data[at + 2] = defined(table[colour + 2]);
      data[at + 3] = 255;
    }
  }
  return { data, width, height };
}

/** The largest count of a bin, at least 1. */
function largest({ counts }: Histogram): number {
  let most = 1;
  for (let b = 0; b < counts.length; b++) most = Math.max(most, defined(counts[b]));
  return most;
}

/** Largest count of the bins that touch each pixel row, relative to the largest bin. */
function densities(hist: Histogram, y: Scale, top: number, height: number): Float64Array {
  const out = new Float64Array(height);
  const most = largest(hist);
  for (let b = 0; b < hist.counts.length; b++) {
    const count = defined(hist.counts[b]);
    if (!count) continue;
    const y1 = Math.max(0, Math.floor(y(defined(hist.edges[b + 1])) - top));
    const y0 = Math.min(height - 1, Math.max(y1, Math.ceil(y(defined(hist.edges[b])) - top) - 1));
    for (let py = y1; py <= y0; py++) out[py] = Math.max(defined(out[py]), count / most);
  }
  return out;
}

const LINES: readonly (readonly [number, number])[] = [
  [5, 0.55],
  [50, 1],
  [95, 0.55],
];

/** Draws the strip between given edges, without a step axis. */
export function drawStripLane(
  pen: Pen,
  theme: Theme,
  picture: HistoryPicture,
  layout: HistoryLayout,
  pixels: Pixels,
): void {
  const { box, x, y } = layout;
  pen.image(pixels, box.x, box.y, box.width, box.height);
  pen.clip(box.x, box.y, box.width, box.height, () => percentileLines(pen, layout, picture, theme));
  drawNotFinite(pen, picture.notFinite, box, x, theme, { top: true, label: false, lasting: true });
  const ends = [y.domain[1], y.domain[0]].map((value) => num(value, 2));
  ends.forEach((text, i) => {
    pen.text(box.x - 8, i ? box.y + box.height - 4 : box.y + 5, text, {
      fill: theme.ink2,
      align: "right",
      baseline: "middle",
      size: 10,
    });
  });
}

export function drawStrip(
  pen: Pen,
  size: Size,
  theme: Theme,
  picture: HistoryPicture,
  pixels: Pixels | undefined,
): void {
  const layout = layoutHistory(picture, size, false);
  if (!layout || !pixels) return message(pen, size.width, size.height, picture.emptyMessage, theme, "plane");
  const { box, x, y } = layout;
  pen.cached([pixels, picture.notFinite, ...picture.domain, ...picture.range], (paper) => {
    paper.image(pixels, box.x, box.y, box.width, box.height);
    paper.clip(box.x, box.y, box.width, box.height, () => percentileLines(paper, layout, picture, theme));
    drawNotFinite(paper, picture.notFinite, box, x, theme, { top: true });
    leftAxis(paper, box, y, theme, { grid: false });
    bottomAxis(paper, box, x, theme, "step");
  });
  cursor(pen, box, x(picture.step), theme);
}

function percentileLines(pen: Pen, { x, y }: HistoryLayout, picture: HistoryPicture, theme: Theme) {
  for (const [q, opacity] of LINES) {
    const points: number[] = [];
    for (const frame of picture.frames) {
      const value = frame.percentiles?.values[frame.percentiles.q.indexOf(q)];
      const log = frame.histograms.get(picture.key)?.scale === "log";
      points.push(x(frame.step), value === undefined || log ? Number.NaN : y(value));
    }
    pen.path(points, { stroke: theme.ink, opacity: opacity * 0.8, dash: q === 50 ? [] : [3, 2] });
  }
}

export function cursor(pen: Pen, box: Box, x: number, theme: Theme): void {
  if (!(x >= box.x - 1 && x <= box.x + box.width + 1)) return;
  line(pen, crisp(x), box.y - 4, crisp(x), box.y + box.height, { stroke: theme.surface, width: 3, opacity: 0.7 });
  line(pen, crisp(x), box.y - 4, crisp(x), box.y + box.height, { stroke: theme.ink, width: 1 });
}

/** At most `maxCount` frames, evenly spaced, including the one at the current step. */
export function ridgeFrames(picture: HistoryPicture, maxCount: number): Frame[] {
  const { frames } = picture;
  const n = Math.min(maxCount, frames.length);
  const picks = new Set<Frame>();
  for (let i = 0; i < n; i++)
    picks.add(frames[n === 1 ? frames.length - 1 : Math.round((i * (frames.length - 1)) / (n - 1))] as Frame);
  const now =
    frames[
      lastAtOrBefore(
        frames.map((frame) => frame.step),
        picture.step,
      )
    ];
  if (now) picks.add(now);
  return [...picks].sort((a, b) => a.step - b.step);
}

export function drawRidge(pen: Pen, size: Size, theme: Theme, picture: HistoryPicture): void {
  const layout = layoutHistory(picture, size, true);
  if (!layout) return message(pen, size.width, size.height, picture.emptyMessage, theme, "plane");
  const { box, x, y } = layout;
  const shown = ridgeFrames(picture, Math.max(4, Math.floor(box.height / 9)));
  const now = shown.filter((frame) => frame.step <= picture.step).at(-1);
  pen.clip(box.x, box.y - 8, box.width, box.height + 9, () => {
    for (const frame of shown) {
      const hist = frame.histograms.get(picture.key);
      if (!hist) continue;
      const base = y(frame.step);
      const most = largest(hist);
      const points = [x(defined(hist.edges[0])), base];
      for (let b = 0; b < hist.counts.length; b++) {
        const middle = (x(defined(hist.edges[b])) + x(defined(hist.edges[b + 1]))) / 2;
        points.push(middle, base - (34 * defined(hist.counts[b])) / most);
      }
      points.push(x(defined(hist.edges[hist.counts.length])), base);
      pen.path(points, { fill: theme.surface, opacity: 0.86 }, true);
      pen.path(
        points,
        frame === now ? { fill: theme.accent, opacity: 0.55 } : { fill: theme.accent, opacity: 0.12 },
        true,
      );
      pen.path(points, {
        stroke: frame === now ? theme.ink : theme.accent,
        width: frame === now ? 1.5 : 1,
        opacity: frame === now ? 1 : 0.75,
      });
    }
  });
  for (const { kind, first, last } of picture.notFinite)
    for (const frame of shown)
      if (frame.step >= first && frame.step <= last)
        pen.rect(box.x + box.width - 4, y(frame.step) - 4, 4, 4, { fill: notFiniteColour(kind) });
  let free = -100;
  for (const frame of shown) {
    const at = y(frame.step);
    if (at - free < 13) continue;
    free = at;
    pen.text(box.x - 6, at, picture.label(frame.step), {
      fill: frame === now ? theme.ink : theme.ink2,
      align: "right",
      baseline: "middle",
      bold: frame === now,
      maxWidth: box.x - 6,
    });
  }
  bottomAxis(pen, box, x, theme);
}

/** The step at a pixel of a strip or ridge plot. */
export function stepAt(layout: HistoryLayout, ridge: boolean, px: number, py: number): number {
  return ridge ? layout.y.invert(py) : layout.x.invert(px);
}
