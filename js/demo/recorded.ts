/**
 * A client that repeats what a real kernel said, for the demo page and the tests. pytest records the answers over real runs and fails if
 * they are out of date; see tests/python/widgets/test_demo_recording.py.
 */

import demo from "../../tests/transcripts/demo.json";
import many from "../../tests/transcripts/demo-many.json";
import expected from "../../tests/transcripts/demo-truth.json";
import type { Store } from "../src/data/store";
import { decode } from "../src/protocol/packet";
import type { FromKernel, KernelCommand, KernelRequest, KernelResponse } from "../src/protocol/types";
import { type Client, type Progress, RequestError } from "../src/session/client";

/** A request or command, and everything that the kernel replied. `sent` null: the kernel pushed. */
export interface Exchange {
  sent: KernelRequest | KernelCommand | null;
  received: { message: FromKernel; packets: string[] }[];
}
interface Recording {
  requests: Exchange[];
  commands: Exchange[][];
}
/** What NumPy computed of a tensor at a step. */
export interface Truth {
  min: number;
  max: number;
  l1: number;
  size: number;
  nan: number;
  inf: number;
  zero: number;
  cells: Record<string, number>;
}

export const LAST = 1200;

/** The values of a tensor of the recorded runs, such as "0/fc1.weight/600". */
export function truth(place: string): Truth {
  const found = (expected as Record<string, Truth>)[place];
  if (!found) throw new Error(`add ${place} to test_demo_recording.py`);
  return found;
}

/** Decompresses a recorded packet. */
export async function unpack(text: string): Promise<ArrayBuffer> {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const { readable, writable } = new DecompressionStream("deflate");
  const writer = writable.getWriter();
  void writer.write(bytes).then(() => writer.close());
  return new Response(readable).arrayBuffer();
}

