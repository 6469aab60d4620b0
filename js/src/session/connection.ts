/** The kernel's side of a widget: its requests by slot, commands, and whether it is there. */
import type { Store } from "../data/store";
import { type KernelCommand, type KernelRequest, type KernelResponse, PROTOCOL, type Role } from "../protocol/types";
import { type Client, type Progress, RequestError } from "./client";

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

/** The slot of a role's `frames` requests. */
export const framesSlot = (role: Role): string => `frames/${role}`;

export class Connection {
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
    private readonly store: Store,
    private readonly signal: AbortSignal,
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
}
