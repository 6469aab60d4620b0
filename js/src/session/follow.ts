/** Follows the latest step of a run. */
import { defined } from "../lib/defined";
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
  let i = a.length - 1;
  let j = b.length - 1;
  while (i >= 0 && j >= 0) {
    const [x, y] = [defined(a[i]), defined(b[j])];
    if (x === y) return x;
    if (x > y) i--;
    else j--;
  }
  return undefined;
}
