/** One widget's life: its traits, what it holds, and whom it asks. Views share it; nothing here draws. */
import { type Frame, lastAtOrBefore, type TensorFrames } from "./frames";
import { type Answer, MODES, type ModeName, PROTOCOL, type Question, type Role, type Traits } from "./protocol";
import { AnswerError, type Source } from "./request";
import type { State } from "./state";
import { type Axis, type Run, Store } from "./store";

/** A tensor at a step, as found. */
export interface Shown {
  run: number;
  tensor: string;
  worker: string;
  /** the step asked for, and the one whose value this is (the latest earlier one where there is none) */
  step: number;
  from: number;
  frames: TensorFrames;
  frame: Frame | undefined;
  /** the tensor has a value here that has not arrived yet */
  pending: boolean;
  /** no step of the mode in view has it, now or later */
  never: boolean;
}

/** One number a step, as a loss is (which smdebug saves as a vector of one). */
export function isScalar(shown: Shown | undefined): boolean {
  const shape = shown?.frame?.shape ?? shown?.frames.plan?.shape;
  return shown?.frames.plan?.form !== "text" && shape !== undefined && shape.every((size) => size === 1);
}

/** What one redraw sees: a consistent picture of traits and data. */
export interface Scene {
  traits: Traits;
  run: Run | undefined;
  axis: Axis;
  /** the global step shown; NaN when the run has none */
  step: number;
  main: Shown | undefined;
  other: Shown | undefined;
}

/** A question in flight or failed, by the place that shows it. */
export interface Waiting {
  since: number;
  done: number;
  total: number;
  /** nothing was heard for a second, and for two minutes */
  busy: boolean;
  silent: boolean;
  error: string;
}

const BUSY_AFTER = 1000;
const SILENT_AFTER = 120_000;

