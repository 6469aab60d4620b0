/** Name, type, shape and non-finite counts of the tensor in view, and the comparison. */

import { statistic } from "../../data/frames";
import { isScalar, type TensorView } from "../../data/tensor-view";
import { defined } from "../../lib/defined";
import { h, Select, setAttributes, setText, setVisible } from "../../lib/dom";
import { bytes, count, num, percent, shape, truncate } from "../../lib/format";
import { compareNatural } from "../../lib/natural-order";
import { pyString } from "../../lib/save";
import type { Scene } from "../../session/scene";
import { viewed } from "../../session/slots";
import { Deferred } from "../common/deferred";
import { sampleText, stepName } from "../common/frame-text";
import type { Context, Part } from "../common/part";
import type { CompareBar } from "../compare/bar";
import type { SliceBar } from "../heatmap/slice-bar";

const CHIPS = [
  ["NaN", 1],
  ["+Inf", 2],
  ["\u2212Inf", 3],
  ["zero", 4],
] as const;

/** The parts of a name that tell tensors apart: "weight" alone does not. */
const lastParts = (name: string) => /(?:[^/.]{1,40}[/.])?[^/.]{1,40}$/.exec(name)?.[0] ?? "";

/** Keys of comparisons. */
const KEYS = new Set(["c", "x", "v", "m"]);

export class TensorHeader implements Part {
  readonly el: HTMLElement;
  /** The last part is what tells tensors apart: the first one is cut. */
  readonly #path = h("span", {});
  readonly #last = h("span", {});
  readonly #name = h("h2", { class: "smdw-name" }, this.#path, this.#last);
  readonly #facts = h("div", { class: "smdw-facts" });
  readonly #chips = h("div", { class: "smdw-chips" });
  readonly #source = h("span", { class: "smdw-from", role: "status" });
  readonly #worker: Select;
  readonly #compare: Deferred<CompareBar>;
  readonly #line: boolean;
  readonly #at = h("span", { class: "smdw-quiet smdw-at" });

