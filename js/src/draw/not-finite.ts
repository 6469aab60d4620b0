/** Marks where values over steps are NaN or infinite. */

import { NOT_FINITE, type NotFinite } from "../lib/colour";
import { defined } from "../lib/defined";
import { count } from "../lib/format";
import type { Scale } from "../lib/scale";
import type { Box } from "./axes";
import { crisp, line, type Pen } from "./pen";
import type { Theme } from "./theme";

const NAMES: Record<NotFinite, string> = { nan: "NaN", posInf: "+Inf", negInf: "\u2212Inf" };

/** Consecutive saved steps whose values are not finite in the same way. */
export interface NotFiniteRange {
  kind: NotFinite;
  first: number;
  last: number;
  /** the first step, if `first` and `last` are times */
  step?: number;
  /** whether it lasts until the last saved step */
  open: boolean;
}

export const kindOf = (x: number): NotFinite | undefined =>
  Number.isFinite(x) ? undefined : Number.isNaN(x) ? "nan" : x > 0 ? "posInf" : "negInf";

export function notFiniteRanges(
  steps: ArrayLike<number>,
  kind: (index: number) => NotFinite | undefined,
): NotFiniteRange[] {
  const out: NotFiniteRange[] = [];
  let now: NotFiniteRange | undefined;
  for (let i = 0; i < steps.length; i++) {
    const here = kind(i);
    const step = defined(steps[i]);
    if (!here) now = undefined;
    else if (now?.kind === here) now.last = step;
    else {
      now = { kind: here, first: step, last: step, open: false };
      out.push(now);
    }
  }
  if (now) now.open = true;
  return out;
}

/** "NaN from step 380", "NaN at step 7" or "NaN at steps 7–9", of the earliest range. */
export function notFiniteText(ranges: readonly NotFiniteRange[]): string {
  const first = earliest(ranges);
  if (!first) return "";
  const name = NAMES[first.kind];
  const begin = count(first.step ?? first.first);
  if (first.open) return `${name} from step ${begin}`;
  if (first.step !== undefined || first.first === first.last) return `${name} at step ${begin}`;
  return `${name} at steps ${begin}\u2013${count(first.last)}`;
}

const earliest = (ranges: readonly NotFiniteRange[]) =>
  ranges.reduce<NotFiniteRange | undefined>((a, b) => (a && a.first <= b.first ? a : b), undefined);

export const notFiniteColour = (kind: NotFinite) => `rgb(${NOT_FINITE[kind].join()})`;

const HEIGHT = 4;
/** Boxes up to this height are low. */
const LOW = 60;

/**
 * Draws a bar for each range along the top or the bottom of a box, and a line and a text where the first begins. `end`
 * is where the text must end: there may be room beside the box. With `lasting`, what lasts until the last saved step
 * reaches the end of the box.
 */
export function drawNotFinite(
  pen: Pen,
  ranges: readonly NotFiniteRange[],
  box: Box,
  x: Scale,
  theme: Theme,
  { top = false, label = true, lasting = false, end = box.x + box.width } = {},
): void {
  const y = top ? box.y - HEIGHT - 1 : box.y + box.height - HEIGHT;
  const inside = (step: number) => Math.max(box.x, Math.min(box.x + box.width, x(step)));
  const until = ({ open, last }: NotFiniteRange) => (open && lasting ? box.x + box.width : x(last));
  const shown = ranges.filter((range) => until(range) >= box.x && x(range.first) <= box.x + box.width);
  for (const range of shown) {
    const left = inside(range.first) - 1;
    const right = Math.min(box.x + box.width, until(range)) + 1;
    pen.rect(left, y, right - left, HEIGHT, { fill: notFiniteColour(range.kind) });
  }
  const onset = earliest(shown);
  if (!onset || !label) return;
  const at = inside(onset.first);
  line(pen, crisp(at), box.y, crisp(at), box.y + box.height, { stroke: notFiniteColour(onset.kind), dash: [3, 3] });
  const whole = notFiniteText([onset]);
  const fits = (words: string) => at + 6 + pen.measure(words, { fill: "" }) < end;
  // Before the range are values: in a low box the text would cover them.
  const text = fits(whole) || box.height > LOW ? whole : NAMES[onset.kind];
  const width = pen.measure(text, { fill: "" });
  const left = fits(text) ? at + 5 : at - 5 - width;
  pen.rect(left - 2, box.y + 2, width + 4, 14, { fill: theme.surface, opacity: 0.85 });
  pen.text(left, box.y + 9, text, { fill: theme.ink, baseline: "middle" });
}
