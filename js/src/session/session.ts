/** One widget's life: its traits, what it holds, and whom it asks. Views share it; nothing here draws. */
import { lastAtOrBefore } from "../data/frames";
import { type Axis, type Run, Store } from "../data/store";
import type { TensorView } from "../data/tensor-view";
import {
  type KernelRequest,
  type KernelResponse,
  MODES,
  type ModeName,
  PROTOCOL,
  type Role,
  type Traits,
} from "../protocol/types";
import { type Client, RequestError } from "./client";
import type { State } from "./state";

/** What one redraw sees: a consistent picture of traits and data. */
export interface Scene {
  traits: Traits;
  run: Run | undefined;
  axis: Axis;
  /** the global step shown; NaN when the run has none */
  step: number;
  main: TensorView | undefined;
  other: TensorView | undefined;
}

/** A question in flight or failed, by the place that shows it. */
export interface RequestStatus {
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
  readonly requests = new Map<string, RequestStatus>();
  readonly #controllers = new Map<string, AbortController>();
  #client: Client | undefined;
  /** How often the kernel was met again after a silence: what it sent meanwhile may be lost, and is asked for anew. */
  reconnections = 0;
  #monitorHeartbeat = true;
  /** The kernel that made this widget was restarted or is gone; nothing was heard since. */
  disconnected = false;
  live: KernelResponse["live"] | undefined;
  #heartbeat: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly state: State,
    readonly signal: AbortSignal,
  ) {
    signal.addEventListener("abort", () => {
      clearTimeout(this.#heartbeat);
      for (const asking of this.#controllers.values()) asking.abort();
    });
  }

  /** An exported page: nobody answers. */
  get exported(): boolean {
    return this.#client?.exported === true;
  }

  /** Says hello, and again whenever the kernel has been silent for three of its own heartbeats. */
  connect(source: Client, heartbeat = true): void {
    this.#client = source;
    this.#monitorHeartbeat = heartbeat;
    void this.#hello(false);
  }

  async #hello(again: boolean): Promise<void> {
    const answer = await this.request("hello", { what: "hello", protocol: PROTOCOL, again });
    if (answer?.live) this.live = answer.live;
    if (answer && again) {
      this.reconnections++;
      this.store.notify();
    }
    if (this.#monitorHeartbeat && answer?.heartbeat)
      this.#watchHeartbeat(answer.heartbeat * 3000, () => void this.#hello(true));
  }

  #watchHeartbeat(ms: number, missed: () => void) {
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
  messageReceived(): void {
    this.disconnected = false;
    this.store.notify();
  }

  /** The notebook says that the kernel's side of the widget is another one, or none. It is asked; whoever is there answers. */
  kernelChanged(): void {
    this.disconnected = true;
    this.store.notify();
    if (this.#client) void this.#hello(true);
  }

  /**
   * Asks for a place; a newer question of the same place cancels the older. Resolves to undefined when it was cancelled or
   * failed: the failure stands in `waiting` until the place asks again.
   */
  async request(place: string, question: KernelRequest): Promise<KernelResponse | undefined> {
    this.cancel(place);
    if (!this.#client || this.signal.aborted) return undefined;
    const control = new AbortController();
    this.#controllers.set(place, control);
    const waiting: RequestStatus = {
      since: performance.now(),
      done: 0,
      total: 0,
      busy: false,
      silent: false,
      error: "",
    };
    this.requests.set(place, waiting);
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
          this.store.notify();
        }, ms);
      timers = [after(BUSY_AFTER, "busy"), after(SILENT_AFTER, "silent")];
    };
    listen();
    try {
      const answer = await this.#client.request(question, control.signal, (done, total) => {
        listen();
        waiting.done = done;
        waiting.total = total;
        this.store.notify();
      });
      if (this.requests.get(place) === waiting) this.requests.delete(place);
      return answer;
    } catch (error) {
      if (control.signal.aborted || (error instanceof RequestError && error.type === "Cancelled")) {
        if (this.requests.get(place) === waiting) this.requests.delete(place);
      } else waiting.error = error instanceof Error ? error.message : String(error);
      return undefined;
    } finally {
      quiet();
      if (this.#controllers.get(place) === control) this.#controllers.delete(place);
      this.store.notify();
    }
  }

  cancel(place: string): void {
    this.#controllers.get(place)?.abort(new DOMException("a newer question took its place", "AbortError"));
    this.#controllers.delete(place);
    this.requests.delete(place);
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
  shown(run: number, tensor: string, worker: string, step: number, mode: ModeName): TensorView | undefined {
    if (!tensor) return undefined;
    const frames = this.store.findFrames(run, tensor, worker);
    if (!frames) return undefined;
    const number = MODES.indexOf(mode);
    const inMode = (at: number) => mode === "" || this.store.modeOf(run, at)?.mode === number;
    let i = lastAtOrBefore(frames.steps, step);
    while (i >= 0 && !inMode(frames.steps[i] as number)) i--;
    const savedStep = i < 0 ? Number.NaN : (frames.steps[i] as number);
    const frame = Number.isNaN(savedStep) ? undefined : frames.frameAt(savedStep);
    const pending = i >= 0 && frame?.step !== savedStep;
    return {
      run,
      tensor,
      worker,
      step,
      savedStep,
      frames,
      frame,
      pending,
      neverSaved: i < 0 && !frames.steps.some(inMode),
    };
  }

  /** The place in `waiting` where frames of a role are reported. */
  framesSlot(role: Role): string {
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
