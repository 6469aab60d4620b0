/**
 * Questions to the kernel over msg:custom: an id each, cancellable. Packets go to whoever files them. There is no time limit here:
 * a kernel that trains answers late, not never, and whoever waits is told how long it has been silent (see Session).
 */
import type { ErrorInfo, FromKernel, KernelRequest, KernelResponse, ToKernel } from "../protocol/types";
import type { Model } from "./state";

/** What is said where nobody answers any more. */
export const NO_KERNEL = "no kernel: run the cell again";

export class RequestError extends Error {
  override name = "RequestError";
  readonly type: string;
  constructor(fault: ErrorInfo) {
    super(fault.message || fault.type);
    this.type = fault.type;
  }
}

export type Progress = (done: number, total: number) => void;

/** Something that answers questions: a kernel, or the packets of an exported page. */
export interface Client {
  readonly exported?: boolean;
  request(question: KernelRequest, signal: AbortSignal, progress?: Progress): Promise<KernelResponse>;
}

interface OpenRequest {
  resolve(answer: KernelResponse): void;
  reject(error: Error): void;
  progress: Progress | undefined;
}

export class KernelClient implements Client {
  readonly #open = new Map<string, OpenRequest>();
  // Replies go to every page that shows the widget, so ids of two pages must differ.
  readonly #prefix = Math.random().toString(36).slice(2, 10);
  #last = 0;

  constructor(
    private readonly model: Model,
    private readonly file: (buffers: DataView[]) => void,
    signal: AbortSignal,
    /** any message is a sign of life, also one without packets */
    private readonly alive: () => void = () => {},
    /** the kernel's side of the widget came or went: a restart, another kernel */
    cut: () => void = () => {},
  ) {
    const heard = (message: FromKernel, buffers: DataView[]) => this.#receive(message, buffers);
    model.on("msg:custom", heard as (...args: never[]) => void);
    model.on("comm_live_update", cut);
    signal.addEventListener("abort", () => {
      model.off("comm_live_update", cut);
      model.off("msg:custom", heard as (...args: never[]) => void);
      for (const open of this.#open.values()) open.reject(new DOMException("the widget is gone", "AbortError"));
      this.#open.clear();
    });
  }

  request(question: KernelRequest, signal: AbortSignal, progress?: Progress): Promise<KernelResponse> {
    const id = `${this.#prefix}-${++this.#last}`;
    return new Promise<KernelResponse>((resolve, reject) => {
      if (signal.aborted) return reject(signal.reason);
      const done = () => {
        this.#open.delete(id);
        signal.removeEventListener("abort", cancel);
      };
      const cancel = () => {
        done();
        reject(signal.reason);
        this.#post({ kind: "cancel", id });
      };
      signal.addEventListener("abort", cancel, { once: true });
      this.#open.set(id, {
        resolve: (answer) => {
          done();
          resolve(answer);
        },
        reject: (error) => {
          done();
          reject(error);
        },
        progress,
      });
      if (!this.#post({ kind: "ask", id, ...question }))
        this.#open.get(id)?.reject(new RequestError({ type: "Lost", message: NO_KERNEL }));
    });
  }

  /** Whether the message went out: the way to a kernel that was restarted throws. */
  #post(message: ToKernel): boolean {
    try {
      this.model.send(message);
      return true;
    } catch {
      return false;
    }
  }

  #receive(message: FromKernel, buffers: DataView[] = []) {
    if (buffers.length) this.file(buffers);
    this.alive();
    if (!message || typeof message !== "object" || message.kind === "news") return;
    const open = this.#open.get(message.id);
    if (!open) return;
    if (message.kind === "progress") open.progress?.(message.done, message.total);
    else if (message.kind === "answer") open.resolve(message);
    else if (message.kind === "error") open.reject(new RequestError(message.error));
  }
}

/** An exported page: what was not written into it cannot be asked for. */
export class ExportedPageClient implements Client {
  readonly exported = true;
  request(question: KernelRequest): Promise<KernelResponse> {
    if (question.what === "hello") return Promise.resolve({});
    return Promise.reject(
      new RequestError({
        type: "NoKernel",
        message: "This page was saved without a kernel: it holds what is shown, no more.",
      }),
    );
  }
}
