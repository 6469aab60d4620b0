/** Draws a histogram, and a second one below it, upside down. Non-finite values get separate bars beside the bins. */

import type { Frame, Histogram } from "../data/frames";
import type { NotFinite } from "../lib/colour";
import { defined } from "../lib/defined";
import { compactCount } from "../lib/format";
import { linearWidth, log, symmetricLog } from "../lib/log-scale";
import { linear, type Scale } from "../lib/scale";
import { type Box, bottomAxis, leftAxis, message } from "./axes";
import { notFiniteColour } from "./not-finite";
import { crisp, line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

export interface HistogramPicture {
  hist: Histogram | undefined;
  frame: Frame | undefined;
  compared: Histogram | undefined;
  comparedFrame: Frame | undefined;
  /** the second one is below, upside down */
  mirrored: boolean;
  /** fixed ranges of the value and count axes, the same for all steps */
  domain: [number, number];
  top: number;
  logCounts: boolean;
  /** bin under the pointer, or -1 */
  hover: number;
  /** from which part of the elements the bars are estimated; "" of all */
  source: string;
  /** selected value range */
  marked: readonly number[];
  colour: string;
  comparedColour: string;
  emptyMessage: string;
}

/** Counts drawn beside the bins. */
const BESIDE: readonly {
  label: string;
  side: "left" | "right";
  of(hist: Histogram, counts: Float64Array | undefined): number;
}[] = [
  { label: "\u2212Inf", side: "left", of: (_, counts) => counts?.[3] ?? 0 },
  // A logarithmic axis has no position for zero.
  { label: "0", side: "left", of: (hist, counts) => (hist.scale === "log" ? (counts?.[4] ?? 0) : 0) },
  { label: "below", side: "left", of: (hist) => hist.below },
  { label: "above", side: "right", of: (hist) => hist.above },
  { label: "+Inf", side: "right", of: (_, counts) => counts?.[2] ?? 0 },
  { label: "NaN", side: "right", of: (_, counts) => counts?.[1] ?? 0 },
];
const COLUMN = 34;
/** Pixels above the bars, for the title of their axis. */
const TOP = 14;

interface HistogramLayout {
  box: Box;
  x: Scale;
  /** pixel of a count, upwards from the base */
  y: Scale;
  /** where bars begin: the lower edge, or the middle if a second histogram is below */
  base: number;
  /** of the second histogram, downwards from the base */
  yCompared: Scale;
}

export function valueScale(hist: Histogram, [lo, hi]: [number, number], range: [number, number]): Scale {
  if (hist.scale === "log") return log(lo, hi, range);
  if (hist.scale === "symlog") return symmetricLog(lo, hi, linearWidth(hist.edges), range);
  return linear(lo, hi, range);
}

function beside(picture: HistogramPicture, side: "left" | "right") {
  return BESIDE.filter(
    (each) =>
      each.side === side &&
      ((picture.hist && each.of(picture.hist, picture.frame?.counts) > 0) ||
        (picture.compared && each.of(picture.compared, picture.comparedFrame?.counts) > 0)),
  );
}

export function layoutHistogram(picture: HistogramPicture, size: Size): HistogramLayout | undefined {
  const shape = picture.hist ?? picture.compared;
  if (!shape) return undefined;
  const left = 44 + beside(picture, "left").length * COLUMN;
  const right = 10 + beside(picture, "right").length * COLUMN;
  const box = {
    x: left,
    y: TOP,
    width: Math.max(20, size.width - left - right),
    height: Math.max(20, size.height - TOP - 30),
  };
  const top = Math.max(1, picture.top);
  const bottom = box.y + box.height;
  const base = picture.mirrored ? Math.round(box.y + box.height / 2) : bottom;
  const counts = (to: number) =>
    picture.logCounts ? log(0.7, top * 1.3, [base, to]) : linear(0, top * 1.04, [base, to]);
  const x = valueScale(shape, picture.domain, [box.x, box.x + box.width]);
  return { box, x, y: counts(box.y), base, yCompared: counts(bottom) };
}

function outline(hist: Histogram, layout: HistogramLayout, up: boolean): Float64Array {
  const { x, base } = layout;
  const [y, side] = up ? [layout.y, -1] : [layout.yCompared, 1];
  const n = hist.counts.length;
  const points = new Float64Array(4 * n + 4);
  let k = 0;
  points[k++] = x(defined(hist.edges[0]));
  points[k++] = base;
  for (let i = 0; i < n; i++) {
    const count = defined(hist.counts[i]);
    const height = count > 0 ? base + side * Math.max(1, Math.abs(y(count) - base)) : base;
    points[k++] = x(defined(hist.edges[i]));
    points[k++] = height;
    points[k++] = x(defined(hist.edges[i + 1]));
    points[k++] = height;
  }
  points[k++] = x(defined(hist.edges[n]));
  points[k++] = base;
  return points;
}

export function drawHistogram(pen: Pen, size: Size, theme: Theme, picture: HistogramPicture): void {
  const layout = layoutHistogram(picture, size);
  if (!layout) return message(pen, size.width, size.height, picture.emptyMessage, theme, "bars");
  const { box, x, y, base, yCompared } = layout;
  const shape = (picture.hist ?? picture.compared) as Histogram;
  const near = shape.scale === "symlog" ? linearWidth(shape.edges) : 0;
  const axisKey = [shape.scale, near, box.x, box.width, ...x.domain, ...y.domain, picture.logCounts, picture.mirrored];
  pen.cached(axisKey, (paper) => {
    const options = picture.logCounts
      ? {}
      : { format: (tick: { value: number }) => compactCount(tick.value), whole: true };
    leftAxis(paper, { ...box, height: base - box.y }, y, theme, options);
    if (picture.mirrored)
      leftAxis(paper, { ...box, y: base, height: box.y + box.height - base }, yCompared, theme, options);
    bottomAxis(paper, box, x, theme, "value");
    paper.text(box.x - 6, box.y - 4, "count", { fill: theme.ink2, align: "right", size: 10 });
  });
  pen.clip(box.x, box.y - 4, box.width, box.height + 5, () => {
    if (picture.marked.length === 2) {
      const [a, b] = picture.marked as [number, number];
      pen.rect(x(a), box.y, x(b) - x(a), box.height, { fill: theme.accent, opacity: 0.12 });
    }
    if (picture.hist) pen.path(outline(picture.hist, layout, true), { fill: picture.colour, opacity: 0.75 }, true);
    if (picture.hist && picture.hover >= 0 && picture.hover < picture.hist.counts.length) {
      const x0 = x(defined(picture.hist.edges[picture.hover]));
      const x1 = x(defined(picture.hist.edges[picture.hover + 1]));
      const top = Math.min(base - 1, y(Math.max(defined(picture.hist.counts[picture.hover]), 0.7)));
      pen.rect(x0, top, Math.max(1, x1 - x0), base - top, { fill: theme.ink });
    }
    if (picture.compared)
      pen.path(outline(picture.compared, layout, false), { fill: picture.comparedColour, opacity: 0.75 }, true);
    if (picture.mirrored)
      line(pen, box.x, crisp(base), box.x + box.width, crisp(base), { stroke: theme.surface, width: 1 });
    if (x.domain[0] < 0 && x.domain[1] > 0)
      line(pen, crisp(x(0)), box.y, crisp(x(0)), box.y + box.height, {
        stroke: theme.ink2,
        dash: [2, 3],
        opacity: 0.6,
      });
  });
  if (picture.source)
    pen.text(size.width - 4, box.y - 4, picture.source, {
      fill: theme.ink2,
      align: "right",
      size: 10,
      maxWidth: size.width - 60,
    });
  percentileMarks(pen, layout, picture, theme);
  drawBeside(pen, layout, picture, size, theme);
}

/** Box plot below the axis: 5 to 95 % as a thin line, quartiles as a thick line, median as a tick. */
function percentileMarks(pen: Pen, { box, x }: HistogramLayout, picture: HistogramPicture, theme: Theme) {
  const p = picture.frame?.percentiles;
  if (!p || picture.hist?.scale === "log") return;
  const at = (q: number) => x(p.values[p.q.indexOf(q)] ?? Number.NaN);
  const y = box.y + box.height + 24;
  pen.clip(box.x, y - 4, box.width, 8, () => {
    if (p.q.includes(5) && p.q.includes(95)) line(pen, at(5), y, at(95), y, { stroke: theme.ink2, width: 1 });
    if (p.q.includes(25) && p.q.includes(75)) line(pen, at(25), y, at(75), y, { stroke: theme.ink2, width: 4 });
    if (p.q.includes(50)) line(pen, at(50), y - 4, at(50), y + 4, { stroke: theme.ink, width: 1.5 });
  });
}

const KINDS: Record<string, NotFinite> = { NaN: "nan", "+Inf": "posInf", "\u2212Inf": "negInf" };

function drawBeside(pen: Pen, layout: HistogramLayout, picture: HistogramPicture, size: Size, theme: Theme) {
  const { box, y, base, yCompared } = layout;
  for (const side of ["left", "right"] as const)
    beside(picture, side).forEach((each, i) => {
      const x = side === "left" ? 44 + i * COLUMN : size.width - 4 - (beside(picture, side).length - i) * COLUMN;
      const bar = (hist: Histogram | undefined, frame: Frame | undefined, up: boolean) => {
        const n = hist ? each.of(hist, frame?.counts) : 0;
        if (!n) return;
        const room = up ? base - box.y : box.y + box.height - base;
        const length = Math.min(room, Math.max(2, Math.abs((up ? y : yCompared)(n) - base)));
        const kind = KINDS[each.label];
        const colour = kind ? notFiniteColour(kind) : theme.ink2;
        pen.rect(x + 6, up ? base - length : base, COLUMN - 12, length, { fill: colour });
        // beyond the bar, or inside it if there is no room
        const inside = length > room - 13;
        const at = inside ? length - 10 : length + 3;
        pen.text(x + COLUMN / 2, up ? base - at : base + at, compactCount(n), {
          fill: inside ? theme.surface : theme.ink,
          align: "center",
          baseline: up ? "alphabetic" : "top",
          size: 10,
        });
      };
      bar(picture.hist, picture.frame, true);
      bar(picture.compared, picture.comparedFrame, false);
      line(pen, x + 4, crisp(base), x + COLUMN - 4, crisp(base), { stroke: theme.rule });
      pen.text(x + COLUMN / 2, box.y + box.height + 6, each.label, {
        fill: theme.ink2,
        align: "center",
        baseline: "top",
        size: 10,
      });
    });
}

/** The bin at a pixel, or -1. */
export function binAt(layout: HistogramLayout, hist: Histogram, pixel: number): number {
  if (pixel < layout.box.x || pixel > layout.box.x + layout.box.width) return -1;
  const value = layout.x.invert(pixel);
  const n = hist.counts.length;
  let lo = 0;
  let hi = n;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (defined(hist.edges[mid + 1]) <= value) lo = mid + 1;
    else hi = mid;
  }
  return lo < n && defined(hist.edges[lo]) <= value ? lo : -1;
}
