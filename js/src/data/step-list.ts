/** The saved steps of a run, to which new ones are appended without copying the earlier ones. */
import { defined } from "../lib/defined";

/** Steps in ascending order, each with its mode and mode step. */
export interface Steps {
  steps: Float64Array;
  modes: Uint8Array;
  modeSteps: Float64Array;
}

const LEAST = 64;

export class StepList {
  /** Increases when earlier steps change, so that what was derived from them is invalid. */
  edition = 0;
  length = 0;
  #steps = new Float64Array(LEAST);
  #modes = new Uint8Array(LEAST);
  #modeSteps = new Float64Array(LEAST);

  /** The steps so far. Later additions leave these arrays as they are. */
  get all(): Steps {
    return {
      steps: this.#steps.subarray(0, this.length),
      modes: this.#modes.subarray(0, this.length),
      modeSteps: this.#modeSteps.subarray(0, this.length),
    };
  }

  /** Adds steps; one that is known is replaced. Steps after all others cost nothing but their own copy. */
  add({ steps, modes, modeSteps }: Steps): void {
    let last = this.length ? defined(this.#steps[this.length - 1]) : Number.NEGATIVE_INFINITY;
    const ascending = steps.every((step) => {
      const after = step > last;
      last = step;
      return after;
    });
    if (ascending) this.#append(steps, modes, modeSteps);
    else this.#merge(steps, modes, modeSteps);
  }

  #append(steps: Float64Array, modes: Uint8Array, modeSteps: Float64Array) {
    const needed = this.length + steps.length;
    if (needed > this.#steps.length) this.#grow(Math.max(needed, 2 * this.#steps.length));
    this.#steps.set(steps, this.length);
    this.#modes.set(modes, this.length);
    this.#modeSteps.set(modeSteps, this.length);
    this.length = needed;
  }

  #grow(capacity: number) {
    const { steps, modes, modeSteps } = this.all;
    this.#steps = new Float64Array(capacity);
    this.#modes = new Uint8Array(capacity);
    this.#modeSteps = new Float64Array(capacity);
    this.#steps.set(steps);
    this.#modes.set(modes);
    this.#modeSteps.set(modeSteps);
  }

  #merge(steps: Float64Array, modes: Uint8Array, modeSteps: Float64Array) {
    const rows = new Map<number, [number, number]>();
    const before = this.all;
    before.steps.forEach((step, i) => {
      rows.set(step, [defined(before.modes[i]), defined(before.modeSteps[i])]);
    });
    steps.forEach((step, i) => {
      rows.set(step, [defined(modes[i]), defined(modeSteps[i])]);
    });
    const sorted = Float64Array.from(rows.keys()).sort();
    this.length = 0;
    this.#grow(Math.max(LEAST, sorted.length));
    this.edition++;
    this.#append(
      sorted,
      Uint8Array.from(sorted, (step) => defined(rows.get(step)?.[0])),
      Float64Array.from(sorted, (step) => defined(rows.get(step)?.[1])),
    );
  }
}

/** The steps of one mode, which follow a list as it grows. */
export class ModeSteps {
  #list = new StepList();
  #edition: number;
  #read = 0;

  constructor(
    private readonly of: StepList,
    private readonly mode: number,
  ) {
    this.#edition = of.edition;
  }

  get all(): Steps {
    if (this.#edition !== this.of.edition) {
      this.#edition = this.of.edition;
      this.#list = new StepList();
      this.#read = 0;
    }
    const { steps, modes, modeSteps } = this.of.all;
    const picks: number[] = [];
    for (let i = this.#read; i < steps.length; i++) if (modes[i] === this.mode) picks.push(i);
    this.#read = steps.length;
    if (picks.length)
      this.#list.add({
        steps: Float64Array.from(picks, (i) => defined(steps[i])),
        modes: Uint8Array.from(picks, (i) => defined(modes[i])),
        modeSteps: Float64Array.from(picks, (i) => defined(modeSteps[i])),
      });
    return this.#list.all;
  }
}