  /** Without `slice`, all is in one line that also names the step. */
  constructor(
    private readonly context: Context,
    private readonly slice?: SliceBar,
  ) {
    const { signal, session } = context;
    this.#worker = new Select("Worker", (worker) => session.state.set({ worker }), signal);
    this.#line = slice === undefined;
    this.#compare = new Deferred(context, async () => new (await import("../compare/bar")).CompareBar(context));
    this.el = h(
      "section",
      { class: "smdw-tensor", "aria-label": "Tensor" },
      h(
        "div",
        { class: "smdw-tensor-line" },
        this.#name,
        this.#at,
        this.#source,
        h("div", { class: "smdw-tools" }, this.#worker.el, this.#compare.el),
      ),
      h("div", { class: "smdw-tensor-line" }, this.#facts, this.#chips),
      slice?.el,
    );
  }

  /** Handles a key of comparisons; returns whether it was one. */
  key(name: string): boolean {
    const { part } = this.#compare;
    if (part) return part.key(name);
    if (!KEYS.has(name)) return false;
    this.#compare.run((bar) => bar.key(name));
    return true;
  }

  update(scene: Scene): void {
    const { compared, traits } = scene;
    const { main } = viewed(scene);
    const plan = main?.frames.plan;
    const frame = main?.frame;
    const sizes = frame?.shape ?? plan?.shape;
    const name = traits.tensor ? truncate(traits.tensor, 200) : "No tensor selected";
    const cut = name.length - lastParts(name).length;
    setText(this.#path, name.slice(0, cut));
    setText(this.#last, name.slice(cut));
    setAttributes(this.#name, { "aria-label": name });
    this.#name.title = truncate(traits.tensor, 2000);
    setVisible(this.#at, this.#line && traits.tensor !== "");
    setText(this.#at, main && !Number.isNaN(main.savedStep) ? `at step ${count(main.savedStep)}` : "");
    const elements = frame?.counts?.[0];
    const facts = plan
      ? [
          plan.dtype === "str" ? "text" : plan.dtype,
          sizes && !plan.reduced ? shape(sizes) : "",
          this.#line && isScalar(main) && frame ? `value ${num(statistic(frame, "value"))}` : "",
          this.#line || elements === undefined || elements <= 1 ? "" : `${count(elements)} values`,
          !this.#line && plan.bytes && plan.form !== "text" ? bytes(plan.bytes) : "",
          plan.aliases ? `also ${plan.aliases.join(", ")}` : "",
          this.#line ? "" : plan.collections.join(", "),
          plan.form === "complex" ? "shown as magnitudes" : "",
          plan.reduced ? "reductions only" : "",
        ]
      : [];
    const shown = facts.filter(Boolean).map((fact) => truncate(fact, 80));
    if (this.#facts.textContent !== shown.join(""))
      this.#facts.replaceChildren(...shown.map((fact) => h("span", {}, fact)));
    this.#updateSource(main, compared);
    this.#drawChips(main);
    const workers = plan?.workers ?? [];
    setVisible(this.#worker.el, workers.length > 1);
    if (workers.length > 1)
      this.#worker.update(
        [...workers].sort(compareNatural).map((worker) => [worker === workers[0] ? "" : worker, worker] as const),
        traits.worker === workers[0] ? "" : traits.worker,
      );
    // The line of an explorer is about the map while no inspector is open.
    const compares = Boolean(scene.run && traits.tensor) && (!this.#line || traits.inspect);
    setVisible(this.#compare.el, compares);
    if (compares || this.#compare.part) this.#compare.use((bar) => bar.update(scene));
    this.slice?.update(scene);
  }

  #updateSource(main: TensorView | undefined, compared: TensorView | undefined) {
    const { store } = this.context.session;
    const showing = (shown: TensorView) => {
      if (shown.savedStep === shown.step) return "";
      const leftOut = shown.exported && shown.frames.steps.includes(shown.step);
      return `${leftOut ? "not in this file" : "not saved at this step"}: showing step ${count(shown.savedStep)}, `;
    };
    const describe = (shown: TensorView | undefined, prefix: string) => {
      if (!shown) return "";
      const sample = shown.pending ? "" : sampleText(shown.frame);
      if (sample) return `${prefix}${showing(shown)}histogram ${sample}`;
      if (shown.savedStep === shown.step && !shown.pending) return "";
      // Nothing is known about the tensor before its plan arrives.
      if (Number.isNaN(shown.savedStep)) {
        if (!shown.frames.plan) return "";
        return `${prefix}${shown.neverSaved ? "not saved in this mode" : "not saved yet"}`;
      }
      // Steps of the whole run, as everywhere: those of a mode are only in a title.
      const name = `step ${count(shown.savedStep)}`;
      if (shown.pending)
        return shown.frame
          ? `${prefix}loading ${name}, showing step ${count(shown.frame.step)}`
          : `${prefix}loading ${name}`;
      return `${prefix}${showing(shown).slice(0, -2)}`;
    };
    const run = compared && store.runs.get(compared.run)?.head.name;
    const error = main?.frame?.error;
    const only = main?.statisticsOnly
      ? `not in this file: statistics only \u00b7 w.to_html("page.html", tensors=[${pyString(main.tensor)}])`
      : "";
    const parts = [
      error ? `${error.type}: ${error.message}` : only || describe(main, ""),
      compared &&
        compared !== main &&
        describe(compared, `${compared.run !== main?.run && run ? truncate(run, 40) : "B"}: `),
    ];
    const source = parts.filter(Boolean).join(" \u00b7 ");
    setText(this.#source, truncate(source, 400));
    const ofMode = main && !Number.isNaN(main.savedStep) ? stepName(store, main.run, main.savedStep) : "";
    setAttributes(this.#source, {
      title: truncate([source, ofMode].filter(Boolean).join(" \u00b7 "), 2000) || undefined,
    });
    this.#source.classList.toggle("smdw-error", Boolean(error));
  }

  #drawChips(main: TensorView | undefined) {
    const counts = main?.frames.plan?.form === "text" ? undefined : main?.frame?.counts;
    if (this.#chips.childElementCount === 0)
      for (const [name] of CHIPS)
        this.#chips.append(h("span", { class: "smdw-chip" }, h("span", {}, name), h("b", {})));
    const shown = counts && !(this.#line && isScalar(main));
    setVisible(this.#chips, Boolean(shown));
    if (!counts || !shown) return;
    CHIPS.forEach(([name, at], i) => {
      const chip = this.#chips.children[i] as HTMLElement;
      const n = defined(counts[at]);
      const total = defined(counts[0]);
      const share = n && total > 1 ? ` ${percent(n / total)}` : "";
      const about = main?.frame?.sampled?.estimated ? "about " : "";
      setText(
        chip.lastElementChild as HTMLElement,
        about + (name === "zero" ? (total > 1 ? percent(total ? n / total : 0) : count(n)) : `${count(n)}${share}`),
      );
      chip.classList.toggle("smdw-bad", name !== "zero" && n > 0);
      chip.title = `${about}${count(n)} of ${count(total)} values are ${name}`;
    });
  }
}
