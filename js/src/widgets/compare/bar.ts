/** What is shown of A and B, and which value B is. */

import { partingKey } from "../../data/store";
import { defined } from "../../lib/defined";
import { field, h, iconButton, Segments, Select, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { compareNatural } from "../../lib/natural-order";
import type { Compare, Traits, View } from "../../protocol/types";
import { comparedRuns, isComparing, tensorOfB } from "../../session/comparison";
import type { Scene } from "../../session/scene";
import { BLINK_MS, differenceFault, reducedMotion, swapped } from "../../session/slots";
import type { Context, Part } from "../common/part";
import { Popover } from "../common/popover";

const VIEWS: readonly (readonly [View, string, string])[] = [
  ["a", "A", "Show A"],
  ["b", "B", "Show B"],
  ["side", "A|B", "Show A and B side by side"],
  ["diff", "A\u2212B", "Show A \u2212 B (m)"],
  ["blink", "blink", "Show A and B in turn (v)"],
];
/** Without B, other views start with the saved step before A. */
const BEFORE: Compare = { offset: -1 };
/** Names that a tensor can be chosen from; others are typed. */
const OFFERED = 300;

export class CompareBar implements Part {
  readonly el: HTMLElement;
  readonly #views: Segments<View>;
  readonly #buttons: Map<View, HTMLButtonElement>;
  readonly #b: HTMLButtonElement;
  readonly #run: Select;
  readonly #worker: Select;
  readonly #tensor: HTMLInputElement;
  readonly #names: HTMLDataListElement;
  readonly #step: Select;
  readonly #pinned: HTMLInputElement;
  readonly #fault = h("p", { class: "smdw-quiet smdw-compare-fault", role: "status" });
  readonly #parting = h("p", { class: "smdw-quiet smdw-compare-fault", role: "status" });
  readonly #swap: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  #scene: Scene | undefined;
  readonly #offered = new Memo();
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly context: Context) {
    const { signal, session } = context;
    this.#views = new Segments(
      "Show",
      VIEWS.map(([view, label]) => [view, label] as const),
      (view) => this.show(view),
      signal,
    );
    const buttons = [...this.#views.el.querySelectorAll("button")];
    this.#buttons = new Map(VIEWS.map(([view], i) => [view, buttons[i] as HTMLButtonElement]));
    this.#b = textButton("", () => {}, signal);
    this.#b.classList.add("smdw-compare-b");
    this.#run = new Select("Run of B", (run) => this.#set({ run: run === "" ? undefined : Number(run) }), signal);
    this.#worker = new Select("Worker of B", (worker) => this.#set({ worker: worker || undefined }), signal);
    const id = `smdw-names-${Math.random().toString(36).slice(2)}`;
    this.#tensor = h("input", { class: "smdw-input", list: id, "aria-label": "Tensor of B", placeholder: "as A" });
    this.#names = h("datalist", { id });
    this.#tensor.addEventListener("change", () => this.#setTensor(), { signal });
    this.#step = new Select("Step of B", (value) => this.#setStep(value), signal);
    this.#pinned = h("input", {
      class: "smdw-input smdw-index",
      inputmode: "numeric",
      "aria-label": "Step number of B",
      placeholder: "number",
    });
    this.#pinned.addEventListener(
      "change",
      () => {
        const step = Number.parseInt(this.#pinned.value, 10);
        if (step >= 0) this.#set({ step, offset: undefined });
      },
      { signal },
    );
    this.#swap = textButton("\u21c4 Swap A and B", () => this.swap(), signal);
    this.#stop = textButton("Stop comparing", () => session.state.set({ compare: {} }), signal);
    const popover = new Popover(
      this.#b,
      h(
        "div",
        { class: "smdw-compare-fields" },
        field("Run", this.#run.el),
        field("Worker", this.#worker.el),
        field("Tensor", this.#tensor),
        this.#names,
        field("Step", h("span", { class: "smdw-pair" }, this.#step.el, this.#pinned)),
        this.#fault,
        this.#parting,
        h("div", { class: "smdw-actions" }, this.#swap, this.#stop),
      ),
      context,
      context.session.state.get("_kind") === "explorer" ? "above" : "below",
    );
    this.el = h(
      "div",
      { class: "smdw-compare" },
      h("span", { class: "smdw-quiet smdw-compare-show" }, "show"),
      this.#views.el,
      h("div", { class: "smdw-anchor" }, this.#b, popover.el),
      iconButton("swap", "Swap A and B (x)", () => this.swap(), signal),
    );
    signal.addEventListener("abort", () => clearInterval(this.#timer));
  }

  /** Handles the keys of comparisons; returns whether it was one. */
  key(name: string): boolean {
    const { state } = this.context.session;
    const comparing = isComparing(state.all());
    if (name === "c") {
      const { main, step } = this.context.session.scene();
      const { offset, step: _, ...rest } = state.get("compare");
      state.set({ compare: { ...rest, step: main && !Number.isNaN(main.savedStep) ? main.savedStep : step } });
      if (["a", "b"].includes(state.get("view"))) this.show("side");
    } else if (name === "x") this.swap();
    else if (name === "m") this.show(comparing && state.get("view") === "diff" ? "side" : "diff");
    else if (name === "v") {
      const still = comparing && reducedMotion();
      this.show(
        still ? (state.get("view") === "b" ? "a" : "b") : state.get("view") === "blink" && comparing ? "side" : "blink",
      );
    } else return false;
    return true;
  }

  show(view: View): void {
    const { state } = this.context.session;
    if (this.#buttons.get(view)?.disabled) return;
    const compare = isComparing(state.all()) || view === "a" ? state.get("compare") : BEFORE;
    state.set({ view, compare });
  }

  swap(): void {
    const patch = swapped(this.context.session.scene());
    if (patch) this.context.session.state.set(patch);
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main, compared, run } = scene;
    const { store } = this.context.session;
    const { compare } = traits;
    const comparing = isComparing(traits);
    this.#views.update(comparing ? traits.view : "a");
    const fault = differenceFault(main, compared);
    for (const [view, , title] of VIEWS)
      setAttributes(this.#buttons.get(view) as HTMLElement, {
        title: view === "diff" && fault ? fault : title,
        disabled: view === "diff" && fault !== "",
      });
    setText(this.#fault, fault);
    setVisible(this.#fault, fault !== "");
    this.#showParting(traits);
    const text = comparing ? `B = ${this.#describe(scene)}` : "Compare with";
    setText(this.#b, text);
    this.#b.title = comparing ? `Compare with: ${text}` : "Choose what to compare with";
    const swap = this.el.lastElementChild as HTMLButtonElement;
    for (const button of [swap, this.#swap]) button.disabled = !swapped(scene);
    setVisible(swap, comparing);
    setVisible(this.#stop, comparing);
    const place = tensorOfB(traits);
    const runs = [...store.runs].filter(([index]) => index !== traits.run);
    this.#run.update(
      [["", "as A"], ...runs.map(([index, each]) => [String(index), each.head.name] as const)],
      compare.run === undefined || compare.run === traits.run ? "" : String(compare.run),
    );
    setVisible(this.#run.el.parentElement as HTMLElement, runs.length > 0);
    const workers = compared?.frames.plan?.workers ?? main?.frames.plan?.workers ?? [];
    const listed = compare.worker && !workers.includes(compare.worker) ? [...workers, compare.worker] : workers;
    this.#worker.update(
      [["", "as A"], ...[...listed].sort(compareNatural).map((worker) => [worker, worker] as const)],
      compare.worker ?? "",
    );
    setVisible(this.#worker.el.parentElement as HTMLElement, listed.length > 1 || compare.worker !== undefined);
    if (!this.#tensor.matches(":focus")) this.#tensor.value = compare.tensor ?? "";
    const ofB = store.runs.get(place.run);
    if (this.#offered.changed([place.run, ofB?.namesVersion]))
      this.#names.replaceChildren(...(ofB?.names ?? []).slice(0, OFFERED).map((name) => h("option", { value: name })));
    this.#step.update(
      [
        ["same", "as A"],
        ["-1", "saved step before A"],
        ["here", `step of A now${main && !Number.isNaN(main.savedStep) ? ` (${count(main.savedStep)})` : ""}`],
        ...(run?.steps.length ? [["first", `first step (${count(defined(run.steps[0]))})`] as const] : []),
        ...(compare.step === undefined ? [] : [["step", `step ${count(compare.step)}`] as const]),
        ...(compare.offset === undefined || compare.offset === -1
          ? []
          : [["offset", `${compare.offset} saved steps from A`] as const]),
      ],
      compare.step !== undefined ? "step" : compare.offset === -1 ? "-1" : compare.offset ? "offset" : "same",
    );
    if (!this.#pinned.matches(":focus")) this.#pinned.value = compare.step === undefined ? "" : String(compare.step);
    this.#blink(comparing && traits.view === "blink" && !reducedMotion());
  }

  /** Where the compared runs part. */
  #showParting(traits: Traits) {
    const { store, connection } = this.context.session;
    const runs = comparedRuns(traits);
    const known = runs && store.partings.get(partingKey(...runs));
    const status = connection.requests.get("bisect");
    const looking = status && (status.error || "Looking for the first difference\u2026");
    setText(this.#parting, known ? truncate(known.text, 400) : runs && looking ? looking : "");
    setVisible(this.#parting, this.#parting.textContent !== "");
  }

  /** What is B, as short as possible. */
  #describe({ traits, compared }: Scene): string {
    const { compare } = traits;
    const run = compare.run === undefined ? undefined : this.context.session.store.runs.get(compare.run)?.head.name;
    const step =
      compared && !Number.isNaN(compared.savedStep)
        ? `step ${count(compared.savedStep)}`
        : compare.step === undefined
          ? ""
          : `step ${count(compare.step)}`;
    const named = [run && truncate(run, 24), compare.tensor && truncate(compare.tensor, 24), compare.worker];
    const parts = named.filter(Boolean);
    // The step of the same tensor is what tells B from A.
    if (!parts.length || compare.step !== undefined || compare.offset) parts.push(step || "not saved");
    return parts.join(" ");
  }

  #blink(on: boolean) {
    if (on === (this.#timer !== undefined)) return;
    clearInterval(this.#timer);
    this.#timer = on ? setInterval(() => this.context.redraw(), BLINK_MS / 2) : undefined;
  }

  #set(patch: { [K in keyof Compare]?: Compare[K] | undefined }) {
    const { state } = this.context.session;
    const next = Object.entries({ ...state.get("compare"), ...patch }).filter(([, value]) => value !== undefined);
    state.set({ compare: Object.fromEntries(next) });
  }

  #setTensor() {
    const name = this.#tensor.value.trim();
    const { store } = this.context.session;
    const known = this.#scene && store.runs.get(tensorOfB(this.#scene.traits).run)?.names.includes(name);
    if (name && !known) {
      setText(this.#fault, `No tensor ${truncate(name, 80)} in this run`);
      setVisible(this.#fault, true);
      return;
    }
    this.#set({ tensor: name || undefined });
  }

  #setStep(value: string) {
    const { main, run } = this.#scene ?? {};
    const step = value === "first" ? run?.steps[0] : value === "here" ? main?.savedStep : undefined;
    if (step !== undefined && !Number.isNaN(step)) this.#set({ step, offset: undefined });
    else if (value === "-1") this.#set({ step: undefined, offset: -1 });
    else if (value === "same") this.#set({ step: undefined, offset: undefined });
  }
}
