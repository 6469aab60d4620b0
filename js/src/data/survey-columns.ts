/** One number per tensor from a survey, over a range of steps: what a query compares and sorts by. */

import { defined } from "../lib/defined";
import { Memo } from "../lib/memo";
import type { MapStat } from "../protocol/types";
import { codePosition, codeValue, FLAG, isLog, NOT_FINITE_FLAGS, type Survey, type SurveyBlock } from "./survey";

export interface SurveyColumns {
  first: Float64Array;
  last: Float64Array;
  /** the value that is farthest from the median */
  worst: Float64Array;
  largest: Float64Array;
  /** largest divided by smallest value */
  change: Float64Array;
  /** the bins merge several steps, or have only their most unusual value */
  pooled: boolean;
}

const memos = new WeakMap<Survey, Memo<SurveyColumns>>();

/** The columns of `tensors` tensors. NaN: no value in the range. */
export function surveyColumns(survey: Survey, tensors: number, range?: readonly [number, number]): SurveyColumns {
  const memo = memos.get(survey) ?? new Memo<SurveyColumns>();
  memos.set(survey, memo);
  return memo.of([survey.version, tensors, range], () => readColumns(survey, tensors, range));
}

function readColumns(survey: Survey, tensors: number, range?: readonly [number, number]): SurveyColumns {
  const column = () => new Float64Array(tensors).fill(Number.NaN);
  const [first, last, worst, largest, change] = [column(), column(), column(), column(), column()];
  const columns: SurveyColumns = { first, last, worst, largest, change, pooled: false };
  const [from, to] = range ?? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  const best = widest(survey, tensors, from, to);
  for (let tensor = 0; tensor < tensors; tensor++) {
    const block = best[tensor];
    if (!block) continue;
    columns.pooled ||= block.poster || block.level > 0;
    readRow(block, survey.stat, tensor, from, to, columns);
  }
  return columns;
}

/** By tensor, the block that covers most of the range; of several the finest. */
function widest(survey: Survey, tensors: number, from: number, to: number): (SurveyBlock | undefined)[] {
  const best = new Array<SurveyBlock | undefined>(tensors);
  const most = new Float64Array(tensors);
  for (const block of survey.blocks) {
    const width = 2 ** block.level;
    const covered = Math.min(to, (block.first + block.bins) * width) - Math.max(from, block.first * width);
    for (const tensor of block.rows.keys()) {
      // A block of coarser bins extends a little beyond the last step.
      if (tensor >= tensors || covered <= 0 || covered < defined(most[tensor]) - 2 * width) continue;
      best[tensor] = block;
      most[tensor] = covered;
    }
  }
  return best;
}

function readRow(
  block: SurveyBlock,
  stat: MapStat,
  tensor: number,
  from: number,
  to: number,
  columns: SurveyColumns,
): void {
  const row = block.rows.get(tensor) as number;
  const width = 2 ** block.level;
  const start = row * block.stride;
  const [lo, mid, hi] = (["lo", "mid", "hi"] as const).map((name) => block.array(name));
  const shown = block.array("shown");
  const first = Math.max(0, Math.floor(from / width) - block.first);
  const end = Math.min(block.bins, Math.floor(to / width) + 1 - block.first);
  let [least, most, begin, last] = [65536, 0, 0, 0];
  for (let i = start + first; i < start + end; i++) {
    const middle = shown ? shownCode(defined(shown[i])) : defined(mid?.[i]);
    if (!middle) continue;
    begin ||= middle;
    last = middle;
    const [low, high] = shown ? [middle, middle] : [defined(lo?.[i]), defined(hi?.[i])];
    if (low < least) least = low;
    if (high > most) most = high;
  }
  if (!last) return;
  const value = (code: number) => (stat === "surprise" ? Math.abs(codePosition(stat, code)) : codeValue(stat, code));
  columns.first[tensor] = value(begin);
  columns.last[tensor] = value(last);
  columns.largest[tensor] = Math.max(value(least), value(most));
  columns.change[tensor] = least === most ? 1 : value(most) / value(least);
  const centre = block.centre(row);
  columns.worst[tensor] =
    isLog(stat) && most - centre < centre - least ? value(least) : defined(columns.largest[tensor]);
}

/** The middle of the codes with this high byte. */
const shownCode = (byte: number) => byte && (byte << 8) | 128;

export interface SurveyPoints {
  /** a bin of several values has its extremes, too */
  x: number[];
  y: number[];
  /** steps at which values are not finite, and whether any is NaN, by bin that was saved */
  saved: number[];
  notFinite: ("nan" | "posInf" | undefined)[];
}

/** The values of a tensor as points. */
export function surveyPoints(survey: Survey, tensor: number): SurveyPoints {
  const out: SurveyPoints = { x: [], y: [], saved: [], notFinite: [] };
  const block = widestOf(survey, tensor);
  if (!block) return out;
  const { stat } = survey;
  const width = 2 ** block.level;
  const start = (block.rows.get(tensor) as number) * block.stride;
  const [lo, mid, hi, flag] = (["lo", "mid", "hi", "flag"] as const).map((name) => block.array(name));
  const shown = block.array("shown");
  for (let i = start; i < start + block.bins; i++) {
    const codes = shown ? [shownCode(defined(shown[i]))] : [lo?.[i] ?? 0, mid?.[i] ?? 0, hi?.[i] ?? 0];
    const bits = (flag?.[i] ?? 0) & NOT_FINITE_FLAGS;
    const step = (block.first + i - start) * width + (width - 1) / 2;
    if (!codes[0] && !bits) continue;
    out.saved.push(step);
    out.notFinite.push(bits & FLAG.nan ? "nan" : bits ? "posInf" : undefined);
    for (const code of codes[0] ? new Set(codes) : []) {
      out.x.push(step);
      out.y.push(codeValue(stat, code));
    }
  }
  return out;
}

/** The smallest and the largest value of tensors; of a logarithmic statistic other than 0. */
export function surveyEnds(survey: Survey, tensors: readonly number[]): [number, number] | undefined {
  let [least, most] = [65536, 0];
  const lowest = isLog(survey.stat) ? 2 : 1;
  for (const tensor of tensors) {
    const block = widestOf(survey, tensor);
    if (!block) continue;
    const start = (block.rows.get(tensor) as number) * block.stride;
    const [low, high] = block.poster
      ? [block.array("shown"), block.array("shown")]
      : [block.array("lo"), block.array("hi")];
    for (let i = start; i < start + block.bins; i++) {
      const [a, b] = [low?.[i] ?? 0, high?.[i] ?? 0].map((code) => (block.poster ? shownCode(code) : code));
      if ((a as number) >= lowest && (a as number) < least) least = a as number;
      if ((b as number) >= lowest && (b as number) > most) most = b as number;
    }
  }
  return least <= most ? [codeValue(survey.stat, least), codeValue(survey.stat, most)] : undefined;
}

/** The block that has most steps of a tensor; of several the finest. */
function widestOf(survey: Survey, tensor: number): SurveyBlock | undefined {
  let best: SurveyBlock | undefined;
  for (const block of survey.blocks) {
    if (!block.rows.has(tensor)) continue;
    const width = 2 ** block.level;
    // A block of coarser bins extends a little beyond the last step.
    if (!best || block.bins * width >= best.bins * 2 ** best.level - 2 * 2 ** best.level) best = block;
  }
  return best;
}
