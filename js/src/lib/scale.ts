/** Linear scales from values to pixels, with ticks. */
import { groupDigits, num } from "./format";

export interface Scale {
  (value: number): number;
  invert(pixel: number): number;
  ticks(maxTicks: number): Tick[];
  readonly domain: readonly [number, number];
}
export interface Tick {
  value: number;
  label: string;
}

export type Transform = { to(x: number): number; from(t: number): number };
export const LINEAR: Transform = { to: (x) => x, from: (t) => t };

export function makeScale(
  [d0, d1]: [number, number],
  [r0, r1]: [number, number],
  transform: Transform,
  ticks: (maxTicks: number) => Tick[],
): Scale {
  const t0 = transform.to(d0);
  const span = transform.to(d1) - t0 || 1;
  const scale = (value: number) => r0 + ((transform.to(value) - t0) / span) * (r1 - r0);
  return Object.assign(scale, {
    invert: (pixel: number) => transform.from(t0 + ((pixel - r0) / (r1 - r0 || 1)) * span),
    ticks,
    domain: [d0, d1] as const,
  });
}

/** A finite, non-empty range for any data. */
export function domain(lo: number, hi: number): [number, number] {
  if (!Number.isFinite(lo) || !Number.isFinite(hi) || lo > hi) return [0, 1];
  if (lo < hi) return [lo, hi];
  const room = Math.abs(lo) * 0.5 || 0.5;
  return [lo - room, hi + room];
}

/** The step of 1, 2 or 5 times a power of ten that gives at most about `maxTicks` intervals. */
export function niceStep(span: number, maxTicks: number): number {
  const rough = span / Math.max(1, maxTicks);
  const power = 10 ** Math.floor(Math.log10(rough));
  const ratio = rough / power;
  return (ratio <= 1 ? 1 : ratio <= 2 ? 2 : ratio <= 5 ? 5 : 10) * power;
}

export function linearTicks(lo: number, hi: number, maxTicks: number): Tick[] {
  const step = niceStep(hi - lo, maxTicks);
  if (!(step > 0) || !Number.isFinite(step)) return [];
  const out: Tick[] = [];
  const first = Math.ceil(lo / step - 1e-9);
  const last = Math.floor(hi / step + 1e-9);
  for (let i = first; i <= last && out.length <= maxTicks + 2; i++) {
    // Multiply instead of adding up, which accumulates rounding errors.
    const value = i * step || 0;
    out.push({ value, label: tickLabel(value, step) });
  }
  return out;
}

function tickLabel(value: number, step: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || step < 1e-4) return num(value, 6);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return groupDigits(value.toFixed(decimals)).replace("-", "\u2212");
}

export function linear(lo: number, hi: number, range: [number, number]): Scale {
  const [d0, d1] = domain(lo, hi);
  return makeScale([d0, d1], range, LINEAR, (maxTicks) => linearTicks(d0, d1, maxTicks));
}