export class Session {
  readonly store = new Store();
  /** By place: "hello", "main", "compare", "tile", … */
  readonly waiting = new Map<string, Waiting>();
  readonly #asking = new Map<string, AbortController>();
  #source: Source | undefined;
  /** How often the kernel was met again after a silence: what it sent meanwhile may be lost, and is asked for anew. */
  meetings = 0;
  #minds = true;
  /** The kernel that made this widget was restarted or is gone; nothing was heard since. */
  lost = false;
  live: Answer["live"] | undefined;
  #heartbeat: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly state: State,
    readonly signal: AbortSignal,
  ) {
    signal.addEventListener("abort", () => {
      clearTimeout(this.#heartbeat);
      for (const asking of this.#asking.values()) asking.abort();
    });
  }

  /** An exported page: nobody answers. */
  get kernelless(): boolean {
    return this.#source?.kernelless === true;
  }

  /** Says hello, and again whenever the kernel has been silent for three of its own heartbeats. */
  connect(source: Source, heartbeat = true): void {
    this.#source = source;
    this.#minds = heartbeat;
    void this.#hello(false);
  }

  async #hello(again: boolean): Promise<void> {
    const answer = await this.ask("hello", { what: "hello", protocol: PROTOCOL, again });
    if (answer?.live) this.live = answer.live;
    if (answer && again) {
      this.meetings++;
      this.store.touched();
    }
    if (this.#minds && answer?.heartbeat) this.#expect(answer.heartbeat * 3000, () => void this.#hello(true));
  }

  #expect(ms: number, missed: () => void) {
    clearTimeout(this.#heartbeat);
    if (this.signal.aborted) return;
    let seen = this.store.version;
    const look = () => {
      if (this.store.version === seen) return missed();
      seen = this.store.version;
      this.#heartbeat = setTimeout(look, ms);
    };
    this.#heartbeat = setTimeout(look, ms);
  }

  /** A message without packets still is a sign of life. */
  heard(): void {
    this.lost = false;
    this.store.touched();
  }

  /** The notebook says that the kernel's side of the widget is another one, or none. It is asked; whoever is there answers. */
  cut(): void {
    this.lost = true;
    this.store.touched();
    if (this.#source) void this.#hello(true);
  }

  /**
   * Asks for a place; a newer question of the same place cancels the older. Resolves to undefined when it was cancelled or
   * failed: the failure stands in `waiting` until the place asks again.
   */
  async ask(place: string, question: Question): Promise<Answer | undefined> {
    this.cancel(place);
    if (!this.#source || this.signal.aborted) return undefined;
    const control = new AbortController();
    this.#asking.set(place, control);
    const waiting: Waiting = { since: performance.now(), done: 0, total: 0, busy: false, silent: false, error: "" };
    this.waiting.set(place, waiting);
    let timers: ReturnType<typeof setTimeout>[] = [];
    const quiet = () => {
      for (const timer of timers) clearTimeout(timer);
      timers = [];
      waiting.busy = waiting.silent = false;
    };
    const listen = () => {
      quiet();
      const after = (ms: number, what: "busy" | "silent") =>
        setTimeout(() => {
          waiting[what] = true;
          this.store.touched();
        }, ms);
      timers = [after(BUSY_AFTER, "busy"), after(SILENT_AFTER, "silent")];
    };
    listen();
    try {
      const answer = await this.#source.ask(question, control.signal, (done, total) => {
        listen();
        waiting.done = done;
        waiting.total = total;
        this.store.touched();
      });
      if (this.waiting.get(place) === waiting) this.waiting.delete(place);
      return answer;
    } catch (error) {
      if (control.signal.aborted || (error instanceof AnswerError && error.type === "Cancelled")) {
        if (this.waiting.get(place) === waiting) this.waiting.delete(place);
      } else waiting.error = error instanceof Error ? error.message : String(error);
      return undefined;
    } finally {
      quiet();
      if (this.#asking.get(place) === control) this.#asking.delete(place);
      this.store.touched();
    }
  }

  cancel(place: string): void {
    this.#asking.get(place)?.abort(new DOMException("a newer question took its place", "AbortError"));
    this.#asking.delete(place);
    this.waiting.delete(place);
  }

  scene(): Scene {
    const traits = this.state.all();
    const axis = this.store.axis(traits.run, traits.mode);
    const step = resolveStep(axis, traits.step);
    return {
      traits,
      run: this.store.runs.get(traits.run),
      axis,
      step,
      main: this.shown(traits.run, traits.tensor, traits.worker, step, traits.mode),
      other:
        Object.keys(traits.compare).length === 0
          ? undefined
          : this.shown(
              traits.compare.run ?? traits.run,
              traits.tensor,
              traits.compare.worker ?? traits.worker,
              traits.compare.step ?? step,
              traits.mode,
            ),
    };
  }

  /** What is shown of a tensor at a step: its value there, or the latest earlier one of the mode in view. */
  shown(run: number, tensor: string, worker: string, step: number, mode: ModeName): Shown | undefined {
    if (!tensor) return undefined;
    const frames = this.store.held(run, tensor, worker);
    if (!frames) return undefined;
    const number = MODES.indexOf(mode);
    const inMode = (at: number) => mode === "" || this.store.modeOf(run, at)?.mode === number;
    let i = lastAtOrBefore(frames.steps, step);
    while (i >= 0 && !inMode(frames.steps[i] as number)) i--;
    const from = i < 0 ? Number.NaN : (frames.steps[i] as number);
    const frame = Number.isNaN(from) ? undefined : frames.at(from);
    const pending = i >= 0 && frame?.step !== from;
    return { run, tensor, worker, step, from, frames, frame, pending, never: i < 0 && !frames.steps.some(inMode) };
  }

  /** The place in `waiting` where frames of a role are reported. */
  place(role: Role): string {
    return `frames/${role}`;
  }
}

/** The step a slider stands on: the trait's, or the nearest saved one; -1 means the latest. */
export function resolveStep(axis: Axis, step: number): number {
  if (axis.steps.length === 0) return Number.NaN;
  if (step < 0) return axis.steps[axis.steps.length - 1] as number;
  const i = lastAtOrBefore(axis.steps, step);
  return axis.steps[Math.max(i, 0)] as number;
}
