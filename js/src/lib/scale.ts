/**
 * Scales from values to pixels, with ticks: linear, logarithmic, and symmetric log (linear within ±c, logarithmic
 * beyond).
 */
import { groupDigits, MONTHS, num } from "./format";

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

type Transform = { to(x: number): number; from(t: number): number };
const LINEAR: Transform = { to: (x) => x, from: (t) => t };
const LOG: Transform = { to: (x) => Math.log10(x), from: (t) => 10 ** t };
const symlog = (c: number): Transform => ({
  to: (x) => Math.sign(x) * Math.log1p(Math.abs(x) / c),
  from: (t) => Math.sign(t) * c * Math.expm1(Math.abs(t)),
});

function make(
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
function niceStep(span: number, maxTicks: number): number {
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

const SUPER = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";
/** Formats a power of ten: 10⁻³; small exponents as plain numbers. */
function power(exponent: number, sign = 1): string {
  const minus = sign < 0 ? "\u2212" : "";
  if (exponent >= -2 && exponent <= 3) return `${minus}${groupDigits(String(Number((10 ** exponent).toPrecision(1))))}`;
  const digits = [...String(Math.abs(exponent))].map((d) => SUPER[Number(d)]).join("");
  return `${minus}10${exponent < 0 ? "\u207b" : ""}${digits}`;
}

export function linear(lo: number, hi: number, range: [number, number]): Scale {
  const [d0, d1] = domain(lo, hi);
  return make([d0, d1], range, LINEAR, (maxTicks) => linearTicks(d0, d1, maxTicks));
}

/** A logarithmic scale. Both ends must be positive. */
export function log(lo: number, hi: number, range: [number, number]): Scale {
  const top = hi > 0 && Number.isFinite(hi) ? hi : 1;
  const bottom = lo > 0 && lo < top ? lo : top / 10;
  return make([bottom, top], range, LOG, (maxTicks) => {
    const first = Math.ceil(Math.log10(bottom) - 1e-9);
    const last = Math.floor(Math.log10(top) + 1e-9);
    if (last - first < 1) return linearTicks(bottom, top, maxTicks).filter((tick) => tick.value > 0);
    const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(2, maxTicks)));
    const out: Tick[] = [];
    for (let e = first; e <= last; e += every) out.push({ value: 10 ** e, label: power(e) });
    return out;
  });
}

const MINUTE = 60;
const HOUR = 3600;
const DAY = 86_400;
/** Intervals between ticks of a time axis, in seconds. */
const TIME_STEPS = [1, 2, 5, 10, 15, 30]
  .concat([1, 2, 5, 10, 15, 30].map((n) => n * MINUTE))
  .concat([1, 2, 3, 6, 12].map((n) => n * HOUR))
  .concat([1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((n) => n * DAY));

/** A linear scale of seconds: elapsed ones, or Unix time in the browser's time zone. */
export function time(lo: number, hi: number, range: [number, number], wall: boolean): Scale {
  const [d0, d1] = domain(lo, hi);
  return make([d0, d1], range, LINEAR, (maxTicks) => {
    // Times of day are wider than numbers.
    const most = Math.max(2, wall ? Math.floor(maxTicks * 0.8) : maxTicks);
    const step = TIME_STEPS.find((each) => (d1 - d0) / each <= most) ?? niceStep(d1 - d0, most);
    const least = (d1 - d0) / 2 < 1 ? niceStep(d1 - d0, most) : step;
    const offset = wall ? new Date(d0 * 1000).getTimezoneOffset() * MINUTE : 0;
    const out: Tick[] = [];
    for (let i = Math.ceil((d0 - offset) / least - 1e-9); i * least + offset <= d1 && out.length <= most + 2; i++) {
      const value = i * least + offset;
      out.push({ value, label: wall ? clockLabel(value, least) : elapsedLabel(value, least) });
    }
    return out;
  });
}

const two = (n: number) => String(n).padStart(2, "0");

function elapsedLabel(seconds: number, step: number): string {
  if (seconds === 0) return "0";
  const sign = seconds < 0 ? "\u2212" : "";
  const s = Math.abs(seconds);
  if (step >= DAY) return `${sign}${Math.round(s / DAY)} d`;
  if (s >= DAY) return `${sign}${Math.floor(s / DAY)} d ${Math.round((s % DAY) / HOUR)} h`;
  if (step >= HOUR) return `${sign}${Math.round(s / HOUR)} h`;
  if (s >= HOUR && s % HOUR === 0) return `${sign}${s / HOUR} h`;
  if (s >= HOUR) return `${sign}${Math.floor(s / HOUR)}:${two(Math.round((s % HOUR) / MINUTE))} h`;
  if (step >= MINUTE) return `${sign}${Math.round(s / MINUTE)} min`;
  if (s >= MINUTE) return `${sign}${Math.floor(s / MINUTE)}:${two(Math.round(s % MINUTE))} min`;
  return `${sign}${num(s, 3)} s`;
}

function clockLabel(seconds: number, step: number): string {
  const date = new Date(Math.round(seconds) * 1000);
  const midnight = date.getHours() + date.getMinutes() + date.getSeconds() === 0;
  if (step >= DAY || midnight) return `${MONTHS[date.getMonth()]} ${date.getDate()}`;
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  return step >= MINUTE ? minutes : `${minutes}:${two(date.getSeconds())}`;
}

export function symmetricLog(lo: number, hi: number, c: number, range: [number, number]): Scale {
  const [d0, d1] = domain(lo, hi);
  const near = c > 0 && Number.isFinite(c) ? c : Math.max(Math.abs(d0), Math.abs(d1)) / 1e3;
  return make([d0, d1], range, symlog(near), (maxTicks) => {
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
    const size = Math.abs(edges[i] as number);
    if (size > 0 && size < c) c = size;
  }
  return Number.isFinite(c) ? c : 1;
}
