/** Computes the visible range of a virtual list. */

/** Browsers limit elements to about 33.5 million pixels. Longer lists scale the scroll position. */
const TALLEST = 8_000_000;

export interface VisibleRange {
  first: number;
  /** one after the last */
  last: number;
  /** height of the list in scroll pixels */
  total: number;
  /** subtract from `index * size` to get the position in the scrolled element */
  shift: number;
}

export function visibleRange(n: number, size: number, scroll: number, view: number): VisibleRange {
  const real = n * size;
  const total = Math.min(real, TALLEST);
  const most = Math.max(0, total - view);
  const at = total === real ? scroll : (Math.min(scroll, most) / Math.max(1, most)) * Math.max(0, real - view);
  const first = Math.max(0, Math.min(n - 1, Math.floor(at / size)));
  const last = Math.max(first + 1, Math.min(n, Math.ceil((at + Math.max(view, size)) / size)));
  return { first: n ? first : 0, last: n ? last : 0, total, shift: at - scroll };
}
