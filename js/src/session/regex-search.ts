/** Searches tensor names by regex: in the kernel, or in a Web Worker in an exported page. */
import { IdleTimer } from "../lib/idle-timer";
import { type NameMatch, spanMatch, substringSpans } from "../lib/name-filter";
import { searchInWorker } from "../lib/worker-regex";
import type { Session } from "./session";

/** Delay after a keystroke. */
const TYPING_PAUSE_MS = 150;
const TOO_SLOW = "Pattern too slow: stopped after 2 s";

interface RegexQuery {
  run: number;
  names: readonly string[];
  /** changes with the names */
  namesVersion: number;
  pattern: string;
}

export class RegexSearch {
  /** Matches of the latest successful query. */
  matches: readonly NameMatch[] = [];
  total = 0;
  /** Message if the latest query failed. */
  error = "";
  /** How the result differs from the request. */
  note = "";
  /** Whether a query is waiting or running. */
  running = false;
  /** Increases with each result. */
  version = 0;
  #key = "";
  #control = new AbortController();
  readonly #timer: IdleTimer;

  constructor(
    private readonly session: Session,
    private readonly slot: string,
    private readonly changed: () => void,
    signal: AbortSignal,
  ) {
    this.#timer = new IdleTimer(signal);
    signal.addEventListener("abort", () => this.#control.abort());
  }

  /** Status while a query runs. */
  get status(): string {
    return this.session.requests.get(this.slot)?.busy ? "Kernel busy" : "Searching\u2026";
  }

  /** Starts a search if the query is new. The previous matches stay until it ends. */
  update(query: RegexQuery): void {
    const key = JSON.stringify([query.run, query.namesVersion, query.pattern]);
    if (key === this.#key) return;
    this.#cancel();
    this.#key = key;
    this.running = true;
    this.error = "";
    this.#timer.schedule(TYPING_PAUSE_MS, () => void this.#search(query, this.#control.signal));
  }

  clear(): void {
    if (this.#key === "") return;
    this.#cancel();
    this.#key = this.error = this.note = "";
    this.matches = [];
    this.running = false;
    this.version++;
  }

  #cancel() {
    this.#timer.cancel();
    this.session.cancel(this.slot);
    this.#control.abort();
    this.#control = new AbortController();
  }

  async #search(query: RegexQuery, signal: AbortSignal) {
    const found = this.session.exported ? await this.#inPage(query, signal) : await this.#inKernel(query);
    if (signal.aborted) return;
    this.running = false;
    if (typeof found === "string") this.error = found;
    else {
      this.matches = found.matches;
      this.total = found.total;
      this.note = found.note;
    }
    this.version++;
    this.changed();
  }

  async #inKernel({ run, pattern }: RegexQuery) {
    const response = await this.session.request(this.slot, { what: "match", run, pattern });
    if (!response) {
      const status = this.session.requests.get(this.slot);
      return status?.errorType === "RegexTooSlow" ? TOO_SLOW : status?.error || "No response";
    }
    const spans = response.matches ?? [];
    return { matches: spans.map(spanMatch), total: response.total ?? spans.length, note: "" };
  }

  async #inPage({ names, pattern }: RegexQuery, signal: AbortSignal) {
    const result = await searchInWorker(names, pattern, signal).catch(() => ({ kind: "aborted" as const }));
    switch (result.kind) {
      case "spans":
        return { matches: result.spans.map(spanMatch), total: result.spans.length, note: "" };
      case "invalid":
        return `Invalid pattern: ${result.message.replace(/^Invalid regular expression: /, "")}`;
      case "timeout":
        return TOO_SLOW;
      case "unavailable": {
        const spans = substringSpans(names, pattern);
        return { matches: spans.map(spanMatch), total: spans.length, note: "plain text search" };
      }
      default:
        return "cancelled";
    }
  }
}
