/** Formats numbers, sizes and names as text. */
import { escapeInvisible } from "./escape-text";

const MINUS = "\u2212";

/**
 * Groups digits in threes: "1234567.5" becomes "1,234,567.5". Intl.NumberFormat is about a thousand times slower, and
 * each frame of a drag formats a hundred numbers.
 */
export function groupDigits(digits: string): string {
  const point = digits.indexOf(".");
  let at = (point < 0 ? digits.length : point) - 3;
  let out = digits;
  const first = digits.startsWith("-") ? 1 : 0;
  for (; at > first; at -= 3) out = `${out.slice(0, at)},${out.slice(at)}`;
  return out;
}

/**
 * Formats a number with about `digits` significant digits.
 *
 *     num(0.000123456)  "1.235e−4"       num(-1234.5)  "−1,235"        num(90673, 3)  "9.07e4"
 */
export function num(x: number, digits = 4): string {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "+Inf" : `${MINUS}Inf`;
  if (x === 0) return "0";
  const size = Math.abs(x);
  let text: string;
  if (size >= (digits < 4 ? 1e4 : 1e6) || size < 1e-3) text = trim(x.toExponential(digits - 1)).replace("e+", "e");
  else if (size >= 10 ** (digits - 1)) text = groupDigits(String(Math.round(x)));
  else text = trim(x.toPrecision(digits));
  return text.replaceAll("-", MINUS);
}

/** The ends of a range with as few digits as make them differ, at most five. */
export function rangeEnds(
  lo: number,
  hi: number,
  written: (x: number, digits: number) => string = num,
): [string, string] {
  for (let digits = 2; digits < 5; digits++) {
    const [from, to] = [written(lo, digits), written(hi, digits)];
    if (from !== to) return [from, to];
  }
  return [written(lo, 5), written(hi, 5)];
}

/** Formats the ends of a range so that their texts differ: "0.351 … 0.354"; a very narrow range as "≈ 0.3511". */
export function rangeText(lo: number, hi: number, written: (x: number, digits: number) => string = num): string {
  const [from, to] = rangeEnds(lo, hi, written);
  return from === to ? `\u2248 ${written(lo, 4)}` : `${from} \u2026 ${to}`;
}

const HYPHEN_BEFORE_NUMBER = /(^|[\s([{,=:;]|\de)-(?=\d|\.\d|inf)/gi;

/** Writes the hyphens of negative numbers and exponents in a text as minus signs, as `num` does. */
export function minusSigns(text: string): string {
  return text.replace(HYPHEN_BEFORE_NUMBER, `$1${MINUS}`);
}

function trim(text: string): string {
  const [digits = "", exponent] = text.split("e");
  const short = digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;
  return exponent === undefined ? short : `${short}e${exponent}`;
}

/**
 * Formats a factor that is a power of ten, of decades: "×1.3", "÷4", "×10⁶"; "×1" of about none.
 */
export function factorText(decades: number): string {
  const size = Math.abs(decades);
  const sign = decades > 0 ? "\u00d7" : "\u00f7";
  if (size < 3.97) {
    const factor = num(10 ** size, size < 1 ? 2 : 3);
    return factor === "1" ? "\u00d71" : `${sign}${factor}`;
  }
  const whole = Math.floor(size + 0.022);
  const digit = Math.round(10 ** (size - whole));
  return `${sign}${digit > 1 ? `${digit}\u00b7` : ""}10${[...String(whole)].map((each) => SUPERSCRIPTS[Number(each)]).join("")}`;
}
const SUPERSCRIPTS = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079";

/** Formats an integer with separators: 12,345. */
export function count(n: number): string {
  // `+ 0` converts -0 to 0.
  return Number.isFinite(n) ? wholeNumber(Math.round(n) + 0) : num(n);
}

// From 1e21 on, String(n) uses an exponent.
const wholeNumber = (n: number) => (Math.abs(n) < 1e21 ? groupDigits(String(n)).replace("-", MINUS) : num(n));

/** Formats a share: "0%", "0.02%", "12.5%", "100%". Only exact shares give 0% and 100%. */
export function percent(share: number): string {
  if (!Number.isFinite(share)) return "\u2013";
  if (share === 0) return "0%";
  if (share === 1) return "100%";
  const p = share * 100;
  if (p < 0.01) return "<0.01%";
  if (p > 99.99) return ">99.99%";
  return `${Number(p.toPrecision(p >= 10 ? 3 : 2))}%`;
}

export function bytes(n: number): string {
  if (!Number.isFinite(n)) return "\u2013";
  for (const [unit, size] of [
    ["GB", 1e9],
    ["MB", 1e6],
    ["KB", 1e3],
  ] as const)
    if (n >= size) return `${Number((n / size).toPrecision(3))} ${unit}`;
  return `${n} B`;
}

/** Formats a shape: `[128, 784]` as "128 × 784", a 0-d shape as "scalar". */
export function shape(sizes: number[]): string {
  return sizes.length ? sizes.map(count).join(" \u00d7 ") : "scalar";
}

/** Truncates and escapes text from a run, which can have any length. */
export function truncate(text: string, most = 300): string {
  return escapeInvisible(
    text.length <= most ? text : `${text.slice(0, most)}\u2026 (${count(text.length)} characters)`,
  );
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Formats a count for an axis: 950, 1.2k, 35k, 4M. */
export function compactCount(n: number): string {
  for (const [unit, size] of [
    ["G", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ] as const)
    if (Math.abs(n) >= size) return `${Number((n / size).toPrecision(2))}${unit}`;
  return String(Number(n.toPrecision(3)));
}
