/** One widget's traits, data and requests. All views of the widget share it. */
import { lastAtOrBefore, TensorFrames } from "../data/frames";
import { type Axis, type Run, Store } from "../data/store";
import type { TensorView } from "../data/tensor-view";
import { jsonEqual } from "../lib/json-equal";
import { makeStepAxis, type StepAxis } from "../lib/step-axis";
import {
  type KernelCommand,
  type KernelRequest,
  type KernelResponse,
  MODES,
  type ModeName,
  PROTOCOL,
  type Role,
  type SeriesLine,
  type Traits,
} from "../protocol/types";
import { ChartGroups } from "./chart-groups";
import { type Client, NO_KERNEL, type Progress, RequestError } from "./client";
import { isComparing, placeOfB } from "./place";
import { mapStatOf, QueryReader, type QueryView } from "./query-view";
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

/** The part of the survey that the Run Map shows. */
export interface SurveyView {
  /** indices, in the order of the rows */
  tensors: readonly number[];
  /** steps */
  from: number;
  to: number;
  /** the level of bins that are shown side by side */
  level: number;
}

/** The kernel's exact answer to a query, and where it holds. */
export interface QueryAnswer {
  text: string;
  run: number;
  worker: string;
  mode: ModeName;
  /** indices of tensors, in order */
  rows: readonly number[];
}

/** A running or failed request. */
export interface RequestStatus {
  done: number;
  total: number;
  /** no message for one second, and for two minutes */
  busy: boolean;
  silent: boolean;
  error: string;
  /** name of the kernel's exception */
  errorType: string;
}

const newStatus = (): RequestStatus => ({ done: 0, total: 0, busy: false, silent: false, error: "", errorType: "" });

const BUSY_AFTER = 1000;
const SILENT_AFTER = 120_000;
/** When requests are sent again, in milliseconds after the widget has opened, if `hello` has no reply. */
const RESEND_AFTER = [1000, 3000, 7000, 15_000];

export class Session {
  readonly store = new Store();
  readonly chartGroups = new ChartGroups();
  /** By slot: "hello", "frames/main", "frames/compare", "tile", … */
  readonly requests = new Map<string, RequestStatus>();
  readonly #controllers = new Map<string, AbortController>();
  /** Commands without a reply, and those that failed since the last new command. */
  readonly #commands = new Set<RequestStatus>();
  #client: Client | undefined;
  /** How often the connection was restored. Pushed data may have been lost meanwhile, so it is requested again. */
  reconnections = 0;
  /** What the Run Map shows; of several views of the widget, the one that was drawn last. */
  surveyView: SurveyView | undefined;
  /** The small curves in view. */
  curvesInView: readonly SeriesLine[] = [];
  queryAnswer: QueryAnswer | undefined;
  readonly #query = new QueryReader();
  readonly #lookers = new Set<() => void>();
  #monitorHeartbeat = true;
  /** The kernel's side of the widget was replaced or removed, and nothing was received since. */
  disconnected = false;
  #heartbeat: ReturnType<typeof setTimeout> | undefined;

