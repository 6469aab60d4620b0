/** The batch of a finding, and what its steps showed when they were executed again: line, rows, what heals. */
import { h, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count, plural } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { KernelCommand, ReplayChange, ReplayExplanation, ReplayHead, ReplayOffer } from "../../protocol/types";
import type { Context } from "../common/part";
import { sparkline } from "./sparkline";

/** What a command asks for, without the run and the step. */
type Wish = { do: "start" | "stop" } | { do: "try"; change: string };

export class ReplayPanel {
  readonly el: HTMLElement;
  readonly #batch = h("span", { class: "smdw-replay-batch" });
  readonly #why = h("span", { class: "smdw-quiet smdw-replay-why" });
  readonly #state = h("span", { class: "smdw-replay-state", role: "status" });
  readonly #bar = h("progress", { class: "smdw-replay-bar", "aria-label": "Progress of the replay" });
  readonly #start: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  readonly #fold: HTMLButtonElement;
  readonly #answer = h("div", { class: "smdw-replay-answer" });
  readonly #story = h("div", { class: "smdw-replay-story" });
  readonly #changes = h("div", { class: "smdw-replay-changes" });
  readonly #verified = h("p", { class: "smdw-quiet smdw-replay-verified" });
  readonly #batchShown = new Memo();
  readonly #storyShown = new Memo();
  readonly #changesShown = new Memo();
  #run = -1;
  #step = -1;
  /** why the last command was refused */
  #refused = "";
  #folded = false;

