/** Logarithmic scales, and symmetric ones: linear within ±c, logarithmic beyond. */
import { defined } from "./defined";
import { groupDigits } from "./format";
import { domain, linearTicks, makeScale, type Scale, type Tick, type Transform } from "./scale";

const LOG: Transform = { to: (x) => Math.log10(x), from: (t) => 10 ** t };
const symlog = (c: number): Transform => ({
  to: (x) => Math.sign(x) * Math.log1p(Math.abs(x) / c),
  from: (t) => Math.sign(t) * c * Math.expm1(Math.abs(t)),
});

const SUPER = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
/** Formats a power of ten: 10⁻³; small exponents as plain numbers. */
function power(exponent: number, sign = 1): string {
  const minus = sign < 0 ? "\u2212" : "";
  if (exponent >= -2 && exponent <= 3) return `${minus}${groupDigits(String(Number((10 ** exponent).toPrecision(1))))}`;
  const digits = [...String(Math.abs(exponent))].map((d) => SUPER[Number(d)]).join("");
  return `${minus}10${exponent < 0 ? "\u207b" : ""}${digits}`;
}

/** A logarithmic scale. Both ends must be positive. */
export function log(lo: number, hi: number, range: [number, number]): Scale {
  const top = hi > 0 && Number.isFinite(hi) ? hi : 1;
  const bottom = lo > 0 && lo < top ? lo : top / 10;
  return makeScale([bottom, top], range, LOG, (maxTicks) => {
    const first = Math.ceil(Math.log10(bottom) - 1e-9);
    const last = Math.floor(Math.log10(top) + 1e-9);
    if (last - first < 1) return linearTicks(bottom, top, maxTicks).filter((tick) => tick.value > 0);
    const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, maxTicks)));
    const out: Tick[] = [];
    for (let e = first; e <= last; e += every) out.push({ value: 10 ** e, label: power(e) });
    return out;
  });
}

export function symmetricLog(lo: number, hi: number, c: number, range: [number, number]): Scale {
  const [d0, d1] = domain(lo, hi);
  const near = c > 0 && Number.isFinite(c) ? c : Math.max(Math.abs(d0), Math.abs(d1)) / 1e3;
  return makeScale([d0, d1], range, symlog(near), (maxTicks) => {
    const first = Math.floor(Math.log10(near));
    const out: Tick[] = d0 <= 0 && d1 >= 0 ? [{ value: 0, label: "0" }] : [];
    for (const sign of [-1, 1]) {
      const end = sign < 0 ? -d0 : d1;
      if (end <= near) continue;
      const last = Math.floor(Math.log10(end) + 1e-9);
      const every = Math.max(1, Math.ceil((last - first) / Math.max(1, maxTicks / 2 - 1)));
      for (let e = last; e > first; e -= every) {
        const value = sign * 10 ** e;
        if (value >= d0 && value <= d1) out.push({ value, label: power(e, sign) });
      }
    }
    return out.sort((a, b) => a.value - b.value);
  });
}

/** The constant c of a symmetric log scale with these bin edges: the smallest non-zero magnitude. */
export function linearWidth(edges: ArrayLike<number>): number {
  let c = Number.POSITIVE_INFINITY;
  for (let i = 0; i < edges.length; i++) {
    const size = Math.abs(defined(edges[i]));
    if (size > 0 && size < c) c = size;
  }
  return Number.isFinite(c) ? c : 1;
}
