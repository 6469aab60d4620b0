/** Curves of runs in bins of steps, which are common to all runs: those of a coarser level contain those of a finer. */
import { defined } from "../lib/defined";

export interface RunCurve {
  /** bin k covers the steps k * 2^level to (k + 1) * 2^level, the end exclusive */
  level: number;
  first: number;
  /** values of the codes 1 and 65535; code 0 is no finite value */
  low: number;
  high: number;
  lo: Uint16Array;
  hi: Uint16Array;
}

export const NO_CURVE: RunCurve = {
  level: 0,
  first: 0,
  low: 0,
  high: 0,
  lo: new Uint16Array(0),
  hi: new Uint16Array(0),
};

/** Steps, and smallest, middle and largest values there. */
export interface Envelope {
  x: number[];
  lo: number[];
  mid: number[];
  hi: number[];
  /** number of runs, of a group */
  n?: number[];
}

const LARGEST = 65534;

/** The value of a code. Halves, because the difference of the largest numbers overflows. */
const decoded = ({ low, high }: RunCurve, code: number) => {
  const share = (code - 1) / LARGEST;
  return low * (1 - share) + high * share;
};

const middle = (bin: number, level: number) => (level === 0 ? bin : (bin + 0.5) * 2 ** level);

/** A curve as values; bins without finite values are NaN, so that a line has a gap there. */
export function envelope(curve: RunCurve): Envelope {
  const out: Envelope = { x: [], lo: [], mid: [], hi: [] };
  let last = curve.lo.length - 1;
  while (last >= 0 && !curve.hi[last]) last--;
  for (let k = 0; k <= last; k++) {
    const code = defined(curve.hi[k]);
    const lo = code ? decoded(curve, defined(curve.lo[k])) : Number.NaN;
    const hi = code ? decoded(curve, code) : Number.NaN;
    out.x.push(middle(curve.first + k, curve.level));
    out.lo.push(lo);
    out.hi.push(hi);
    out.mid.push(lo / 2 + hi / 2);
  }
  return out;
}

/** A curve in bins of a coarser level: bin -> smallest and largest value. */
function coarser(curve: RunCurve, level: number): Map<number, [number, number]> {
  const out = new Map<number, [number, number]>();
  for (let k = 0; k < curve.lo.length; k++) {
    if (!curve.hi[k]) continue;
    const bin = Math.floor((curve.first + k) / 2 ** (level - curve.level));
    const [lo, hi] = [decoded(curve, defined(curve.lo[k])), decoded(curve, defined(curve.hi[k]))];
    const known = out.get(bin);
    out.set(bin, known ? [Math.min(known[0], lo), Math.max(known[1], hi)] : [lo, hi]);
  }
  return out;
}

/** Mean and standard deviation (of a sample) over runs, in the bins in which at least two have a value. */
export function spread(curves: readonly RunCurve[]): Envelope {
  const level = Math.max(0, ...curves.map((curve) => curve.level));
  const bins = new Map<number, number[]>();
  for (const curve of curves)
    for (const [bin, [lo, hi]] of coarser(curve, level)) {
      const found = bins.get(bin) ?? [];
      found.push(lo / 2 + hi / 2);
      bins.set(bin, found);
    }
  const out = { x: [] as number[], lo: [] as number[], mid: [] as number[], hi: [] as number[], n: [] as number[] };
  let before = Number.NaN;
  for (const [bin, values] of [...bins].sort((a, b) => a[0] - b[0])) {
    const n = values.length;
    if (n < 2) continue;
    const mean = values.reduce((sum, value) => sum + value / n, 0);
    const std = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (n - 1));
    if (bin > before + 1) push(out, middle(bin - 1, level), Number.NaN, Number.NaN, 0);
    push(out, middle(bin, level), mean, std, n);
    before = bin;
  }
  return out;
}

function push(out: Required<Envelope>, x: number, mean: number, std: number, n: number) {
  out.x.push(x);
  out.lo.push(mean - std);
  out.mid.push(mean);
  out.hi.push(mean + std);
  out.n.push(n);
}
