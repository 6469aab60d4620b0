/** Draws statistics over steps, one row with its own scale per statistic. */
import { rangeText } from "../lib/format";
import { log } from "../lib/log-scale";
import { linear, type Scale } from "../lib/scale";
import { bottomAxis, leftAxis, message } from "./axes";
import { cursor } from "./history";
import { at, type Curve, extent, lonePoints, tracePoints } from "./lines";
import { drawNotFinite } from "./not-finite";
import { line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

/** Row heights in pixels: the rows fill the height of the picture next to them, within these limits. */
const LOW = 46;
const HIGH = 66;
const ALONE = 140;
const BESIDE = 220;
const NAME = 112;
const NOW = 92;
const FOOT = 24;

const rowHeight = (rows: number) =>
  Math.max(LOW, Math.min(rows > 1 ? HIGH : ALONE, Math.floor((BESIDE - FOOT) / Math.max(1, rows))));

/** Height of the picture in pixels. */
export const statisticsHeight = (rows: number): number => Math.max(1, rows) * rowHeight(rows) + FOOT;

export interface StatisticsRow {
  name: string;
  curves: readonly Curve[];
  log: boolean;
  /** value of each curve at the current step */
  now: readonly string[];
  /** text of a number with about this many digits */
  written(x: number, digits: number): string;
}

export interface StatisticsPicture {
  rows: readonly StatisticsRow[];
  logX: boolean;
  /** range of steps, and whether only its values determine the scales */
  range: readonly [number, number];
  cut: boolean;
  step: number;
  emptyMessage: string;
}

export function statisticsScale({ range, logX }: StatisticsPicture, width: number): Scale {
  const span: [number, number] = [NAME, Math.max(NAME + 20, width - NOW)];
  return logX ? log(Math.max(1, range[0]), Math.max(2, range[1]), span) : linear(range[0], range[1], span);
}

export function drawStatistics(pen: Pen, size: Size, theme: Theme, picture: StatisticsPicture): void {
  if (!picture.rows.some(({ curves }) => curves.some((curve) => curve.x.length)))
    return message(pen, size.width, size.height, picture.emptyMessage, theme);
  const x = statisticsScale(picture, size.width);
  const each = rowHeight(picture.rows.length);
  const sparks = picture.rows.map((row, i) => sparkOf(row, i * each, each, picture));
  const parts = picture.rows.flatMap(({ name, log, curves }) => [name, log, ...curves.flatMap((c) => [c.y, c.colour])]);
  pen.cached([...parts, ...picture.range, picture.cut, picture.logX], (paper) => {
    for (const spark of sparks) drawSpark(paper, spark, x, size, theme, picture.logX, sparks.length === 1);
    const box = { x: x(x.domain[0]), y: 0, width: x(x.domain[1]) - x(x.domain[0]), height: size.height - FOOT };
    bottomAxis(paper, box, x, theme);
  });
  const [left, right] = [x(x.domain[0]), x(x.domain[1])];
  for (const { row, middle, y } of sparks)
    row.curves.forEach((curve, i) => {
      if (y) pen.clip(left - 4, 0, right - left + 8, size.height, () => at(pen, curve, x, y, picture.step, theme));
      pen.text(size.width, middle + (row.curves.length > 1 ? -5 : 4) + 16 * i, row.now[i] ?? "", {
        fill: i ? curve.colour : theme.ink,
        size: i ? 11 : 12,
        align: "right",
        mono: true,
      });
    });
  cursor(pen, { x: NAME, y: 0, width: size.width - NAME - NOW, height: size.height - FOOT }, x(picture.step), theme);
}

interface Spark {
  row: StatisticsRow;
  top: number;
  height: number;
  middle: number;
  ends: [number, number];
  /** undefined: no data */
  y: Scale | undefined;
}

/** Minimum and maximum per curve, cached because a drag needs them in each frame. */
const known = new WeakMap<ArrayLike<number>, { key: string; ends: [number, number] }>();

function endsOf(curve: Curve, range: readonly [number, number] | undefined, log: boolean): [number, number] {
  const key = `${range}/${log}`;
  const before = known.get(curve.y);
  if (before?.key === key) return before.ends;
  const ends = extent([curve], range && [...range], log);
  known.set(curve.y, { key, ends });
  return ends;
}

function sparkOf(row: StatisticsRow, top: number, height: number, picture: StatisticsPicture): Spark {
  const each = row.curves.map((curve) => endsOf(curve, picture.cut ? picture.range : undefined, row.log));
  const [lo, hi] = [Math.min(...each.map((e) => e[0])), Math.max(...each.map((e) => e[1]))];
  const up: [number, number] = [top + height - 5, top + 5];
  const y = Number.isFinite(lo) ? (row.log ? log(lo / 1.05, hi * 1.05, up) : linear(lo, hi, up)) : undefined;
  return { row, top, height, middle: top + height / 2, ends: [lo, hi], y };
}

function drawSpark(
  pen: Pen,
  { row, top, height, middle, ends, y }: Spark,
  x: Scale,
  size: Size,
  theme: Theme,
  logX: boolean,
  alone: boolean,
) {
  const [lo, hi] = ends;
  const [left, right] = [x(x.domain[0]), x(x.domain[1])];
  if (top) line(pen, 0, top + 0.5, size.width, top + 0.5, { stroke: theme.grid });
  pen.text(0, alone ? 12 : middle - 5, row.name, { fill: theme.ink, size: 12 });
  const notFinite = row.curves.flatMap((curve) => curve.notFinite ?? []);
  const box = { x: left, y: top + 2, width: right - left, height: height - 3 };
  drawNotFinite(pen, notFinite, box, x, theme, { label: top === 0, end: size.width });
  if (!y) {
    const text = notFinite.length ? "no finite values" : row.log ? "no values above 0" : "\u2013";
    return pen.text(left + 4, middle, text, { fill: theme.ink2, baseline: "middle" });
  }
  if (alone) leftAxis(pen, { ...box, y: top + 5, height: height - 10 }, y, theme);
  else {
    const text = lo === hi ? "constant" : rangeText(lo, hi, row.written);
    pen.text(0, middle + 10, text, { fill: theme.ink2, size: 10, maxWidth: NAME - 6 });
  }
  if (!row.log && lo < 0 && hi > 0) pen.path([left, y(0), right, y(0)], { stroke: theme.grid });
  // Values outside the range of steps would be drawn over the names and numbers.
  pen.clip(left - 3, top, right - left + 6, height, () => {
    for (const curve of row.curves) {
      const style = { stroke: curve.colour, width: 1.25, dash: curve.dash ?? [] };
      pen.path(tracePoints(curve, x, y, logX, row.log), style);
      lonePoints(pen, curve, x, y);
    }
  });
}
