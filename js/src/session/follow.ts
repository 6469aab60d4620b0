/** Follows the latest step of a run. */
import { defined } from "../lib/defined";
import { lowerIndex } from "../lib/sorted";
import type { Scene } from "./scene";
import type { Session } from "./session";

/** While following, sets `step` to the latest step at which the tensor in view has a value. */
export function follow({ state }: Session, { traits, axis, step, main }: Scene): void {
  const last = lastCommonStep(axis.steps, main?.frames.steps ?? []) ?? axis.steps.at(-1);
  if (last === undefined) return;
  if (traits.follow && traits.step !== last) state.set({ step: last });
  else if (traits.step < 0 && !Number.isNaN(step)) state.set({ step });
}

/** The largest number in both ascending lists. */
function lastCommonStep(a: ArrayLike<number>, b: ArrayLike<number>): number | undefined {
  const [few, many] = a.length < b.length ? [a, b] : [b, a];
  for (let i = few.length - 1; i >= 0; i--) {
    const step = defined(few[i]);
    if (many[lowerIndex(many, step)] === step) return step;
  }
  return undefined;
}
