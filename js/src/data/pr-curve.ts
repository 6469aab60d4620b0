/** Precision-recall curves of TensorBoard's plugin. */
import { defined } from "../lib/defined";
import type { Values } from "./store";

export interface PrCurve {
  threshold: Float64Array;
  precision: Float64Array;
  recall: Float64Array;
  /** true positives, false positives, true negatives, false negatives by threshold, if they were loaded */
  counts: readonly Float64Array[] | undefined;
}

/** Rows of the logged tensor. */
export const ROWS = 6;
const PRECISION = 4;
const RECALL = 5;

/** The curve of the loaded rows, without thresholds above which nothing is positive, where precision is undefined. */
export function prCurve({ head, number }: Values): PrCurve | undefined {
  const [first, last] = head.rows;
  const columns = head.cols[1] - head.cols[0];
  if (!number || first > PRECISION || last !== ROWS || columns < 1) return undefined;
  const row = (i: number) => number.subarray((i - first) * columns, (i - first + 1) * columns);
  const counts = first === 0 ? [0, 1, 2, 3].map(row) : undefined;
  const positive = (i: number) =>
    counts ? defined(counts[0]?.[i]) + defined(counts[1]?.[i]) > 0 : defined(row(PRECISION)[i]) > 0;
  let n = columns;
  while (n > 1 && !positive(n - 1)) n--;
  const total = Math.max(1, head.shape[1] - 1);
  return {
    threshold: Float64Array.from({ length: n }, (_, i) => i / total),
    precision: row(PRECISION).subarray(0, n),
    recall: row(RECALL).subarray(0, n),
    counts: counts?.map((each) => each.subarray(0, n)),
  };
}

/** The mean of the precisions, weighted by the gain of recall. */
export function averagePrecision({ precision, recall }: PrCurve): number {
  let sum = 0;
  for (let i = 0; i < recall.length; i++) sum += (defined(recall[i]) - (recall[i + 1] ?? 0)) * defined(precision[i]);
  return sum;
}
