/** Which of very many equal rows are in view. */

/** Browsers cut elements off at about 33.5 million pixels; beyond this the scroll position is scaled. */
const TALLEST = 8_000_000;

export interface VisibleRange {
  first: number;
  /** one after the last */
  last: number;
  /** pixels of the whole list as the scroll bar knows it */
  total: number;
  /** what to take from `index * size` to get the place within the scrolled element */
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
