/** Draws the outcome strips of rules. */
import { linear, type Scale } from "../lib/scale";
import { crisp, line, type Pen, type Size } from "./pen";
import type { Theme } from "./theme";

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
  // If several steps share a column, the most severe outcome is drawn: error, fired, passed, skipped.
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
