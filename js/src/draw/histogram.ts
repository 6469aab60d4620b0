/** Draws a histogram, and a second one as an outline over it. Non-finite values get separate bars beside the bins. */
import type { Frame, Histogram } from "../data/frames";
import { compactCount } from "../lib/format";
import { linear, linearWidth, log, type Scale, symmetricLog } from "../lib/scale";
import { type Box, bottomAxis, crisp, leftAxis, message } from "./axes";
import { line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

export interface HistogramPicture {
  hist: Histogram | undefined;
  frame: Frame | undefined;
  compared: Histogram | undefined;
  comparedFrame: Frame | undefined;
  /** fixed ranges of the value and count axes, the same for all steps */
  domain: [number, number];
  top: number;
  logCounts: boolean;
  /** bin under the pointer, or -1 */
  hover: number;
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

interface HistogramLayout {
  box: Box;
  x: Scale;
  y: Scale;
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
    y: 8,
    width: Math.max(20, size.width - left - right),
    height: Math.max(20, size.height - 8 - 30),
  };
  const top = Math.max(1, picture.top);
  const y = picture.logCounts
    ? log(0.7, top * 1.3, [box.y + box.height, box.y])
    : linear(0, top * 1.04, [box.y + box.height, box.y]);
  return { box, x: valueScale(shape, picture.domain, [box.x, box.x + box.width]), y };
}

function outline(hist: Histogram, layout: HistogramLayout, close: boolean): Float64Array {
  const { box, x, y } = layout;
  const base = box.y + box.height;
  const n = hist.counts.length;
  const points = new Float64Array(4 * n + (close ? 4 : 0));
  let k = 0;
  if (close) {
    points[k++] = x(hist.edges[0] as number);
    points[k++] = base;
  }
  for (let i = 0; i < n; i++) {
    const count = hist.counts[i] as number;
    const height = count > 0 ? Math.min(base - 1, y(count)) : base;
    points[k++] = x(hist.edges[i] as number);
    points[k++] = height;
    points[k++] = x(hist.edges[i + 1] as number);
    points[k++] = height;
  }
  if (close) {
    points[k++] = x(hist.edges[n] as number);
    points[k++] = base;
  }
  return points;
}

export function drawHistogram(pen: Pen, size: Size, theme: Theme, picture: HistogramPicture): void {
  const layout = layoutHistogram(picture, size);
  if (!layout) return message(pen, size.width, size.height, picture.emptyMessage, theme, "bars");
  const { box, x, y } = layout;
  const base = box.y + box.height;
  const shape = (picture.hist ?? picture.compared) as Histogram;
  const near = shape.scale === "symlog" ? linearWidth(shape.edges) : 0;
  pen.cached([shape.scale, near, box.x, box.width, ...x.domain, ...y.domain, picture.logCounts], (paper) => {
    leftAxis(
      paper,
      box,
      y,
      theme,
      picture.logCounts ? {} : { format: (tick) => compactCount(tick.value), whole: true },
    );
    bottomAxis(paper, box, x, theme);
  });
  pen.clip(box.x, box.y - 4, box.width, box.height + 5, () => {
    if (picture.marked.length === 2) {
      const [a, b] = picture.marked as [number, number];
      pen.rect(x(a), box.y, x(b) - x(a), box.height, { fill: theme.accent, opacity: 0.12 });
    }
    if (picture.hist) pen.path(outline(picture.hist, layout, true), { fill: picture.colour, opacity: 0.75 }, true);
    if (picture.hist && picture.hover >= 0 && picture.hover < picture.hist.counts.length) {
      const x0 = x(picture.hist.edges[picture.hover] as number);
      const x1 = x(picture.hist.edges[picture.hover + 1] as number);
      const top = Math.min(base - 1, y(Math.max(picture.hist.counts[picture.hover] as number, 0.7)));
      pen.rect(x0, top, Math.max(1, x1 - x0), base - top, { fill: theme.ink });
    }
    if (picture.compared)
      pen.path(outline(picture.compared, layout, false), { stroke: picture.comparedColour, width: 1.5 });
    if (x.domain[0] < 0 && x.domain[1] > 0)
      line(pen, crisp(x(0)), box.y, crisp(x(0)), base, { stroke: theme.ink2, dash: [2, 3], opacity: 0.6 });
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

function drawBeside(pen: Pen, { box, y }: HistogramLayout, picture: HistogramPicture, size: Size, theme: Theme) {
  const base = box.y + box.height;
  for (const side of ["left", "right"] as const)
    beside(picture, side).forEach((each, i) => {
      const x = side === "left" ? 44 + i * COLUMN : size.width - 4 - (beside(picture, side).length - i) * COLUMN;
      const bar = (hist: Histogram | undefined, frame: Frame | undefined, filled: boolean) => {
        const n = hist ? each.of(hist, frame?.counts) : 0;
        if (!n) return;
        const top = Math.max(box.y, Math.min(base - 2, y(n)));
        const colour = ["0", "below", "above"].includes(each.label) ? theme.ink2 : theme.error;
        pen.rect(
          x + 6,
          top,
          COLUMN - 12,
          base - top,
          filled ? { fill: colour } : { stroke: picture.comparedColour, width: 1.5 },
        );
        if (filled)
          pen.text(x + COLUMN / 2, Math.max(box.y + 10, top - 3), compactCount(n), {
            // above the bar, or inside it if there is no room
            fill: top - 3 < box.y + 10 ? theme.surface : theme.ink,
            align: "center",
            size: 10,
          });
      };
      bar(picture.hist, picture.frame, true);
      bar(picture.compared, picture.comparedFrame, false);
      line(pen, x + 4, crisp(base), x + COLUMN - 4, crisp(base), { stroke: theme.rule });
      pen.text(x + COLUMN / 2, base + 6, each.label, { fill: theme.ink2, align: "center", baseline: "top", size: 10 });
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
    if ((hist.edges[mid + 1] as number) <= value) lo = mid + 1;
    else hi = mid;
  }
  return lo < n && (hist.edges[lo] as number) <= value ? lo : -1;
}
