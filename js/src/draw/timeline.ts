/** Draws the track of the step slider and the outcome strips of rules. */
import { modeColour } from "../lib/colour";
import { count } from "../lib/format";
import { linear, type Scale } from "../lib/scale";
import { crisp } from "./axes";
import { line, type Pen, type Size } from "./pen";
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
  const lo = labels.length ? (labels[0] as number) : 0;
  const hi = labels.length ? (labels[labels.length - 1] as number) : 1;
  // A single step is centred.
  return linear(hi > lo ? lo : lo - 1, hi > lo ? hi : hi + 1, [
    TRACK_MARGIN,
    Math.max(TRACK_MARGIN + 10, width - TRACK_MARGIN),
  ]);
}

/** Vertical positions, from the top. */
const TRACK = { fired: 2, ticks: 13, tickHeight: 9, line: 27, labels: 33 } as const;
/** Half the width of an incident's mark: wider than the thumb, so that its tips are visible beside it. */
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
      const a = x(picture.labels[from] as number);
      const b = x(picture.labels[i - 1] as number);
      pen.rect(a - 1, TRACK.line - 1, Math.max(2, b - a + 2), 3, { fill: theme.accent, opacity: 0.55 });
      from = -1;
    }
    if (i === n) break;
    const px = Math.round(x(picture.labels[i] as number));
    const mode = picture.modes[i] as number;
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
    const px = Math.round(x(picture.fired[i] as number));
    if (fired.has(px)) continue;
    fired.add(px);
    pen.path([px - 4, TRACK.fired, px + 4, TRACK.fired, px, TRACK.fired + 7], { fill: theme.error }, true);
  }
  const marked = new Set<number>();
  for (let i = 0; i < picture.incidents.length; i++) {
    const px = Math.round(x(picture.incidents[i] as number));
    if (marked.has(px)) continue;
    marked.add(px);
    const y = TRACK.line + 0.5;
    const diamond = (r: number) => [px - r, y, px, y - r, px + r, y, px, y + r];
    pen.path(diamond(INCIDENT + 1.5), { fill: theme.surface }, true);
    pen.path(diamond(INCIDENT), { fill: theme.incident }, true);
  }
  let free = 0;
  const last = picture.labels.length ? (picture.labels[n - 1] as number) : 0;
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

interface OutcomesPicture {
  outcomes: ReadonlyMap<number, number>;
  /** changes with the outcomes */
  version: number;
  step: number;
  range: readonly [number, number];
}

/** Draws the outcomes of one rule. Fired and error are taller, so that they are distinct without colour. */
export function drawOutcomes(pen: Pen, size: Size, theme: Theme, picture: OutcomesPicture): void {
  const x = linear(picture.range[0], picture.range[1], [4, size.width - 4]);
  pen.cached([picture.version, ...picture.range], (paper) => outcomeMarks(paper, size, theme, picture, x));
  if (Number.isFinite(picture.step))
    line(pen, crisp(x(picture.step)), 0, crisp(x(picture.step)), size.height, { stroke: theme.ink });
}

function outcomeMarks(pen: Pen, size: Size, theme: Theme, { outcomes }: OutcomesPicture, x: Scale) {
  const base = size.height - 3;
  pen.rect(4, base, size.width - 8, 1, { fill: theme.grid });
  const columns = new Map<number, number>();
  // Of the steps in one column the most severe outcome is drawn: error, fired, passed, skipped.
  const worse = [0, 2, 3, 1, 4];
  for (const [step, outcome] of outcomes) {
    const px = Math.round(x(step));
    const now = columns.get(px) ?? 0;
    if ((worse[outcome] ?? 0) > (worse[now] ?? 0)) columns.set(px, outcome);
  }
  const next = columns.size > 1 ? Math.max(1, Math.min(6, (size.width - 8) / columns.size - 1)) : 4;
  for (const [px, outcome] of columns) {
    if (outcome === 1) pen.rect(px - next / 2, base - 5, next, 5, { fill: theme.accent, opacity: 0.45 });
    else if (outcome === 3) pen.rect(px - next / 2, base - 2, next, 2, { fill: theme.ink2, opacity: 0.6 });
    else if (outcome === 2) pen.rect(px - Math.max(next, 2) / 2, 3, Math.max(next, 2), base - 3, { fill: theme.error });
    else if (outcome === 4)
      pen.path([px - 3, 5, px + 3, base - 2, Number.NaN, Number.NaN, px + 3, 5, px - 3, base - 2], {
        stroke: theme.warn,
        width: 1.5,
      });
  }
}
