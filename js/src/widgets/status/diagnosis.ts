/** What is wrong with the run, in one sentence whose parts lead to the tensor and step that show it. */
import { defined } from "../../lib/defined";
import { h, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type {
  Clause,
  DiagnosisFinding,
  DiagnosisHead,
  FindingCurve,
  FindingsHead,
  ReplayOffer,
} from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { Deferred } from "../common/deferred";
import type { Context, Part } from "../common/part";
import { Popover } from "../common/popover";
import type { ReplayPanel } from "./replay";
import { sparkline } from "./sparkline";

const MARKS: Record<string, string> = { problem: "\u25b2", warning: "\u25b3", note: "\u25cb" };
/** Screen readers announce changes at most this often, in milliseconds. */
const ANNOUNCE_EVERY = 10_000;

/** Findings that are listed at most; the others are a key away. */
const LISTED = 3;

/** One sentence of the bar. */
interface Item {
  level: string;
  first: number | null;
  curve?: FindingCurve;
  replay?: ReplayOffer;
  /** its number among the findings or the notes */
  position: string;
  clauses: readonly Clause[];
  details: readonly string[];
}

export class DiagnosisBar implements Part {
  readonly el: HTMLElement;
  readonly #mark = h("span", { class: "smdw-diagnosis-mark", "aria-hidden": "true" });
  readonly #sentence = h("span", { class: "smdw-diagnosis-sentence" });
  readonly #announced = h("span", { class: "smdw-sr", role: "status" });
  readonly #position = h("span", { class: "smdw-quiet smdw-diagnosis-position" });
  readonly #previous: HTMLButtonElement;
  readonly #next: HTMLButtonElement;
  readonly #more: Popover;
  readonly #details = h("div", { class: "smdw-diagnosis-details" });
  /** the finding in view: its step and its curve */
  readonly #step = h("span", { class: "smdw-diagnosis-step" });
  readonly #curve = h("span", { class: "smdw-diagnosis-curve" });
  readonly #line: HTMLElement;
  /** the batch of the finding in view, and its steps executed again */
  readonly #replay: Deferred<ReplayPanel>;
  /** the findings around it, in their order */
  readonly #others: HTMLElement[] = [];
  readonly #listed = new Memo();
  readonly #links: { button: HTMLButtonElement; clause: Clause }[] = [];
  #items: readonly Item[] = [];
  #at = 0;
  readonly #shown = new Memo();
  readonly #described = new Memo();
  #announcedAt = Number.NEGATIVE_INFINITY;

  constructor(private readonly context: Context) {
    const { signal } = context;
    this.#previous = keyButton("p", "Previous finding", () => this.turn(-1), signal);
    this.#next = keyButton("n", "Next finding", () => this.turn(1), signal);
    const more = textButton("Details", () => {}, signal);
    this.#more = new Popover(more, this.#details, context);
    this.#line = h(
      "div",
      { class: "smdw-diagnosis-line" },
      this.#mark,
      this.#step,
      this.#sentence,
      this.#announced,
      this.#curve,
      h(
        "div",
        { class: "smdw-tools" },
        h("div", { class: "smdw-anchor" }, more, this.#more.el),
        this.#position,
        this.#previous,
        this.#next,
      ),
    );
    this.#replay = new Deferred(context, async () => new (await import("./replay")).ReplayPanel(context));
    this.el = h("section", { class: "smdw-diagnosis", "aria-label": "Diagnosis" }, this.#line, this.#replay.el);
  }

  update({ run, traits }: Scene): void {
    const { store } = this.context.session;
    const diagnosis = store.diagnoses.get(traits.run);
    const survey = store.findings.get(traits.run);
    const started = run !== undefined && run.steps.length > 0;
    // Where nothing judges the run, as in an old page, there is no bar.
    setVisible(this.el, started && (diagnosis !== undefined || survey !== undefined));
    if (!run || (!diagnosis && !survey)) return;
    this.#items = itemsOf(diagnosis, survey);
    this.#at = Math.min(this.#at, this.#items.length - 1);
    const item = defined(this.#items[this.#at]);
    this.#show(item.clauses);
    this.el.dataset.severity = item.level;
    setText(this.#mark, MARKS[item.level] ?? "");
    setVisible(this.#mark, item.level !== "");
    const several = this.#items.length > 1;
    setText(this.#position, item.position);
    setAttributes(this.#position, { title: item.position || undefined });
    setVisible(this.#previous, several);
    setVisible(this.#next, several);
    const { details } = item;
    setVisible(this.#more.button, details.length > 0);
    if (!details.length && this.#more.open) this.#more.show(false);
    this.#describe(details, item.level !== "");
    this.#list();
    const { replay } = item;
    const known = replay && store.replays.get(`${traits.run}/${replay.step}`);
    // A saved page executes nothing: it has what was known when it was saved.
    const shown = replay && (!this.context.session.exported || known || replay.rows.length > 0);
    setVisible(this.#replay.el, Boolean(shown));
    if (shown) {
      this.#replay.use((panel) => panel.update(traits.run, replay, known));
    }
    this.#replay.el.style.order = String(this.#at);
  }

  /** Lists the findings around the one in view. */
  #list() {
    const [items, at] = [this.#items, this.#at];
    if (!this.#listed.changed([items.map(({ clauses, first, curve }) => [clauses, first, curve]), at])) return;
    const start = Math.max(0, Math.min(at - 1, items.length - LISTED));
    const several = items.length > 1;
    const { first = null, curve } = items[at] ?? {};
    setText(this.#step, several && first !== null ? `step ${count(first)}` : "");
    setVisible(this.#step, several && items.some((item) => item.first !== null));
    this.#curve.replaceChildren(...(curve ? [sparkline(curve)] : []));
    this.#line.style.order = String(at);
    for (const other of this.#others.splice(0)) other.remove();
    items.slice(start, start + LISTED).forEach((item, i) => {
      if (start + i !== at) this.#others.push(this.#other(item, start + i));
    });
    this.el.append(...this.#others);
    this.el.dataset.listed = String(1 + this.#others.length);
  }

  /** A line of the list: a press shows what it says, with the pictures of its tensor. */
  #other({ level, clauses, first, curve }: Item, at: number): HTMLElement {
    const text = clauses.map((clause) => clause.text.replaceAll("`", "")).join("");
    const button = h(
      "button",
      { type: "button", class: "smdw-diagnosis-other", title: text },
      h("span", { class: "smdw-diagnosis-mark", "aria-hidden": "true", "data-level": level }, MARKS[level] ?? ""),
      h("span", { class: "smdw-diagnosis-step" }, first === null ? "" : `step ${count(first)}`),
      h("span", { class: "smdw-diagnosis-text" }, text),
      h("span", { class: "smdw-diagnosis-curve" }, curve && sparkline(curve)),
    );
    button.style.order = String(at);
    button.addEventListener("click", () => this.#turnTo(at, true), { signal: this.context.signal });
    return button;
  }

  /** Shows the next or the previous finding, and goes to it. */
  turn(by: 1 | -1): boolean {
    const n = this.#items.length;
    if (n === 0) return false;
    this.#turnTo(n === 1 ? 0 : (this.#at + by + n) % n);
    return true;
  }

  #turnTo(at: number, inspect = false) {
    this.#at = at;
    const place = this.#items[at]?.clauses.find((clause) => clause.tensor || clause.step !== null);
    if (place) this.#go(place, inspect);
    this.context.redraw();
  }

  #show(clauses: readonly Clause[]) {
    if (!this.#shown.changed(clauses)) return;
    const had = this.#links.some(({ button }) => button.matches(":focus"));
    this.#links.length = 0;
    this.#sentence.replaceChildren(
      // The spaces and points between clauses are in their texts.
      ...clauses.map((clause) => {
        const place = placeOf(clause);
        if (!place) return setCode(h("span", {}), clause.text);
        const button = h("button", { type: "button", class: "smdw-link", title: place });
        // Who presses the sentence wants to see what it says, with the pictures of the tensor.
        button.addEventListener("click", () => this.#go(clause, true), { signal: this.context.signal });
        this.#links.push({ button, clause });
        return setCode(button, clause.text);
      }),
    );
    if (had) this.#links[0]?.button.focus();
    setAttributes(this.#sentence, { title: this.#sentence.textContent ?? "" });
    this.#announce();
  }

  #announce() {
    const wait = this.#announcedAt + ANNOUNCE_EVERY - performance.now();
    const say = () => {
      this.#announcedAt = performance.now();
      setText(this.#announced, this.#sentence.textContent ?? "");
    };
    if (wait <= 0) return say();
    const timer = setTimeout(say, wait);
    this.context.signal.addEventListener("abort", () => clearTimeout(timer), { once: true });
  }

  /** The last line of a finding says what it is. */
  #describe(lines: readonly string[], finding: boolean): void {
    if (!this.#described.changed(lines)) return;
    const quiet = finding ? lines.length - 1 : -1;
    this.#details.replaceChildren(
      ...lines.map((line, i) => setCode(h("p", { class: i === quiet ? "smdw-quiet" : undefined }), line)),
    );
  }

  #go({ tensor, step }: Clause, inspect = false): void {
    this.context.session.state.set({
      ...(tensor ? { tensor, ...(inspect ? { inspect } : {}) } : {}),
      ...(step === null ? {} : { step, mode: "" as const, follow: false }),
    });
  }
}

/** Findings and notes, with their numbers; before them a summary, if there is no finding. */
function itemsOf(diagnosis: DiagnosisHead | undefined, survey: FindingsHead | undefined): Item[] {
  const { findings = [], notes = [], withdrawn = [] } = diagnosis ?? {};
  // One list has one numbering; notes without a finding follow the summary.
  const total = findings.length + notes.length;
  const position = (i: number) => (total > 1 ? `${i + 1} of ${count(total)}` : "");
  const items = [
    ...findings.map((finding, i) => ofFinding(finding, withdrawn, position(i))),
    ...notes.map((note, i) =>
      ofFinding(note, [], findings.length ? position(findings.length + i) : `Note ${i + 1} of ${count(notes.length)}`),
    ),
  ];
  return findings.length
    ? items
    : [
        {
          ...{ level: "", first: null, position: "" },
          clauses: summaryOf(diagnosis, survey),
          // What a healthy run was checked for, and what nobody could judge.
          details: diagnosis?.coverage ?? [],
        },
        ...items,
      ];
}

function summaryOf(diagnosis: DiagnosisHead | undefined, survey: FindingsHead | undefined): readonly Clause[] {
  if (diagnosis && diagnosis.state !== "reading") return [{ text: diagnosis.summary, tensor: "", step: null }];
  if (survey?.sentence.length) return survey.sentence;
  return [{ text: "Looking for faults\u2026", tensor: "", step: null }];
}

function ofFinding(finding: DiagnosisFinding, withdrawn: readonly string[], position: string): Item {
  const { level, title, tensor, first, text, explains, advice, about, curve, replay } = finding;
  return {
    level,
    first,
    ...(curve ? { curve } : {}),
    ...(replay ? { replay } : {}),
    position,
    clauses: [{ text: title, tensor, step: first }],
    details: [`${text} ${explains}`.trim(), `Try: ${advice}`, ...withdrawn.map((each) => `Withdrawn: ${each}`), about],
  };
}

/** Where a clause leads, in words; "" if it names no tensor or step of the run. */
const placeOf = ({ tensor, step }: Clause) =>
  [tensor && `Show ${tensor}`, step !== null && `${tensor ? "at" : "Go to"} step ${count(step)}`]
    .filter(Boolean)
    .join(" ");

/** A button that names its key. */
export function keyButton(key: string, label: string, onClick: () => void, signal: AbortSignal): HTMLButtonElement {
  const title = `${label} (${key})`;
  const button = h("button", { type: "button", class: "smdw-button smdw-key", "aria-label": label, title }, key);
  button.addEventListener("click", onClick, { signal });
  return button;
}

/** A name that is broken between its parts, where a line has no room for it. */
const broken = (name: string) => name.split(/(?<=[./])/).flatMap((part, i) => (i ? [h("wbr", {}), part] : [part]));

/** Sets a text in which names are between backticks. */
function setCode<E extends HTMLElement>(el: E, text: string): E {
  el.replaceChildren(
    ...text.split("`").map((part, i) => (i % 2 ? h("code", {}, ...broken(part)) : h("span", {}, part))),
  );
  return el;
}
