/** What is shown: a snapshot of traits and data for one redraw. */
import { lastAtOrBefore, TensorFrames } from "../data/frames";
import type { Axis, Run, Store } from "../data/store";
import type { TensorView } from "../data/tensor-view";
import { defined } from "../lib/defined";
import { makeStepAxis, type StepAxis } from "../lib/step-axis";
import { MODES, type ModeName, type Traits } from "../protocol/types";
import { NO_KERNEL } from "./client";
import { isComparing, tensorOfB } from "./comparison";
import { type Connection, framesSlot } from "./connection";
import type { QueryView } from "./query-view";
import type { State } from "./state";

/** A consistent snapshot of traits and data for one redraw. */
export interface Scene {
  /** `map_stat` and `range` are those of the query, if it has them and no range was chosen */
  traits: Traits;
  query: QueryView;
  run: Run | undefined;
  axis: Axis;
  /** the horizontal axis of all parts, for the width of the view */
  stepAxis: StepAxis;
  /** current global step; NaN if the run has none */
  step: number;
  main: TensorView | undefined;
  compared: TensorView | undefined;
  /** why data of the tensor cannot be loaded */
  failure: string;
}

/** What a query says of the view. */
export interface Queries {
  read(text: string, run: Run | undefined): QueryView;
  traits(query: QueryView, traits: Traits, run: Run | undefined): Partial<Traits>;
}

const NO_QUERY: QueryView = {
  text: "",
  query: { stages: [], statistic: undefined, steps: undefined, view: undefined, parts: [] },
  error: undefined,
};

export class SceneBuilder {
  constructor(
    private readonly state: State,
    private readonly store: Store,
    private readonly connection: Connection,
    private readonly queries?: Queries,
  ) {}

  /** `width`: pixels of the view. */
  build(width: number): Scene {
    const { store, state, connection } = this;
    const chosen = state.all();
    const run = store.runs.get(chosen.run);
    const query = this.queries?.read(chosen.query, run) ?? NO_QUERY;
    const traits = { ...chosen, ...this.queries?.traits(query, chosen, run) };
    const axis = store.axis(traits.run, traits.mode);
    const step = resolveStep(axis, traits.step);
    const status = connection.requests.get(framesSlot("main")) ?? connection.requests.get(`open/${traits.run}`);
    const main = this.#tensorAt(traits.run, traits.tensor, traits.worker, step, traits.mode);
    return {
      failure: status && connection.disconnected ? NO_KERNEL : (status?.error ?? ""),
      traits,
      query,
      run,
      axis,
      stepAxis: makeStepAxis(traits.range, run?.steps ?? [], width),
      step,
      main,
      compared: this.#compared(traits, step, main),
    };
  }

  /** The value that is compared with the one in view. */
  #compared(traits: Traits, step: number, main: TensorView | undefined): TensorView | undefined {
    if (!isComparing(traits)) return undefined;
    const { compare, mode } = traits;
    const { run, tensor, worker } = tensorOfB(traits);
    // A selected step is shown whatever its mode.
    if (compare.step !== undefined) return this.#tensorAt(run, tensor, worker, compare.step, "");
    const from = compare.offset && main && !Number.isNaN(main.savedStep) ? main.savedStep : step;
    return this.#tensorAt(run, tensor, worker, from, mode, compare.offset);
  }

  /**
   * The tensor at a step: its value there, or the latest earlier one of the mode. With an `offset`, that many saved steps
   * before `step` (if negative) or after it.
   */
  #tensorAt(
    run: number,
    tensor: string,
    worker: string,
    step: number,
    mode: ModeName,
    offset = 0,
  ): TensorView | undefined {
    if (!tensor) return undefined;
    const { store } = this;
    const { exported } = this.connection;
    const frames = store.findFrames(run, tensor, worker) ?? (exported ? new TensorFrames() : undefined);
    if (!frames) return undefined;
    // An exported page has no other steps than the loaded ones.
    const steps = exported ? frames.loadedSteps() : frames.steps;
    const number = MODES.indexOf(mode);
    const inMode = (at: number) => mode === "" || store.modeOf(run, at)?.mode === number;
    let i = lastAtOrBefore(steps, step);
    while (i >= 0 && !inMode(defined(steps[i]))) i--;
    // If the tensor lacks the step, the last one before it is already one step back.
    let left = offset < 0 && i >= 0 && defined(steps[i]) < step ? offset + 1 : offset;
    for (const by = Math.sign(left); left !== 0 && i >= 0 && i < steps.length; ) {
      i += by;
      if (i >= 0 && i < steps.length && inMode(defined(steps[i]))) left -= by;
    }
    if (i >= steps.length) i = -1;
    const savedStep = i < 0 ? Number.NaN : defined(steps[i]);
    const frame = Number.isNaN(savedStep) ? undefined : frames.frameAt(savedStep);
    const pending = i >= 0 && frame?.step !== savedStep;
    return {
      run,
      tensor,
      worker,
      step: offset ? savedStep : step,
      savedStep,
      frames,
      frame,
      pending,
      neverSaved: i < 0 && !steps.some(inMode),
      exported,
      statisticsOnly: exported && !store.hasPictures(run, tensor),
    };
  }
}

/** The saved step at or before `step`, else the first one; -1 selects the latest. */
export function resolveStep(axis: Axis, step: number): number {
  if (axis.steps.length === 0) return Number.NaN;
  if (step < 0) return defined(axis.steps[axis.steps.length - 1]);
  const i = lastAtOrBefore(axis.steps, step);
  return defined(axis.steps[Math.max(i, 0)]);
}