  constructor(private readonly context: Context) {
    const { signal } = context;
    this.#start = textButton("Replay", () => this.#send({ do: "start" }), signal);
    this.#stop = textButton("Stop", () => this.#send({ do: "stop" }), signal);
    this.#fold = textButton("Hide", () => this.#toggle(), signal);
    this.#start.classList.add("smdw-replay-start");
    this.#answer.append(this.#story, h("div", { class: "smdw-replay-tries" }, this.#changes, this.#verified));
    this.el = h(
      "div",
      { class: "smdw-replay", role: "group", "aria-label": "Replay" },
      h(
        "div",
        { class: "smdw-replay-line" },
        this.#batch,
        this.#why,
        this.#state,
        this.#bar,
        h("div", { class: "smdw-tools" }, this.#start, this.#stop, this.#fold),
      ),
      this.#answer,
    );
  }

  update(run: number, offer: ReplayOffer, replay: ReplayHead | undefined): void {
    const { exported } = this.context.session;
    if (run !== this.#run || offer.step !== this.#step) {
      [this.#run, this.#step, this.#refused, this.#folded] = [run, offer.step, "", false];
    }
    const running = replay?.state === "running";
    if (this.#batchShown.changed([offer.rows, offer.more])) this.#batch.replaceChildren(...batchOf(offer));
    // An answer says more than why there could be none now.
    const why = exported ? (replay ? "" : "Replay needs the kernel that trained") : replay ? "" : offer.why_not;
    setText(this.#why, why && !exported ? `Replay: ${why}` : why);
    setVisible(this.#why, why !== "");
    setAttributes(this.#why, { title: why || undefined });
    const failed = this.#refused || (replay?.state === "failed" ? replay.message : "");
    setText(this.#state, running ? progressText(replay) : failed || (replay?.state === "stopped" ? "Stopped" : ""));
    setAttributes(this.#state, { title: this.#state.textContent || undefined });
    this.#state.classList.toggle("smdw-error", !running && failed !== "");
    setVisible(this.#bar, running);
    // Without a value, it moves by itself.
    if (running)
      setAttributes(this.#bar, { max: replay.total || undefined, value: replay.total ? replay.done : undefined });
    setVisible(this.#start, !exported && !running && (offer.why_not === "" || replay !== undefined));
    setText(this.#start, replay ? "Replay again" : "Replay");
    setAttributes(this.#start, { title: "Execute the steps around the incident again; cells wait meanwhile" });
    setVisible(this.#stop, running && !exported);
    const explained = replay?.explanation ?? null;
    const has = explained !== null;
    setVisible(this.#fold, has);
    setText(this.#fold, this.#folded ? "Show" : "Hide");
    setAttributes(this.#fold, {
      "aria-expanded": String(!this.#folded),
      "aria-label": this.#folded ? "Show the answer" : "Hide the answer",
    });
    setVisible(this.#answer, has && !this.#folded);
    if (!has || !replay) return;
    if (this.#storyShown.changed([explained, replay.rows]))
      this.#story.replaceChildren(...storyOf(explained, replay.rows));
    const usable = !exported && !running;
    if (this.#changesShown.changed([replay.changes, usable])) this.#showChanges(replay.changes, usable);
    const curves = replay.changes.some(({ outcome }) => outcome)
      ? "Losses: dotted as recorded, solid with the change."
      : "";
    const verified = explained.verified && `Executed again: ${explained.verified}.`;
    setText(this.#verified, [verified, curves].filter(Boolean).join(" "));
  }

  #showChanges(changes: readonly ReplayChange[], usable: boolean): void {
    const focused = this.#changes.querySelector<HTMLElement>(":focus")?.dataset.change;
    const tried = changes.filter(({ outcome }) => outcome);
    const others = this.context.session.exported ? [] : changes.filter(({ outcome }) => !outcome);
    this.#changes.replaceChildren(...[...tried, ...others].map((change) => this.#change(change, usable)));
    // A press removes the button that has the focus.
    if (focused !== undefined)
      [...this.#changes.querySelectorAll<HTMLElement>("[data-change]")]
        .find((each) => each.dataset.change === focused)
        ?.focus();
  }

  #change({ id, label, outcome }: ReplayChange, usable: boolean): HTMLElement {
    if (!outcome) {
      const button = textButton(label, () => this.#send({ do: "try", change: id }), this.context.signal);
      button.dataset.change = id;
      button.classList.add("smdw-replay-chip");
      // `disabled` would take the focus away.
      setAttributes(button, { "aria-disabled": !usable && "true", title: `Execute the steps again: ${label}` });
      return button;
    }
    const { heals, text, recorded, changed } = outcome;
    return h(
      "div",
      {
        ...{ class: "smdw-replay-outcome", tabindex: 0, role: "group", title: text },
        ...{ "data-change": id, "data-heals": String(heals), "aria-label": text },
      },
      h("span", { class: "smdw-replay-mark", "aria-hidden": "true" }, heals ? "\u2713" : "\u2717"),
      h("span", { class: "smdw-replay-label" }, `${label}: ${heals ? "heals" : "stays"}`),
      sparkline(recorded, changed),
    );
  }

  #toggle() {
    this.#folded = !this.#folded;
    this.context.redraw();
  }

  #send(wish: Wish) {
    const { connection, store } = this.context.session;
    const [run, step] = [this.#run, this.#step];
    if (wish.do !== "stop" && store.replays.get(`${run}/${step}`)?.state === "running") return;
    this.#refused = "";
    const command: KernelCommand = { what: "replay", run, step, ...wish };
    void connection.command(command).then((response) => {
      if (!response && this.#run === run && this.#step === step)
        this.#refused = connection.commandStatus?.error ?? "The kernel does not answer";
      this.context.redraw();
    });
  }
}

/** The rows of the data set in the batch, as far as they are known. */
function batchOf({ rows, more, step }: ReplayOffer): HTMLElement[] {
  if (!rows.length) return [h("span", { class: "smdw-quiet" }, `Batch of step ${count(step)}: rows not known`)];
  return [
    h("span", { class: "smdw-quiet" }, `Batch of step ${count(step)}: ${rows.length + more > 1 ? "rows" : "row"}`),
    ...rows.map((row) => h("span", { class: "smdw-row-chip" }, row)),
    h("span", { class: "smdw-quiet" }, `${more ? `and ${count(more)} more ` : ""}of the data set`),
  ];
}

function progressText({ doing, done, total, seconds_left: left }: ReplayHead): string {
  const steps = total ? ` ${count(done)} of about ${plural(total, "step")}` : "";
  const time = left !== null && left >= 1 ? `, about ${count(Math.round(left))} s left` : "";
  return `${capitalized(doing)}${steps && `:${steps}`}${time}`;
}

/** What broke, where, and with which rows. */
function storyOf(explained: ReplayExplanation, ranked: readonly string[]): HTMLElement[] {
  const { text, place, source, details, rows, more, of_data_set, step } = explained;
  const at = Number(/(\d+)$/.exec(place)?.[1]);
  const listed = rows.length + more > 1 ? "rows" : "row";
  const shown = [
    h("p", { class: "smdw-replay-headline" }, capitalized(text)),
    place && h("p", { class: "smdw-replay-place" }, place),
    source.length > 0 &&
      h(
        "pre",
        { class: "smdw-replay-source", "aria-label": `Source around ${place}`, tabindex: 0 },
        ...source.map(({ line, text }) =>
          h(
            "span",
            { class: "smdw-replay-code", "data-named": line === at && "true" },
            h("span", { class: "smdw-replay-number", "aria-hidden": "true" }, String(line)),
            h("code", {}, text || " "),
          ),
        ),
      ),
    rows.length > 0 &&
      h(
        "p",
        { class: "smdw-replay-rows" },
        h(
          "span",
          {},
          of_data_set ? `Bad ${listed} of the data set:` : `Bad ${listed} in the batch of step ${count(step)}:`,
        ),
        ...rows.map((row) => h("span", { class: "smdw-row-chip smdw-bad-row" }, row)),
        more > 0 && h("span", { class: "smdw-quiet" }, `and ${count(more)} more`),
      ),
    ranked.length > 0 &&
      h(
        "ul",
        { class: "smdw-replay-ranked", "aria-label": "Rows that stand out, the most suspicious one first" },
        ...ranked.map((row) => h("li", {}, row)),
      ),
    details.length > 0 &&
      h("ul", { class: "smdw-quiet smdw-replay-details" }, ...details.map((each) => h("li", {}, each))),
  ];
  return shown.filter((each) => each !== false && each !== "");
}

const capitalized = (text: string) => text.slice(0, 1).toUpperCase() + text.slice(1);
