/** Name, state and size of the run, and the controls of the view. */

import { scalarsOnly } from "../../data/scalars";
import { h, iconButton, Select, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { bytes, count, percent, plural, truncate } from "../../lib/format";
import { runColour } from "../../lib/slot-colour";
import { clockTime } from "../../lib/time-text";
import type { ReadingHead } from "../../protocol/types";
import { NO_KERNEL } from "../../session/client";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";
import { Popover } from "../common/popover";
import type { StepControl } from "../steps/control";
import { RunFacts } from "./run-facts";

const STATUS: Record<string, string> = {
  running: "Running",
  ended: "Ended",
  stalled: "No new steps",
  gone: "Missing",
  error: "Unreadable",
};

/** Seconds of reading that are long enough to say so, and to stop it. */
const LONG = 5;

export class RunLine implements Part {
  readonly el: HTMLElement;
  readonly #dot = h("span", { class: "smdw-dot", "aria-hidden": "true" });
  readonly #status = h("span", { class: "smdw-run-status" });
  readonly #name = h("span", { class: "smdw-run-name" });
  readonly #run: Select;
  readonly #swatch = h("span", { class: "smdw-swatch", "aria-hidden": "true" });
  readonly #facts = h("span", { class: "smdw-quiet smdw-run-facts" });
  readonly #read: HTMLButtonElement;
  readonly #restarted = h("span", { class: "smdw-restarted", role: "status" });
  readonly #message = h("span", { class: "smdw-note", role: "status" });
  readonly #extra: RunFacts;
  readonly #exports = h("div", { class: "smdw-actions" });

  constructor(
    private readonly context: Context,
    control: StepControl,
    full: () => void,
    help: HTMLElement,
    /** map and timeline */
    private readonly picture: () => HTMLElement,
  ) {
    const { session, signal } = context;
    this.#run = new Select("Run", (run) => session.state.set({ run: Number(run) }), signal);
    this.#read = textButton("", () => this.#readOrStop(), signal);
    this.#read.classList.add("smdw-read-all");
    this.#extra = new RunFacts(context);
    const play = h("div", { class: "smdw-play" }, control.play, control.speed.el);
    const exports = textButton("Export", () => this.#fillExports(popover), signal);
    exports.classList.add("smdw-menu-button");
    const popover = new Popover(exports, this.#exports, context);
    this.el = h(
      "div",
      { class: "smdw-run" },
      session.state.get("_many") ? back(() => session.state.set({ table: true }), signal) : null,
      this.#dot,
      this.#name,
      this.#swatch,
      this.#run.el,
      this.#status,
      this.#facts,
      this.#extra.el,
      this.#read,
      this.#restarted,
      this.#message,
      h("span", { class: "smdw-space" }),
      control.newSteps,
      control.follow.el,
      control.mode.el,
      play,
      control.modeLabel,
      h("label", { class: "smdw-step-label" }, h("span", { class: "smdw-quiet" }, "step"), control.box),
      h("div", { class: "smdw-anchor" }, exports, popover.el),
      help,
      iconButton("full", "Full screen (e)", full, signal),
    );
  }

  update(scene: Scene): void {
    const { run, traits } = scene;
    this.#extra.update(scene);
    const { session } = this.context;
    const { runs } = session.store;
    const head = run?.head;
    this.#dot.dataset.status = head?.status ?? "";
    setText(this.#status, head ? (STATUS[head.status] ?? head.status) : "");
    const path = head?.path ?? "";
    setText(this.#name, runs.size > 1 ? "" : truncate(lastParts(path), 80));
    this.#name.title = truncate(path, 2000);
    setVisible(this.#run.el, runs.size > 1);
    setVisible(this.#swatch, runs.size > 1);
    this.#swatch.style.color = runColour(session.store, traits.run, this.context.theme().dark);
    if (runs.size > 1)
      this.#run.update(
        [...runs].map(([index, each]) => [String(index), each.head.name] as const),
        String(traits.run),
      );
    const reading = session.store.readings.get(traits.run);
    const facts = run
      ? [
          plural(run.steps.length, "step"),
          scalarsOnly(run) ? `${count(run.names.length)} series` : plural(run.names.length, "tensor"),
          head && head.workers.length > 1 ? `${count(head.workers.length)} workers` : "",
          byCluster(reading) ? "" : readingText(reading),
        ]
      : [];
    setText(this.#facts, facts.filter(Boolean).join(" \u00b7 "));
    const does = reading ? readButton(reading) : "";
    setVisible(this.#read, !session.exported && does !== "");
    setText(this.#read, does);
    const at = head?.restarted_at;
    setText(this.#restarted, at ? `This run was started again at ${clockTime(at)}` : "");
    setVisible(this.#restarted, Boolean(at));
    this.#updateMessage(run !== undefined, head?.message ?? "", head?.status ?? "", reading);
  }

  #updateMessage(known: boolean, said: string, state: string, reading: ReadingHead | undefined) {
    const { session } = this.context;
    const status = session.connection.requests.get("hello");
    const lost = status !== undefined && session.connection.disconnected;
    const unread = reading && byCluster(reading) ? readingText(reading) : (reading?.message ?? "");
    const message =
      session.store.packetError ||
      (lost ? NO_KERNEL : "") ||
      status?.error ||
      (status?.busy ? "Kernel busy" : "") ||
      said ||
      session.state.get("_notice") ||
      unread ||
      (known ? (session.exported ? "Saved page" : "") : "Waiting for run");
    setText(this.#message, truncate(message, 300));
    this.#message.title = truncate(message, 2000);
    const failed = lost || Boolean(session.store.packetError || status?.error || reading?.state === "failed");
    this.#message.classList.toggle("smdw-error", failed || state === "error" || state === "gone");
  }

  #readOrStop() {
    const { session } = this.context;
    const run = session.state.get("run");
    const isReading = session.store.readings.get(run)?.state === "reading";
    void session.connection.command({ what: "read_all", do: isReading ? "stop" : "start", run });
  }

  async #fillExports(popover: Popover) {
    if (this.#exports.childElementCount) return;
    const { exportActions } = await import("./export-actions");
    if (this.#exports.childElementCount) return;
    this.#exports.append(...exportActions(this.context, this.#facts, this.picture));
    popover.show(popover.open); // at the place that fits its size
  }
}

function back(act: () => void, signal: AbortSignal): HTMLElement {
  const button = textButton("", act, signal);
  button.append("\u2039 ", h("span", {}, "Runs"));
  setAttributes(button, {
    "aria-label": "Runs",
    title: "Back to the table of runs (Esc)",
    class: "smdw-button smdw-back",
  });
  return button;
}

/** The last two parts of a path. */
export function lastParts(path: string): string {
  const parts = path.split(/[/\\]/).filter(Boolean);
  return parts.length > 2 ? parts.slice(-2).join("/") : path;
}

/** Whether the workers of a cluster read. Shown even if the line is too narrow for other facts. */
const byCluster = (reading: ReadingHead | undefined) => reading?.state === "reading" && reading.workers !== undefined;

function readingText(reading: ReadingHead | undefined): string {
  if (!reading?.total) return "";
  const done = reading.done / reading.total;
  if (reading.state === "complete") return "all read";
  if (reading.state === "off" || reading.state === "failed") return "";
  // Never "100%" before the end.
  const read = `${percent(Math.min(0.99, Math.floor(done * 100) / 100))} read`;
  if (reading.state !== "reading") return read;
  const { workers, seconds_left } = reading;
  if (workers === 0) return `${read}, waiting for workers of the cluster`;
  const by = workers === undefined ? "" : ` by ${plural(workers, "worker")}`;
  return `${read}${by}${seconds_left < LONG ? "" : `, about ${duration(seconds_left)} left`}`;
}

/** What the button next to it does, if there is one. */
function readButton(reading: ReadingHead): string {
  const { state, workers, bytes_left, seconds_left } = reading;
  if (state === "sampled" || state === "stopped")
    return `Read all (${bytes(bytes_left)}, about ${duration(seconds_left)})`;
  return state === "reading" && (workers !== undefined || seconds_left >= LONG) ? "Stop" : "";
}

/** "7 min" */
function duration(seconds: number): string {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}
