import { h, iconButton, setAttributes, setText, setVisible, textButton } from "../lib/dom";
import { count } from "../lib/format";
import type { DiagnosisFinding } from "../protocol/types";
import type { Scene } from "../session/session";
import type { Context, Part } from "./part";

const MARKS: Record<string, string> = { problem: "\u25b2", warning: "\u25b3", note: "\u25cb" };

/** What is wrong with the run, in one sentence. The sentence leads to the tensor and step that show it. */
export class DiagnosisBar implements Part {
  readonly el: HTMLElement;
  readonly #mark = h("span", { class: "smdw-diagnosis-mark", "aria-hidden": "true" });
  readonly #sentence = h("span", { class: "smdw-diagnosis-sentence", role: "status" });
  readonly #link: HTMLButtonElement;
  readonly #position = h("span", { class: "smdw-quiet" });
  readonly #previous: HTMLButtonElement;
  readonly #next: HTMLButtonElement;
  readonly #more: HTMLButtonElement;
  readonly #details = h("div", { class: "smdw-diagnosis-details" });
  #findings: readonly DiagnosisFinding[] = [];
  #at = 0;
  #open = false;

  constructor(private readonly context: Context) {
    const { signal } = context;
    this.#link = h("button", { type: "button", class: "smdw-diagnosis-sentence smdw-link" });
    this.#link.addEventListener("click", () => this.#show(), { signal });
    this.#previous = iconButton("previous", "Previous finding", () => this.#turn(-1), signal);
    this.#next = iconButton("next", "Next finding", () => this.#turn(1), signal);
    this.#more = textButton("Details", () => this.#toggle(), signal);
    this.el = h(
      "section",
      { class: "smdw-diagnosis", "aria-label": "Diagnosis" },
      h(
        "div",
        { class: "smdw-diagnosis-line" },
        this.#mark,
        this.#sentence,
        this.#link,
        h("div", { class: "smdw-tools" }, this.#position, this.#previous, this.#next, this.#more),
      ),
      this.#details,
    );
  }

  update({ run, traits }: Scene): void {
    const { store } = this.context.session;
    const diagnosis = store.diagnoses.get(traits.run);
    // Where nothing diagnoses the run, as in an old page, there is no bar.
    setVisible(this.el, diagnosis !== undefined && run !== undefined && run.steps.length > 0);
    if (!diagnosis) return;
    this.#findings = diagnosis.findings;
    this.#at = Math.min(this.#at, Math.max(0, this.#findings.length - 1));
    const finding = this.#findings[this.#at];
    this.el.dataset.state = diagnosis.state;
    this.#mark.dataset.severity = finding?.severity ?? "";
    setText(this.#mark, finding ? (MARKS[finding.severity] ?? "") : "");
    setVisible(this.#mark, finding !== undefined);
    setVisible(this.#sentence, finding === undefined);
    setVisible(this.#link, finding !== undefined);
    setText(this.#sentence, diagnosis.state === "reading" ? "Looking for faults\u2026" : diagnosis.summary);
    if (finding) {
      setCode(this.#link, finding.title);
      const place = this.#place(finding);
      setAttributes(this.#link, { title: place || undefined, disabled: !place });
    }
    const several = this.#findings.length > 1;
    setText(this.#position, several ? `${this.#at + 1} of ${this.#findings.length}` : "");
    setVisible(this.#previous, several);
    setVisible(this.#next, several);
    setVisible(this.#more, finding !== undefined);
    setAttributes(this.#more, { "aria-expanded": String(this.#open && finding !== undefined) });
    setVisible(this.#details, this.#open && finding !== undefined);
    if (finding && this.#open) this.#describe(finding, diagnosis.withdrawn);
  }

  #describe(finding: DiagnosisFinding, withdrawn: readonly string[]): void {
    const lines = [
      finding.text,
      `Try: ${finding.advice}`,
      ...withdrawn.map((title) => `Withdrawn: ${title}`),
      `${finding.severity}, ${finding.confidence} confidence${finding.onset === null ? "" : ` \u00b7 since step ${count(finding.onset)}`}`,
    ];
    if (this.#details.dataset.shown === JSON.stringify(lines)) return;
    this.#details.dataset.shown = JSON.stringify(lines);
    this.#details.replaceChildren(
      ...lines.map((line, i) => setCode(h("p", { class: i === lines.length - 1 ? "smdw-quiet" : undefined }), line)),
    );
  }

  /** Where the finding leads, in words; "" if it names no tensor or step of the run. */
  #place({ tensor, onset }: DiagnosisFinding): string {
    return [tensor && `Show ${tensor}`, onset !== null && `${tensor ? "at" : "Go to"} step ${count(onset)}`]
      .filter(Boolean)
      .join(" ");
  }

  #show(): void {
    const finding = this.#findings[this.#at];
    if (!finding) return;
    this.context.session.state.set({
      ...(finding.tensor ? { tensor: finding.tensor } : {}),
      ...(finding.onset === null ? {} : { step: finding.onset, mode: "", follow: false }),
    });
  }

  #turn(by: number): void {
    this.#at = (this.#at + by + this.#findings.length) % this.#findings.length;
    this.#show();
    this.context.redraw();
  }

  #toggle(): void {
    this.#open = !this.#open;
    this.context.redraw();
  }
}

/** Sets a text in which names are between backticks. */
function setCode<E extends HTMLElement>(el: E, text: string): E {
  if (el.dataset.text !== text) {
    el.dataset.text = text;
    el.replaceChildren(...text.split("`").map((part, i) => h(i % 2 ? "code" : "span", {}, part)));
  }
  return el;
}
