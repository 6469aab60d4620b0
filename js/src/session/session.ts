/** One widget's traits, data and requests. All views of the widget share it. */
import { lastAtOrBefore, TensorFrames } from "../data/frames";
import { type Axis, type Run, Store } from "../data/store";
import type { TensorView } from "../data/tensor-view";
import {
  type KernelCommand,
  type KernelRequest,
  type KernelResponse,
  MODES,
  type ModeName,
  PROTOCOL,
  type Role,
  type Traits,
} from "../protocol/types";
import { type Client, NO_KERNEL, type Progress, RequestError } from "./client";
import type { State } from "./state";

/** A consistent snapshot of traits and data for one redraw. */
export interface Scene {
  traits: Traits;
  run: Run | undefined;
  axis: Axis;
  /** current global step; NaN if the run has none */
  step: number;
  main: TensorView | undefined;
  compared: TensorView | undefined;
  /** why data of the tensor cannot be loaded */
  failure: string;
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
  /** By slot: "hello", "frames/main", "frames/compare", "tile", … */
  readonly requests = new Map<string, RequestStatus>();
  readonly #controllers = new Map<string, AbortController>();
  /** Commands without a reply, and those that failed since the last new command. */
  readonly #commands = new Set<RequestStatus>();
  #client: Client | undefined;
  /** How often the connection was restored. Pushed data may have been lost meanwhile, so it is requested again. */
  reconnections = 0;
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

  scene(): Scene {
    const traits = this.state.all();
    const axis = this.store.axis(traits.run, traits.mode);
    const step = resolveStep(axis, traits.step);
    const status = this.requests.get(this.framesSlot("main"));
    return {
      failure: status && this.disconnected ? NO_KERNEL : (status?.error ?? ""),
      traits,
      run: this.store.runs.get(traits.run),
      axis,
      step,
      main: this.shown(traits.run, traits.tensor, traits.worker, step, traits.mode),
      compared:
        Object.keys(traits.compare).length === 0
          ? undefined
          : this.shown(
              traits.compare.run ?? traits.run,
              traits.tensor,
              traits.compare.worker ?? traits.worker,
              traits.compare.step ?? step,
              // A selected step is shown whatever its mode.
              traits.compare.step === undefined ? traits.mode : "",
            ),
    };
  }

  /** The tensor at a step: its value there, or the latest earlier one of the mode. */
  shown(run: number, tensor: string, worker: string, step: number, mode: ModeName): TensorView | undefined {
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
    const savedStep = i < 0 ? Number.NaN : (steps[i] as number);
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

/** The saved step at or before `step`, else the first one; -1 selects the latest. */
export function resolveStep(axis: Axis, step: number): number {
  if (axis.steps.length === 0) return Number.NaN;
  if (step < 0) return axis.steps[axis.steps.length - 1] as number;
  const i = lastAtOrBefore(axis.steps, step);
  return axis.steps[Math.max(i, 0)] as number;
}
