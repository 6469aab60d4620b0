/** Times as text. */
import { count, num } from "./format";

export const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/** Formats seconds in two units: "0.25 s", "3 min 20 s", "1 h 5 min", "2 d 3 h". */
export function duration(seconds: number): string {
  if (!(seconds >= 60)) return `${num(seconds, 3)} s`;
  const units = [
    ["d", 86_400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ] as const;
  const whole = Math.round(seconds);
  const i = units.findIndex(([, size]) => whole >= size);
  const rest = Math.floor((whole % (units[i]?.[1] ?? 1)) / (units[i + 1]?.[1] ?? 1));
  const first = `${count(Math.floor(whole / (units[i]?.[1] ?? 1)))} ${units[i]?.[0]}`;
  return rest ? `${first} ${rest} ${units[i + 1]?.[0]}` : first;
}

/** The local date and time of a Unix time: "Nov 22, 2026 21:30:05". */
export function dateTime(seconds: number): string {
  const date = new Date(seconds * 1000);
  return `${MONTHS[date.getMonth()]} ${date.getDate()}, ${date.getFullYear()} ${date.toTimeString().slice(0, 8)}`;
}

/** The local time of day of a Unix time, with the date if it is another day. */
export function clockTime(seconds: number, now = new Date()): string {
  const date = new Date(seconds * 1000);
  const time = date.toTimeString().slice(0, 8);
  return date.toDateString() === now.toDateString() ? time : `${date.toDateString()} ${time}`;
}
