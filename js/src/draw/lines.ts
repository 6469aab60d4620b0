/** Draws curves over steps: raw values faint, smoothed values solid, with gaps where nothing was saved. */

import { lastAtOrBefore, nearestIndex } from "../data/frames";
import { defined } from "../lib/defined";
import { log } from "../lib/log-scale";
import { linear, type Scale } from "../lib/scale";
import { time } from "../lib/time-scale";
import { type Box, bottomAxis, leftAxis, message } from "./axes";
import { cursor } from "./history";
import { drawNotFinite, type NotFiniteRange } from "./not-finite";
import { crisp, line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

export interface Curve {
  x: ArrayLike<number>;
  y: ArrayLike<number>;
  /** smoothed y values */
  smooth?: ArrayLike<number> | undefined;
  colour: string;
  dash?: readonly number[];
  /** steps at which the curve stops because its values are not finite */
  notFinite?: readonly NotFiniteRange[];
  /** values that a restart superseded, ascending by x */
  voided?: { x: ArrayLike<number>; y: ArrayLike<number> } | undefined;
}

export type XAxis = "step" | "relative" | "wall";

export interface LinesPicture {
  curves: readonly Curve[];
  /** what x is: a step, seconds, or Unix seconds */
  axis?: XAxis;
  logX: boolean;
  logY: boolean;
  /** range of x; undefined: all */
  range: [number, number] | undefined;
  step: number;
  marked: readonly number[];
  /** where the pointer reads the curves */
  hover?: number | undefined;
  xLabel: string;
  emptyMessage: string;
}

interface LinesLayout {
  box: Box;
  x: Scale;
  y: Scale;
}

/** Smallest and largest finite y value in a range of steps; only positive values for a log axis. */
export function extent(curves: readonly Curve[], range: [number, number] | undefined, logY: boolean): [number, number] {
  let lo = Number.POSITIVE_INFINITY;
  let hi = Number.NEGATIVE_INFINITY;
  for (const curve of curves)
    for (let i = 0; i < curve.y.length; i++) {
      const x = defined(curve.x[i]);
      if (range && (x < range[0] || x > range[1])) continue;
      const y = defined(curve.y[i]);
      if (!Number.isFinite(y) || (logY && y <= 0)) continue;
      if (y < lo) lo = y;
      if (y > hi) hi = y;
    }
  return [lo, hi];
}

function steps(curves: readonly Curve[]): [number, number] {
  let lo = Number.POSITIVE_INFINITY;
  let hi = Number.NEGATIVE_INFINITY;
  for (const { x } of curves)
    if (x.length) {
      lo = Math.min(lo, defined(x[0]));
      hi = Math.max(hi, defined(x[x.length - 1]));
    }
  return [lo, hi];
}

export function layoutLines(picture: LinesPicture, size: Size): LinesLayout | undefined {
  if (!picture.curves.some((curve) => curve.x.length)) return undefined;
  const box = { x: 52, y: 8, width: Math.max(20, size.width - 62), height: Math.max(16, size.height - 34) };
  const [x0, x1] = picture.range ?? steps(picture.curves);
  const [y0, y1] = extent(picture.curves, picture.range, picture.logY);
  const room = (y1 - y0) * 0.05;
  const span: [number, number] = [box.x, box.x + box.width];
  const up: [number, number] = [box.y + box.height, box.y];
  return {
    box,
    x: xScale(picture, x0, x1, span),
    y: picture.logY ? log(y0 / 1.15, y1 * 1.15, up) : linear(y0 - room, y1 + room, up),
  };
}

function xScale({ axis = "step", logX }: LinesPicture, from: number, to: number, span: [number, number]): Scale {
  if (logX && axis !== "wall") return log(Math.max(from, 1), Math.max(to, 2), span);
  return axis === "step" ? linear(from, to, span) : time(from, to, span, axis === "wall");
}

/** Points of a curve, at most four per pixel column (first, minimum, maximum, last), so that spikes stay visible. */
export function tracePoints(
  curve: { x: ArrayLike<number>; y: ArrayLike<number> },
  x: Scale,
  y: Scale,
  logX: boolean,
  logY: boolean,
): number[] {
  const out: number[] = [];
  const n = curve.x.length;
  const place = (i: number) => {
    const v = defined(curve.y[i]);
    const at = defined(curve.x[i]);
    return [logX && at <= 0 ? x.domain[0] : at, Number.isFinite(v) && !(logY && v <= 0) ? v : Number.NaN] as const;
  };
  let i = 0;
  while (i < n) {
    const [at, value] = place(i);
    const px = x(at);
    const column = Math.floor(px);
    let least = value;
    let most = value;
    let last = value;
    let lastPx = px;
    let j = i + 1;
    for (; j < n; j++) {
      const [nextAt, next] = place(j);
      const nextPx = x(nextAt);
      if (Math.floor(nextPx) !== column || Number.isNaN(next) !== Number.isNaN(value)) break;
      least = Math.min(least, next);
      most = Math.max(most, next);
      last = next;
      lastPx = nextPx;
    }
    out.push(px, Number.isNaN(value) ? Number.NaN : y(value));
    if (j - i > 3) out.push(px, y(least), px, y(most));
    else
      for (let k = i + 1; k < j - 1; k++) {
        const [a, b] = place(k);
        out.push(x(a), y(b));
      }
    if (j - i > 1) out.push(lastPx, y(last));
    i = j;
  }
  return out;
}

export function drawLines(pen: Pen, size: Size, theme: Theme, picture: LinesPicture): void {
  const layout = layoutLines(picture, size);
  if (!layout) return message(pen, size.width, size.height, picture.emptyMessage, theme);
  const { box, x, y } = layout;
  const parts = picture.curves.flatMap((curve) => [curve.x, curve.y, curve.smooth, curve.colour, curve.dash?.join()]);
  pen.cached(
    [...parts, ...x.domain, ...y.domain, picture.logX, picture.logY, picture.axis, picture.xLabel],
    (paper) => {
      leftAxis(paper, box, y, theme);
      paper.clip(box.x, box.y - 3, box.width + 1, box.height + 6, () => {
        for (const curve of picture.curves) drawVoided(paper, curve, x, y);
        for (const curve of picture.curves) {
          const raw = tracePoints(curve, x, y, picture.logX, picture.logY);
          const style = { stroke: curve.colour, dash: curve.dash ?? [] };
          paper.path(raw, curve.smooth ? { ...style, opacity: 0.28 } : { ...style, width: 1.5 });
          if (curve.smooth)
            paper.path(tracePoints({ x: curve.x, y: curve.smooth }, x, y, picture.logX, picture.logY), {
              ...style,
              width: 1.75,
            });
          lonePoints(paper, curve, x, y);
        }
      });
      const notFinite = picture.curves.flatMap((curve) => curve.notFinite ?? []);
      drawNotFinite(paper, notFinite, box, x, theme);
      drawRestarts(paper, picture.curves, box, x, theme);
      bottomAxis(paper, box, x, theme, picture.xLabel);
    },
  );
  pen.clip(box.x, box.y - 3, box.width + 1, box.height + 6, () => {
    if (picture.marked.length === 2) {
      const [a, b] = picture.marked as [number, number];
      pen.rect(x(a), box.y, x(b) - x(a), box.height, { fill: theme.accent, opacity: 0.12 });
    }
    if (picture.hover !== undefined) {
      const px = crisp(x(picture.hover));
      line(pen, px, box.y, px, box.y + box.height, { stroke: theme.ink2, dash: [2, 3] });
    }
    for (const curve of picture.curves)
      if (picture.hover === undefined) at(pen, curve, x, y, picture.step, theme);
      else dot(pen, curve, nearestIndex(curve.x, picture.hover), x, y, theme);
  });
  cursor(pen, box, x(picture.step), theme);
}

/** A cross for each value that a restart superseded. */
function drawVoided(pen: Pen, { voided, colour }: Curve, x: Scale, y: Scale) {
  if (!voided) return;
  const points: number[] = [];
  for (let i = 0; i < voided.x.length; i++) {
    const [px, py] = [x(defined(voided.x[i])), y(defined(voided.y[i]))];
    points.push(px - 2, py - 2, px + 2, py + 2, Number.NaN, Number.NaN, px - 2, py + 2, px + 2, py - 2);
    points.push(Number.NaN, Number.NaN);
  }
  pen.path(points, { stroke: colour, opacity: 0.45 });
}

/** A line at each step from which a run was continued after it had been further. */
function drawRestarts(pen: Pen, curves: readonly Curve[], box: Box, x: Scale, theme: Theme) {
  const starts = new Set<number>();
  for (const { voided, x: kept } of curves) {
    if (!voided) continue;
    for (let i = 0; i < voided.x.length; i++) {
      const [before, step] = [voided.x[i - 1], defined(voided.x[i])];
      // Superseded values between which the run has others belong to different restarts.
      if (before === undefined || lastAtOrBefore(kept, before) + 8 < lastAtOrBefore(kept, step)) starts.add(step);
    }
  }
  let free = box.x;
  for (const step of [...starts].sort((a, b) => a - b).slice(0, 20)) {
    const px = crisp(x(step));
    if (px < box.x || px > box.x + box.width) continue;
    line(pen, px, box.y, px, box.y + box.height, { stroke: theme.ink2, dash: [1, 3] });
    const width = pen.measure("restart", { fill: "" });
    const left = px + 4 + width < box.x + box.width ? px + 4 : px - 4 - width;
    if (left < free) continue;
    free = left + width + 6;
    pen.rect(left - 1, box.y + box.height - 17, width + 2, 13, { fill: theme.surface, opacity: 0.85 });
    pen.text(left, box.y + box.height - 10, "restart", { fill: theme.ink2, size: 10, baseline: "middle" });
  }
}

/** Draws a dot for each value between two gaps. */
export function lonePoints(pen: Pen, curve: Curve, x: Scale, y: Scale): void {
  if (curve.y.length > 2000) return;
  for (let i = 0; i < curve.y.length; i++) {
    const lone = !Number.isFinite(curve.y[i - 1] ?? Number.NaN) && !Number.isFinite(curve.y[i + 1] ?? Number.NaN);
    if (lone && Number.isFinite(curve.y[i]))
      pen.rect(x(defined(curve.x[i])) - 1.5, y(defined(curve.y[i])) - 1.5, 3, 3, { fill: curve.colour });
  }
}

/** Draws a dot at the current step. */
export function at(pen: Pen, curve: Curve, x: Scale, y: Scale, step: number, theme: Theme): void {
  dot(pen, curve, lastAtOrBefore(curve.x, step), x, y, theme);
}

function dot(pen: Pen, curve: Curve, i: number, x: Scale, y: Scale, theme: Theme): void {
  const value = i < 0 ? Number.NaN : ((curve.smooth ?? curve.y)[i] as number);
  if (!Number.isFinite(value)) return;
  const px = x(defined(curve.x[i]));
  const py = y(value);
  pen.rect(px - 3.5, py - 3.5, 7, 7, { fill: theme.surface });
  pen.rect(px - 2.5, py - 2.5, 5, 5, { fill: curve.colour });
}
