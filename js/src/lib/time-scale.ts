/** Scales of time. */
import { num } from "./format";
import { domain, LINEAR, makeScale, niceStep, type Scale, type Tick } from "./scale";
import { MONTHS } from "./time-text";

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
  return makeScale([d0, d1], range, LINEAR, (maxTicks) => {
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