  constructor(
    readonly state: State,
    readonly signal: AbortSignal,
  ) {
    signal.addEventListener("abort", () => {
      clearTimeout(this.#heartbeat);
      for (const controller of this.#controllers.values()) controller.abort();
    });
  }

  /** Called by the Run Map when it has been drawn. */
  lookAt(view: SurveyView): void {
    const before = this.surveyView;
    this.surveyView = view;
    if (!jsonEqual(before, view)) for (const listener of this.#lookers) listener();
  }

  /** The kernel's answer to a query, if it is there. */
  exactRows(text: string, { run, worker, mode }: Traits): readonly number[] | undefined {
    const answer = this.queryAnswer;
    const fits = answer?.text === text && answer.run === run && answer.worker === worker && answer.mode === mode;
    return fits ? answer.rows : undefined;
  }

  /** Called by the small multiples when they have been drawn. */
  lookAtCurves(lines: readonly SeriesLine[]): void {
    if (jsonEqual(this.curvesInView, lines)) return;
    this.curvesInView = lines;
    for (const listener of this.#lookers) listener();
  }

  /** Calls back when the Run Map or the small multiples show something else. */
  onLook(callback: () => void, signal: AbortSignal): void {
    this.#lookers.add(callback);
    signal.addEventListener("abort", () => this.#lookers.delete(callback));
  }

  /** Whether this is an exported page, without a kernel. */
  get exported(): boolean {
    return this.#client?.exported === true;
  }

  /** Sends `hello`, and again after three missed heartbeats. */
  connect(client: Client, heartbeat = true): void {
    this.#client = client;
    this.#monitorHeartbeat = heartbeat;
    // JupyterLab creates the subshell of comms while the widget opens. Earlier messages wait for the running cells.
    const timers = RESEND_AFTER.map((ms) => setTimeout(() => client.resend(), ms));
    const stop = () => {
      for (const timer of timers) clearTimeout(timer);
    };
    this.signal.addEventListener("abort", stop);
    void this.#hello(false).then(stop);
  }

  async #hello(again: boolean): Promise<void> {
    if (again) this.#client?.resendCommands();
    const response = await this.request("hello", { what: "hello", protocol: PROTOCOL, again });
    if (response && again) {
      this.reconnections++;
      this.store.notify();
    }
    if (this.#monitorHeartbeat && response?.heartbeat)
      this.#watchHeartbeat(response.heartbeat * 3000, () => void this.#hello(true));
  }

  #watchHeartbeat(ms: number, missed: () => void) {
    clearTimeout(this.#heartbeat);
    if (this.signal.aborted) return;
    let version = this.store.version;
    const check = () => {
      if (this.store.version === version) return missed();
      version = this.store.version;
      this.#heartbeat = setTimeout(check, ms);
    };
    this.#heartbeat = setTimeout(check, ms);
  }

  /** A message without packets also resets the heartbeat. */
  messageReceived(): void {
    this.disconnected = false;
    this.store.notify();
  }

  /** The kernel's side of the widget was replaced or removed: sends `hello` to whichever kernel is there. */
  kernelChanged(): void {
    this.disconnected = true;
    this.store.notify();
    if (this.#client) void this.#hello(true);
  }

  /**
   * Sends a request in a slot and cancels the slot's previous request. Resolves to undefined if it is cancelled or
   * fails; a failure stays in `requests` until the slot's next request.
   */
  async request(slot: string, request: KernelRequest): Promise<KernelResponse | undefined> {
    this.cancel(slot);
    if (!this.#client || this.signal.aborted) return undefined;
    const control = new AbortController();
    this.#controllers.set(slot, control);
    const status = newStatus();
    this.requests.set(slot, status);
    const client = this.#client;
    const response = await this.#track(status, (progress) => client.request(request, control.signal, progress));
    if (control.signal.aborted || !status.error) if (this.requests.get(slot) === status) this.requests.delete(slot);
    if (this.#controllers.get(slot) === control) this.#controllers.delete(slot);
    this.store.notify();
    return response;
  }

  /**
   * Sends a command. Commands are executed in the order of the calls; none is cancelled or superseded. Resolves to
   * undefined if it fails; a failure stays in `commandStatus` until the next command.
   */
  async command(command: KernelCommand): Promise<KernelResponse | undefined> {
    const client = this.#client;
    if (!client || this.signal.aborted) return undefined;
    for (const each of this.#commands) if (each.error) this.#commands.delete(each);
    const status = newStatus();
    this.#commands.add(status);
    const response = await this.#track(status, () => client.command(command));
    if (!status.error) this.#commands.delete(status);
    this.store.notify();
    return response;
  }

  /** The first failed command, else the oldest one without a reply. */
  get commandStatus(): RequestStatus | undefined {
    const all = [...this.#commands];
    return all.find((each) => each.error) ?? all[0];
  }

  /** Keeps a status up to date while a request is running. Resolves to undefined if it is cancelled or fails. */
  async #track(
    status: RequestStatus,
    send: (progress: Progress) => Promise<KernelResponse>,
  ): Promise<KernelResponse | undefined> {
    let timers: ReturnType<typeof setTimeout>[] = [];
    const stopTimers = () => {
      for (const timer of timers) clearTimeout(timer);
      timers = [];
      status.busy = status.silent = false;
    };
    const startTimers = () => {
      stopTimers();
      const setAfter = (ms: number, flag: "busy" | "silent") =>
        setTimeout(() => {
          status[flag] = true;
          this.store.notify();
        }, ms);
      timers = [setAfter(BUSY_AFTER, "busy"), setAfter(SILENT_AFTER, "silent")];
    };
    startTimers();
    try {
      return await send((done, total) => {
        startTimers();
        status.done = done;
        status.total = total;
        this.store.notify();
      });
    } catch (error) {
      const cancelled = error instanceof DOMException && error.name === "AbortError";
      if (cancelled || (error instanceof RequestError && error.type === "Cancelled")) return undefined;
      status.error = error instanceof Error ? error.message : String(error);
      status.errorType = error instanceof RequestError ? error.type : "";
      return undefined;
    } finally {
      stopTimers();
    }
  }

  cancel(slot: string): void {
    this.#controllers.get(slot)?.abort(new DOMException("superseded by a newer request", "AbortError"));
    this.#controllers.delete(slot);
    this.requests.delete(slot);
  }

  /** `width`: pixels of the view. */
  scene(width = 1000): Scene {
    const chosen = this.state.all();
    const run = this.store.runs.get(chosen.run);
    const query = this.#query.read(chosen.query, run);
    const traits = { ...chosen, ...queryTraits(query, chosen, run) };
    const axis = this.store.axis(traits.run, traits.mode);
    const step = resolveStep(axis, traits.step);
    const status = this.requests.get(this.framesSlot("main")) ?? this.requests.get(`open/${traits.run}`);
    const main = this.shown(traits.run, traits.tensor, traits.worker, step, traits.mode);
    return {
      failure: status && this.disconnected ? NO_KERNEL : (status?.error ?? ""),
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
    const { run, tensor, worker } = placeOfB(traits);
    // A selected step is shown whatever its mode.
    if (compare.step !== undefined) return this.shown(run, tensor, worker, compare.step, "");
    const from = compare.offset && main && !Number.isNaN(main.savedStep) ? main.savedStep : step;
    return this.shown(run, tensor, worker, from, mode, compare.offset);
  }

  /**
   * The tensor at a step: its value there, or the latest earlier one of the mode. With an `offset`, that many saved steps
   * before `step` (if negative) or after it.
   */
  shown(run: number, tensor: string, worker: string, step: number, mode: ModeName, offset = 0): TensorView | undefined {
    if (!tensor) return undefined;
    const { exported } = this;
    const frames = this.store.findFrames(run, tensor, worker) ?? (exported ? new TensorFrames() : undefined);
    if (!frames) return undefined;
    // An exported page has no other steps than the loaded ones.
    const steps = exported ? frames.loadedSteps() : frames.steps;
    const number = MODES.indexOf(mode);
    const inMode = (at: number) => mode === "" || this.store.modeOf(run, at)?.mode === number;
    let i = lastAtOrBefore(steps, step);
    while (i >= 0 && !inMode(steps[i] as number)) i--;
    // If the tensor lacks the step, the last one before it is already one step back.
    let left = offset < 0 && i >= 0 && (steps[i] as number) < step ? offset + 1 : offset;
    for (const by = Math.sign(left); left !== 0 && i >= 0 && i < steps.length; ) {
      i += by;
      if (i >= 0 && i < steps.length && inMode(steps[i] as number)) left -= by;
    }
    if (i >= steps.length) i = -1;
    const savedStep = i < 0 ? Number.NaN : (steps[i] as number);
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
      statisticsOnly: exported && !this.store.hasPictures(run, tensor),
    };
  }

  /** The slot of a role's `frames` requests. */
  framesSlot(role: Role): string {
    return `frames/${role}`;
  }
}

/** Keys of the statistic that the query names, which is the size if it names none. */
const OF_STATISTIC = new Set(["first", "last", "worst"]);

/** What a query says of the view. */
function queryTraits({ query }: QueryView, { range }: Traits, run: Run | undefined): Partial<Traits> {
  const stat = mapStatOf(query.statistic ?? (query.stages.some(({ key }) => OF_STATISTIC.has(key)) ? "size" : ""));
  const { from, to = run?.steps.at(-1) ?? Number.NaN } = query.steps ?? { from: Number.NaN };
  return { ...(stat && { map_stat: stat }), ...(to > from && !range.length && { range: [from, to] }) };
}

/** The saved step at or before `step`, else the first one; -1 selects the latest. */
export function resolveStep(axis: Axis, step: number): number {
  if (axis.steps.length === 0) return Number.NaN;
  if (step < 0) return axis.steps[axis.steps.length - 1] as number;
  const i = lastAtOrBefore(axis.steps, step);
  return axis.steps[Math.max(i, 0)] as number;
}
