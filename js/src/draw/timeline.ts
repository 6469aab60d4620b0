/** Draws the track of the step slider. */

import { modeColour } from "../lib/colour";
import { defined } from "../lib/defined";
import { count } from "../lib/format";
import { linear, type Scale } from "../lib/scale";
import { crisp, line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

interface TrackPicture {
  /** axis positions of the steps, and their modes */
  labels: ArrayLike<number>;
  modes: ArrayLike<number>;
  /** per step: 0 nothing saved of this tensor, 1 saved, 2 loaded */
  state: Uint8Array;
  /** axis positions where a rule fired */
  fired: ArrayLike<number>;
  /** axis positions of incidents */
  incidents: ArrayLike<number>;
  compare: number | undefined;
  hover: number | undefined;
}

const TRACK_MARGIN = 10;

export function trackScale(labels: ArrayLike<number>, width: number): Scale {
  const lo = labels.length ? defined(labels[0]) : 0;
  const hi = labels.length ? defined(labels[labels.length - 1]) : 1;
  // A single step is centred.
  return linear(hi > lo ? lo : lo - 1, hi > lo ? hi : hi + 1, [
    TRACK_MARGIN,
    Math.max(TRACK_MARGIN + 10, width - TRACK_MARGIN),
  ]);
}

/** Vertical positions, from the top. */
const TRACK = { fired: 2, ticks: 13, tickHeight: 9, line: 27, labels: 33 } as const;
/** Half the width of an incident's mark: wider than the thumb, so that the thumb does not hide its tips. */
export const INCIDENT = 7;

export function drawTrack(pen: Pen, size: Size, theme: Theme, picture: TrackPicture): void {
  const x = trackScale(picture.labels, size.width);
  const n = picture.labels.length;
  const [start, end] = [x(x.domain[0]), x(x.domain[1])];
  pen.rect(start, TRACK.line - 1, end - start, 3, { fill: theme.grid });
  // A column of pixels can contain many steps: draw one tick per column and mode, and one line per contiguous range.
  const seen = new Set<string>();
  let from = -1;
  for (let i = 0; i <= n; i++) {
    const here = i < n && picture.state[i] === 2;
    if (here && from < 0) from = i;
    if (!here && from >= 0) {
      const a = x(defined(picture.labels[from]));
      const b = x(defined(picture.labels[i - 1]));
      pen.rect(a - 1, TRACK.line - 1, Math.max(2, b - a + 2), 3, { fill: theme.accent, opacity: 0.55 });
      from = -1;
    }
    if (i === n) break;
    const px = Math.round(x(defined(picture.labels[i])));
    const mode = defined(picture.modes[i]);
    const faint = picture.state[i] === 0;
    const key = `${px}/${mode}/${faint}`;
    if (seen.has(key)) continue;
    seen.add(key);
    line(pen, px + 0.5, TRACK.ticks, px + 0.5, TRACK.ticks + (faint ? 3 : TRACK.tickHeight), {
      stroke: modeColour(mode, theme.dark),
      opacity: faint ? 0.45 : 0.9,
    });
  }
  const fired = new Set<number>();
  for (let i = 0; i < picture.fired.length; i++) {
    const px = Math.round(x(defined(picture.fired[i])));
    if (fired.has(px)) continue;
    fired.add(px);
    pen.path([px - 4, TRACK.fired, px + 4, TRACK.fired, px, TRACK.fired + 7], { fill: theme.error }, true);
  }
  const marked = new Set<number>();
  for (let i = 0; i < picture.incidents.length; i++) {
    const px = Math.round(x(defined(picture.incidents[i])));
    if (marked.has(px)) continue;
    marked.add(px);
    const y = TRACK.line + 0.5;
    const diamond = (r: number) => [px - r, y, px, y - r, px + r, y, px, y + r];
    pen.path(diamond(INCIDENT + 1.5), { fill: theme.surface }, true);
    pen.path(diamond(INCIDENT), { fill: theme.incident }, true);
  }
  let free = 0;
  const last = picture.labels.length ? defined(picture.labels[n - 1]) : 0;
  const ends = n ? [{ value: last, label: count(last) }] : [];
  const inner = x
    .ticks(Math.max(2, Math.floor(size.width / 80)))
    .filter((tick) => n > 1 && Number.isInteger(tick.value));
  for (const tick of inner) {
    const px = x(tick.value);
    const label = count(tick.value);
    const half = pen.measure(label, { fill: "" }) / 2;
    const endHalf = ends[0] ? pen.measure(ends[0].label, { fill: "" }) : 0;
    if (px - half < free || px + half > end - endHalf - 6) continue;
    free = px + half + 8;
    pen.text(px, TRACK.labels, label, { fill: theme.ink2, align: "center", baseline: "top", size: 10 });
  }
  for (const tick of ends)
    pen.text(Math.min(x(tick.value), size.width), TRACK.labels, tick.label, {
      fill: theme.ink2,
      align: n > 1 ? "right" : "center",
      baseline: "top",
      size: 10,
    });
  if (picture.compare !== undefined) {
    const px = crisp(x(picture.compare));
    pen.path([px, TRACK.ticks - 2, px, TRACK.line + 4], { stroke: theme.ink2, width: 1.5, dash: [2, 2] });
  }
  if (picture.hover !== undefined)
    line(pen, crisp(x(picture.hover)), TRACK.ticks - 2, crisp(x(picture.hover)), TRACK.line + 4, {
      stroke: theme.ink2,
      opacity: 0.6,
    });
}
