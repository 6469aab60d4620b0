/** Draws what happened over the steps as lanes on the shared axis: a curve, modes, the firings of rules, the axis. */

import { modeColour } from "../lib/colour";
import { defined } from "../lib/defined";
import { count, rangeEnds } from "../lib/format";
import { log } from "../lib/log-scale";
import { linear, linearTicks, type Scale, type Tick } from "../lib/scale";
import { lowerIndex } from "../lib/sorted";
import type { StepAxis } from "../lib/step-axis";
import type { Box } from "./axes";
import { drawNotFinite, type NotFiniteRange } from "./not-finite";
import { crisp, line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

interface Points {
  x: ArrayLike<number>;
  y: ArrayLike<number>;
}

/** A curve with the dots of another mode over it. */
export interface LaneCurve extends Points {
  dots: readonly (Points & { mode: number; name: string })[];
  notFinite: readonly NotFiniteRange[];
  logY: boolean;
  /** the curve of B, dashed in its colour, and the colour of A */
  compared?: (Points & { colour: string; own: string }) | undefined;
  /** whether the area below the curve is filled */
  filled?: boolean;
  /** ends of the vertical axis; by default those of the values in view */
  ends?: readonly [number, number];
}

/** Lowest, mean and highest value in each column of pixels that has a point. A gap in the values ends a part. */
export interface Envelope {
  px: number[];
  lo: number[];
  mid: number[];
  hi: number[];
}

export function envelope({ x, y }: Points, axis: StepAxis): Envelope {
  const out: Envelope = { px: [], lo: [], mid: [], hi: [] };
  let column = Number.NaN;
  let sum = 0;
  let n = 0;
  const [start, end] = inView(x, axis);
  for (let i = start; i < end; i++) {
    const at = axis.x(defined(x[i]));
    const value = defined(y[i]);
    const last = out.px.length - 1;
    if (!Number.isFinite(value)) {
      if (last >= 0 && !Number.isNaN(out.px[last])) push(out, Number.NaN, Number.NaN);
      column = Number.NaN;
    } else if (Math.floor(at) === column) {
      sum += value;
      n++;
      out.lo[last] = Math.min(defined(out.lo[last]), value);
      out.hi[last] = Math.max(defined(out.hi[last]), value);
      out.mid[last] = sum / n;
    } else {
      column = Math.floor(at);
      sum = value;
      n = 1;
      push(out, at, value);
    }
  }
  return out;
}

/** Indices of the points in view and one beyond each end; the end is exclusive. */
const inView = (x: ArrayLike<number>, { from, to }: StepAxis): [number, number] => [
  Math.max(0, lowerIndex(x, from) - 1),
  Math.min(x.length, lowerIndex(x, to) + 1),
];

function push(out: Envelope, px: number, value: number) {
  out.px.push(px);
  out.lo.push(value);
  out.mid.push(value);
  out.hi.push(value);
}

/** The vertical scale of a lane for the values in view, and the values of its labels. */
export function laneScale(
  curve: LaneCurve,
  axis: StepAxis,
  box: Box,
): { y: Scale; labels: { at: number; text: string }[] } {
  let [lo, hi] = curve.ends ?? [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const { x, y } of curve.ends ? [] : [curve, ...curve.dots, ...(curve.compared ? [curve.compared] : [])])
    for (let [i, end] = inView(x, axis); i < end; i++) {
      const [step, value] = [defined(x[i]), defined(y[i])];
      if (step < axis.from || step > axis.to || !Number.isFinite(value) || (curve.logY && value <= 0)) continue;
      lo = Math.min(lo, value);
      hi = Math.max(hi, value);
    }
  const range: [number, number] = [box.y + box.height, box.y];
  const y = curve.logY ? log(lo / 1.1, hi * 1.1, range) : linear(lo, hi, range);
  const few = Math.max(2, Math.round(box.height / 17));
  let ticks: Tick[] = [];
  // One number does not make a scale.
  for (let most = few; ticks.length < 2 && most < few + 6; most++)
    ticks = curve.logY ? y.ticks(most) : linearTicks(y.domain[0], y.domain[1], most);
  return { y, labels: ticks.map((tick) => ({ at: y(tick.value), text: tick.label })) };
}

/** Lanes below this height have labels at their ends only. */
const LOW = 30;

function endLabels(y: Scale, box: Box): { at: number; text: string }[] {
  const [lo, hi] = y.domain;
  const [from, to] = rangeEnds(lo, hi);
  return [
    { at: box.y + box.height, text: from },
    { at: box.y, text: to },
  ];
}

/** Draws a curve between its extremes, with labels in the gutter. */
export function drawCurve(pen: Pen, theme: Theme, curve: LaneCurve, axis: StepAxis, box: Box): void {
  const { y, labels } = laneScale(curve, axis, box);
  const { px, lo, mid, hi } = envelope(curve, axis);
  const colour = curve.compared?.own ?? theme.accent;
  let free = Number.POSITIVE_INFINITY;
  for (const { at, text } of box.height < LOW ? endLabels(y, box) : labels) {
    if (box.height >= LOW) line(pen, box.x, crisp(at), box.x + box.width, crisp(at), { stroke: theme.grid });
    if (free - at < 11) continue;
    free = at;
    const middle = Math.max(box.y + 3, Math.min(box.y + box.height - 3, at));
    pen.text(box.x - 8, middle, text, { fill: theme.ink2, align: "right", baseline: "middle", size: 10 });
  }
  pen.clip(box.x, box.y - 2, box.width, box.height + 4, () => {
    const place = (value: number) => (curve.logY && value <= 0 ? Number.NaN : y(value));
    for (const [from, to] of parts(px)) {
      const [band, under, trace] = [[] as number[], [] as number[], [] as number[]];
      for (let i = from; i < to; i++) {
        band.push(defined(px[i]), place(defined(hi[i])));
        trace.push(defined(px[i]), place(defined(mid[i])));
        under.push(defined(px[i]), place(defined(mid[i])));
      }
      for (let i = to - 1; i >= from; i--) band.push(defined(px[i]), place(defined(lo[i])));
      if (curve.filled && to - from > 1) {
        under.push(defined(px[to - 1]), box.y + box.height, defined(px[from]), box.y + box.height);
        pen.path(under, { fill: colour, opacity: 0.12 }, true);
      }
      pen.path(band, { fill: colour, opacity: 0.3 }, true);
      if (to - from > 1) pen.path(trace, { stroke: colour, width: 1.5 });
      else pen.rect(defined(trace[0]) - 1.5, defined(trace[1]) - 1.5, 3, 3, { fill: colour });
    }
    if (curve.compared) {
      const { px: at, mid: values } = envelope(curve.compared, axis);
      const { colour: dashed } = curve.compared;
      for (const [from, to] of parts(at)) {
        const trace = at.slice(from, to).flatMap((each, i) => [each, place(defined(values[from + i]))]);
        if (to - from > 1) pen.path(trace, { stroke: dashed, width: 1.5, dash: [5, 2] });
        else pen.rect(defined(trace[0]) - 1.5, defined(trace[1]) - 1.5, 3, 3, { fill: dashed });
      }
    }
    for (const { x, y: values, mode, name } of curve.dots) {
      const fill = modeColour(mode, theme.dark);
      let free = Number.NEGATIVE_INFINITY;
      let last: [number, number] | undefined;
      for (let i = 0; i < x.length; i++) {
        const at = axis.x(defined(x[i]));
        const up = place(defined(values[i]));
        if (Number.isNaN(up) || at < axis.left - 3 || at > axis.right + 3) continue;
        last = [at, up];
        if (at - free < 4) continue;
        free = at;
        dot(pen, at, up, fill, theme);
      }
      if (last && box.height >= 30)
        pen.text(Math.min(last[0], box.x + box.width - 4), last[1] - 7 < box.y + 6 ? last[1] + 12 : last[1] - 7, name, {
          fill,
          align: "right",
          baseline: "middle",
          size: 9,
        });
    }
  });
  const scale = linear(axis.from, axis.to, [axis.left, axis.right]);
  drawNotFinite(pen, curve.notFinite, box, scale, theme, { top: true, label: box.height >= 20, lasting: true });
}

function dot(pen: Pen, x: number, y: number, fill: string, theme: Theme) {
  const octagon = (r: number) => {
    const points: number[] = [];
    for (let k = 0; k < 8; k++) points.push(x + r * Math.cos((k * Math.PI) / 4), y + r * Math.sin((k * Math.PI) / 4));
    return points;
  };
  pen.path(octagon(3.2), { fill: theme.surface }, true);
  pen.path(octagon(2.3), { fill }, true);
}

/** Index ranges without NaN. */
function parts(px: readonly number[]): [number, number][] {
  const out: [number, number][] = [];
  let from = -1;
  for (let i = 0; i <= px.length; i++) {
    const gap = i === px.length || Number.isNaN(px[i]);
    if (!gap && from < 0) from = i;
    if (gap && from >= 0) {
      out.push([from, i]);
      from = -1;
    }
  }
  return out;
}

/** A part of a lane, in pixels. */
export interface Segment {
  from: number;
  to: number;
  first: number;
  last: number;
  /** of its judged steps, the share that fired */
  share: number;
}

/** Marks are at least this wide, and closer ones are one. */
const LEAST = 3;

/** Half the pixels between neighbouring steps, within limits. */
function halfGap(steps: ArrayLike<number>, axis: StepAxis): number {
  const n = steps.length;
  if (n < 2) return LEAST / 2;
  const gap = (axis.x(defined(steps[n - 1])) - axis.x(defined(steps[0]))) / (n - 1);
  return Math.max(LEAST / 2, Math.min(6, gap / 2));
}

/** Merges the firings at adjacent judged steps, and those that are close on the screen. */
export function firingSegments(outcomes: ReadonlyMap<number, number>, axis: StepAxis): Segment[] {
  const steps = Float64Array.from(
    [...outcomes].filter(([, outcome]) => outcome === 1 || outcome === 2).map(([step]) => step),
  ).sort();
  const half = halfGap(steps, axis);
  const out: (Segment & { fired: number; judged: number })[] = [];
  let judged = 0;
  let before = 0;
  for (const step of steps) {
    const now = out.at(-1);
    if (outcomes.get(step) !== 2) {
      judged++;
      continue;
    }
    const from = axis.x(step) - half;
    if (now && (judged === 0 || from - now.to < LEAST)) {
      now.fired++;
      now.judged += judged + 1;
      now.to = axis.x(step) + half;
      now.last = step;
    } else out.push({ from, to: axis.x(step) + half, first: step, last: step, share: 1, fired: 1, judged: 1 });
    judged = 0;
    before++;
  }
  for (const each of out) each.share = each.fired / each.judged;
  return before ? out : [];
}

export function drawFirings(pen: Pen, theme: Theme, segments: readonly Segment[], axis: StepAxis, box: Box): void {
  for (const { from, to, share } of segments) {
    const [a, b] = [Math.max(axis.left, from), Math.min(axis.right, to)];
    if (b > a) pen.rect(a, box.y, b - a, box.height, { fill: theme.error, opacity: Math.max(0.45, share) });
  }
}

/** Contiguous steps of one mode, at least 3 pixels wide. */
export function modeBands(
  steps: ArrayLike<number>,
  modes: ArrayLike<number>,
  axis: StepAxis,
): { mode: number; from: number; to: number }[] {
  const half = halfGap(steps, axis);
  const out: { mode: number; from: number; to: number }[] = [];
  for (let i = 0; i < steps.length; i++) {
    const at = axis.x(defined(steps[i]));
    const mode = defined(modes[i]);
    const now = out.at(-1);
    if (now?.mode === mode) now.to = at + half;
    else {
      if (now) now.to = Math.max(now.to, at - half);
      out.push({ mode, from: now ? Math.max(now.from, Math.min(now.to, at - half)) : at - half, to: at + half });
    }
  }
  return out;
}

const LETTERS = ["", "T", "E", "P", ""];

/** Bands with a letter, and stripes for all modes but the first, so that they differ without colour. */
export function drawModes(
  pen: Pen,
  theme: Theme,
  bands: readonly { mode: number; from: number; to: number }[],
  axis: StepAxis,
  box: Box,
): void {
  const seen = [...bands].filter(({ from, to }) => to > axis.left && from < axis.right);
  // Training first, so that short evaluations stay visible over it.
  for (const { mode, from, to } of seen.sort((a, b) => a.mode - b.mode)) {
    const [a, b] = [Math.max(axis.left, from), Math.min(axis.right, Math.max(to, from + LEAST))];
    if (b <= a) continue;
    const fill = modeColour(mode, theme.dark);
    pen.rect(a, box.y, b - a, box.height, { fill, opacity: mode === 1 || mode === 4 ? 0.24 : 1 });
    if (mode > 1 && mode < 4 && b - a >= 6)
      pen.clip(a, box.y, b - a, box.height, () => {
        for (let x = a - box.height; x < b; x += mode === 2 ? 6 : 3)
          line(pen, x, box.y + box.height, x + box.height, box.y, { stroke: theme.surface, opacity: 0.35 });
      });
  }
  // One letter a mode, in its first band that has room.
  for (const mode of [1, 2, 3]) {
    const band = seen.find(
      (each) => each.mode === mode && Math.min(axis.right, each.to) - Math.max(axis.left, each.from) >= 14,
    );
    if (!band) continue;
    const middle = (Math.max(axis.left, band.from) + Math.min(axis.right, band.to)) / 2;
    pen.text(middle, box.y + box.height / 2 + 0.5, LETTERS[mode] as string, {
      fill: mode === 1 ? theme.ink : theme.surface,
      align: "center",
      baseline: "middle",
      size: 8,
      bold: true,
    });
  }
}

export interface AxisPicture {
  axis: StepAxis;
  /** all saved steps */
  steps: ArrayLike<number>;
  /** pixels that the handle covers */
  covered: readonly [number, number] | undefined;
  incidents: readonly number[];
  /** the pinned step of a comparison */
  compare: number | undefined;
}

/** Half the width of an incident's mark. */
export const INCIDENT_MARK = 4;

export function drawAxis(pen: Pen, size: Size, theme: Theme, picture: AxisPicture): void {
  const { axis, steps, covered } = picture;
  line(pen, axis.left, 0.5, axis.right, 0.5, { stroke: theme.rule });
  const n = steps.length;
  const last = n ? defined(steps[n - 1]) : Number.NaN;
  const whole = linearTicks(axis.from, axis.to, Math.max(2, Math.floor((axis.right - axis.left) / 75))).filter(
    ({ value }) => Number.isInteger(value) && value >= 0,
  );
  // The last step is always named: it is how long the run is.
  const labels = last <= axis.to ? [{ value: last, label: count(last) }] : [];
  const placed: [number, number][] = covered ? [[covered[0], covered[1]]] : [];
  for (const { value, label } of [...labels, ...whole]) {
    const at = axis.x(value);
    if (Number.isNaN(at) || at < axis.left - 1 || at > axis.right + 1) continue;
    line(pen, crisp(at), 0, crisp(at), 4, { stroke: theme.rule });
    const half = pen.measure(label, { fill: "", size: 10 }) / 2;
    if (placed.some(([a, b]) => at + half + 6 > a && at - half - 6 < b)) continue;
    placed.push([at - half, at + half]);
    pen.text(at, 8, label, { fill: theme.ink2, align: "center", baseline: "top", size: 10 });
  }
  if (picture.compare !== undefined) {
    const at = axis.x(picture.compare);
    if (at >= axis.left && at <= axis.right)
      line(pen, crisp(at), 0, crisp(at), size.height, { stroke: theme.ink2, dash: [2, 2] });
  }
  for (const step of picture.incidents) {
    const at = Math.round(axis.x(step));
    if (at < axis.left - 1 || at > axis.right + 1) continue;
    const diamond = (r: number) => [at - r, 4, at, 4 - r, at + r, 4, at, 4 + r];
    pen.path(diamond(INCIDENT_MARK + 1), { fill: theme.surface }, true);
    pen.path(diamond(INCIDENT_MARK), { fill: theme.incident }, true);
  }
}
