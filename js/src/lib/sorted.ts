/** Index of the first entry that is not smaller; the length if all are. */
import { defined } from "./defined";
export function lowerIndex(rising: ArrayLike<number>, x: number): number {
  let lo = 0;
  let hi = rising.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (defined(rising[mid]) < x) lo = mid + 1;
    else hi = mid;
  }
  return lo;
}
