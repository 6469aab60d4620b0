/** A series, split by mode, because a curve must not connect training and evaluation. */
import { defined } from "../lib/defined";
import type { Series } from "./store";

export interface ModePart {
  mode: number;
  x: Float64Array;
  y: Float64Array;
  /** index of each value in the series */
  at: readonly number[];
}

/** `only`: a mode number, or 0 for all. */
export function byMode(data: Series, modeOf: (step: number) => number, only = 0): ModePart[] {
  const rows = new Map<number, number[]>();
  for (let i = 0; i < data.step.length; i++) {
    const mode = modeOf(defined(data.step[i]));
    if (only && mode !== only) continue;
    const list = rows.get(mode);
    if (list) list.push(i);
    else rows.set(mode, [i]);
  }
  return [...rows]
    .sort(([a], [b]) => a - b)
    .map(([mode, at]) => ({
      mode,
      at,
      x: Float64Array.from(at, (i) => defined(data.step[i])),
      y: Float64Array.from(at, (i) => defined(data.y[i])),
    }));
}