/** Frames are stored by their content, so that their order, and which of them the page has, make no difference. */
function key(request: KernelRequest): string {
  if (request.what === "hello") return "hello";
  const { near, after, role, ...rest } = { near: 0, after: 0, role: "", ...request };
  return canonical(rest);
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (!value || typeof value !== "object") return JSON.stringify(value);
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([name, each]) => `${name}:${canonical(each)}`).join()}}`;
}

/** The packets of the first recorded answer to a request with these arguments. */
export async function packetsOf(wanted: {
  what: string;
  run?: number;
  tensor?: string;
  stat?: string;
}): Promise<ArrayBuffer[]> {
  const found = DEMO.recording.requests.find(({ sent }) =>
    Object.entries(wanted).every(([name, value]) => sent && Reflect.get(sent, name) === value),
  );
  if (!found) throw new Error(`not recorded: ${JSON.stringify(wanted)}`);
  return Promise.all(found.received.flatMap(({ packets }) => packets.map(unpack)));
}

function notRecorded(sent: KernelRequest | KernelCommand): RequestError {
  const message = `not recorded: ${JSON.stringify(sent)}; add it to tests/transcripts/demo-requests.json`;
  return new RequestError({ type: "NotRecorded", message });
}

class Answers {
  readonly #byKey: Map<string, Exchange>;
  constructor(readonly recording: Recording) {
    this.#byKey = new Map(recording.requests.map((each) => [key(each.sent as KernelRequest), each]));
  }

  find(request: KernelRequest): Exchange | undefined {
    const exact = this.#byKey.get(key(request));
    if (exact || request.what !== "survey")
      return exact ?? (isRegion(request) ? this.#nearestRegion(request) : undefined);
    // All bins of a statistic are recorded; which of them the page asks for depends on its size.
    const { tensors, from, to, bins, ...rest } = request;
    return this.recording.requests.find(({ sent }) => {
      if (!sent || !isRequest(sent) || sent.what !== "survey") return false;
      const { tensors, from, to, bins, ...recorded } = sent;
      return canonical(recorded) === canonical(rest);
    });
  }

  /**
   * Returns the answer to the last of the commands, and what the kernel pushed next, in the conversation that has the same
   * commands in the same order.
   */
  findCommand(commands: readonly KernelCommand[]): Exchange[] {
    const sent = commands.map(canonical).join();
    for (const talk of this.recording.commands) {
      const places = talk.flatMap((each, i) => (each.sent ? [i] : [])).slice(0, commands.length + 1);
      const first = places.slice(0, commands.length);
      if (first.map((i) => canonical(talk[i]?.sent)).join() !== sent) continue;
      return talk.slice(first.at(-1), places[commands.length]);
    }
    return [];
  }

  /** The recorded region of the same slice that has most in common with the requested one. */
  #nearestRegion(request: Region): Exchange | undefined {
    const slice = ({ rows, cols, ...rest }: Region) => canonical({ ...rest, size: 0 });
    const common = (a: readonly [number, number], b: readonly [number, number]) =>
      Math.max(0, Math.min(a[1], b[1]) - Math.max(a[0], b[0]));
    const shared = (sent: Region) => common(sent.rows, request.rows) * common(sent.cols, request.cols);
    const regions = this.recording.requests.filter(({ sent }) => {
      return sent && isRequest(sent) && isRegion(sent) && slice(sent) === slice(request) && shared(sent) > 0;
    });
    return regions.sort((a, b) => shared(b.sent as Region) - shared(a.sent as Region))[0];
  }
}

const DEMO = new Answers(demo as Recording);
/** A run with 10,000 tensors. */
const MANY = new Answers(many as Recording);

/** A client of the recorded runs: one or two, or one with 10,000 tensors. */
export function recorded(
  store: Store,
  options: { delay?: number; runs?: number; many?: boolean } = {},
): RecordedClient {
  return new RecordedClient(store, options.many ? MANY : DEMO, options);
}

/** A request for a region of a slice: which of it the page needs depends on the fonts of the machine. */
type Region = Extract<KernelRequest, { what: "tile" | "values" }>;
const isRequest = (sent: KernelRequest | KernelCommand): sent is KernelRequest => !("do" in sent);
const isRegion = (request: KernelRequest): request is Region => request.what === "tile" || request.what === "values";

/** Repeats recorded answers, with `delay` milliseconds before each message. */
export class RecordedClient implements Client {
  readonly requests: KernelRequest[] = [];
  readonly commands: KernelCommand[] = [];
  /** Requests without a recorded answer. */
  readonly missing: (KernelRequest | KernelCommand)[] = [];

  constructor(
    private readonly store: Store,
    private readonly answers: Answers,
    private readonly options: { delay?: number; runs?: number },
  ) {}

  resendCommands(): void {}
  resend(): void {}

  async command(command: KernelCommand): Promise<KernelResponse> {
    this.commands.push(command);
    const [answer, ...pushed] = this.answers.findCommand(this.commands);
    const { signal } = new AbortController();
    const response = await this.#play(answer, command, signal);
    for (const each of pushed) void this.#play(each, command, signal);
    return response;
  }

  request(request: KernelRequest, signal: AbortSignal, progress?: Progress): Promise<KernelResponse> {
    this.requests.push(request);
    return this.#play(this.answers.find(request), request, signal, progress);
  }

  async #play(
    exchange: Exchange | undefined,
    sent: KernelRequest | KernelCommand,
    signal: AbortSignal,
    progress?: Progress,
  ): Promise<KernelResponse> {
    if (!exchange) {
      this.missing.push(sent);
      throw notRecorded(sent);
    }
    const { delay = 0, runs = 1 } = this.options;
    for (const { message, packets } of exchange.received) {
      const buffers = await Promise.all(packets.map(unpack));
      await new Promise((resolve) => setTimeout(resolve, delay));
      if (signal.aborted) throw signal.reason;
      this.store.addPackets(buffers.filter((buffer) => hasRun(buffer, runs)));
      if (message.kind === "progress") progress?.(message.done, message.total);
      else if (message.kind === "error") throw new RequestError(message.error);
      else if (message.kind === "answer") return message;
    }
    return {};
  }
}

/** Whether a packet is of one of the first `runs` runs. */
function hasRun(buffer: ArrayBuffer, runs: number): boolean {
  const { head } = decode(buffer);
  return !("run" in head) || head.run < runs;
}

/** The recorded catalog of a run. */
export async function catalog(run = 0): Promise<ArrayBuffer> {
  const packets = await packetsOf({ what: "hello" });
  const found = packets.find((packet) => {
    const { head } = decode(packet);
    return head.kind === "catalog" && head.run === run;
  });
  if (!found) throw new Error(`no run ${run}`);
  return found;
}
