/**
 * Requests over msg:custom, each with an id and cancellable, and commands, which are not cancellable. There is no time limit: a kernel that runs a cell
 * responds late. `Session` reports how long it has been silent.
 */
import type { ErrorInfo, FromKernel, KernelCommand, KernelRequest, KernelResponse, ToKernel } from "../protocol/types";
import type { Model } from "./state";

/** Message for a widget whose kernel is gone. */
export const NO_KERNEL = "No kernel: run the cell again";

export class RequestError extends Error {
  override name = "RequestError";
  readonly type: string;
  constructor(fault: ErrorInfo) {
    super(fault.message || fault.type);
    this.type = fault.type;
  }
}

export type Progress = (done: number, total: number) => void;

/** Answers requests: a kernel, or nothing in an exported page. */
export interface Client {
  readonly exported?: boolean;
  request(request: KernelRequest, signal: AbortSignal, progress?: Progress): Promise<KernelResponse>;
  /** Resolves when the kernel has executed the command. */
  command(command: KernelCommand): Promise<KernelResponse>;
  /** Sends the commands without a reply again, in order. The kernel executes each once. */
  resendCommands(): void;
  /** Sends all requests and commands without a reply again, in order. The kernel handles each once. */
  resend(): void;
}

interface OpenRequest {
  resolve(response: KernelResponse): void;
  reject(error: Error): void;
  progress?: Progress | undefined;
  message: ToKernel;
  isCommand: boolean;
}

export class KernelClient implements Client {
  readonly #open = new Map<string, OpenRequest>();
  // Every page that shows the widget receives all responses, so ids of two pages must differ.
  readonly #prefix = Math.random().toString(36).slice(2, 10);
  #last = 0;

  constructor(
    private readonly model: Model,
    private readonly addPackets: (buffers: DataView[]) => void,
    signal: AbortSignal,
    /** called for every message, with packets or without */
    private readonly received: () => void = () => {},
    /** called when the kernel's side of the widget was replaced or removed */
    kernelChanged: () => void = () => {},
  ) {
    const onMessage = (message: FromKernel, buffers: DataView[]) => this.#receive(message, buffers);
    model.on("msg:custom", onMessage as (...args: never[]) => void);
    model.on("comm_live_update", kernelChanged);
    signal.addEventListener("abort", () => {
      model.off("comm_live_update", kernelChanged);
      model.off("msg:custom", onMessage as (...args: never[]) => void);
      for (const open of this.#open.values()) open.reject(new DOMException("the widget was removed", "AbortError"));
      this.#open.clear();
    });
  }

  request(request: KernelRequest, signal: AbortSignal, progress?: Progress): Promise<KernelResponse> {
    const id = `${this.#prefix}-${++this.#last}`;
    return new Promise<KernelResponse>((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const release = () => {
        this.#open.delete(id);
        signal.removeEventListener("abort", cancel);
      };
      const cancel = () => {
        release();
        reject(signal.reason);
        this.#post({ kind: "cancel", id });
      };
      signal.addEventListener("abort", cancel, { once: true });
      const message: ToKernel = { kind: "ask", id, ...request };
      this.#open.set(id, {
        message,
        isCommand: false,
        resolve: (response) => {
          release();
          resolve(response);
        },
        reject: (error) => {
          release();
          reject(error);
        },
        progress,
      });
      this.#send(id, message);
    });
  }

  command(command: KernelCommand): Promise<KernelResponse> {
    const id = `${this.#prefix}-${++this.#last}`;
    const message: ToKernel = { kind: "ask", id, ...command };
    return new Promise<KernelResponse>((resolve, reject) => {
      this.#open.set(id, { resolve, reject, message, isCommand: true });
      this.#send(id, message);
    }).finally(() => this.#open.delete(id));
  }

  resendCommands(): void {
    for (const [id, { message, isCommand }] of this.#open) if (isCommand) this.#send(id, message);
  }

  resend(): void {
    for (const [id, { message }] of this.#open) this.#send(id, message);
  }

  /** Sends the message of an open request, or rejects the request. */
  #send(id: string, message: ToKernel) {
    if (!this.#post(message)) this.#open.get(id)?.reject(new RequestError({ type: "Lost", message: NO_KERNEL }));
  }

  /** Returns whether the message was sent. `send` throws after the kernel was restarted. */
  #post(message: ToKernel): boolean {
    try {
      this.model.send(message);
      return true;
    } catch {
      return false;
    }
  }

  #receive(message: FromKernel, buffers: DataView[] = []) {
    if (buffers.length) this.addPackets(buffers);
    this.received();
    if (!message || typeof message !== "object" || message.kind === "news") return;
    const open = this.#open.get(message.id);
    if (!open) return;
    if (message.kind === "progress") open.progress?.(message.done, message.total);
    else if (message.kind === "answer") open.resolve(message);
    else if (message.kind === "error") open.reject(new RequestError(message.error));
  }
}

/** An exported page: requests fail, because only the exported data is available. */
export class ExportedPageClient implements Client {
  readonly exported = true;
  request(request: KernelRequest): Promise<KernelResponse> {
    return request.what === "hello" ? Promise.resolve({}) : this.command();
  }
  command(): Promise<KernelResponse> {
    return Promise.reject(new RequestError({ type: "NoKernel", message: "Not in this exported page" }));
  }
  resendCommands(): void {}
  resend(): void {}
}
