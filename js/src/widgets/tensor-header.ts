/** Name, type, shape and non-finite counts of the tensor in view, and the comparison. */

import { resolveAxes, resolveFixed } from "../data/matrix";
import type { TensorView } from "../data/tensor-view";
import { h, Select, setText, setVisible, textButton } from "../lib/dom";
import { bytes, count, percent, shape, truncate } from "../lib/format";
import { compareNatural } from "../lib/natural-order";
import { pyString } from "../lib/save";
import type { Scene } from "../session/session";
import { stepName } from "./frame-text";
import type { Context, Part } from "./part";

const CHIPS = [
  ["NaN", 1],
  ["+Inf", 2],
  ["\u2212Inf", 3],
  ["zero", 4],
] as const;

export class TensorHeader implements Part {
  readonly el: HTMLElement;
  readonly #name = h("h2", { class: "smdw-name" });
  readonly #facts = h("div", { class: "smdw-facts" });
  readonly #chips = h("div", { class: "smdw-chips" });
  readonly #source = h("span", { class: "smdw-from", role: "status" });
  readonly #worker: Select;
  readonly #compare: Select;
  readonly #stopComparing: HTMLButtonElement;
  readonly #slice: SliceBar;
  #scene: Scene | undefined;

  constructor(private readonly context: Context) {
    const { signal, session } = context;
    this.#worker = new Select("Worker", (worker) => session.state.set({ worker }), signal);
    this.#compare = new Select("Compare with", (value) => this.#setComparison(value), signal);
    this.#stopComparing = textButton("Stop comparing", () => session.state.set({ compare: {} }), signal);
    this.#slice = new SliceBar(context);
    this.el = h(
      "section",
      { class: "smdw-tensor", "aria-label": "Tensor" },
      h(
        "div",
        { class: "smdw-tensor-line" },
        this.#name,
        this.#source,
        h("div", { class: "smdw-tools" }, this.#worker.el, this.#compare.el, this.#stopComparing),
      ),
      h("div", { class: "smdw-tensor-line" }, this.#facts, this.#chips),
      this.#slice.el,
    );
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { main, compared, traits } = scene;
    const plan = main?.frames.plan;
    const frame = main?.frame;
    const sizes = frame?.shape ?? plan?.shape;
    setText(this.#name, traits.tensor ? truncate(traits.tensor, 200) : "No tensor selected");
    this.#name.title = truncate(traits.tensor, 2000);
    const elements = frame?.counts?.[0];
    const facts = plan
      ? [
          plan.dtype === "str" ? "text" : plan.dtype,
          sizes ? shape(sizes) : "",
          elements === undefined || elements <= 1 ? "" : `${count(elements)} values`,
          plan.bytes && plan.form !== "text" ? bytes(plan.bytes) : "",
          plan.collections.join(", "),
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
    this.#comparisons(scene, workers);
    this.#slice.update(scene);
  }

  #updateSource(main: TensorView | undefined, compared: TensorView | undefined) {
    const { store } = this.context.session;
    const describe = (shown: TensorView | undefined, prefix: string) => {
      if (!shown || (shown.savedStep === shown.step && !shown.pending)) return "";
      // Nothing is known about the tensor before its plan arrives.
      if (Number.isNaN(shown.savedStep)) {
        if (!shown.frames.plan) return "";
        return `${prefix}${shown.neverSaved ? "not saved in this mode" : "not saved yet"}`;
      }
      const name = stepName(store, shown.run, shown.savedStep);
      if (shown.pending)
        return shown.frame
          ? `${prefix}loading ${name}, showing step ${count(shown.frame.step)}`
          : `${prefix}loading ${name}`;
      const reason =
        shown.exported && shown.frames.steps.includes(shown.step) ? "not in this file" : "not saved at this step";
      return `${prefix}${reason}: showing ${name}`;
    };
    const run = compared && store.runs.get(compared.run)?.head.name;
    const error = main?.frame?.error;
    const only = main?.statisticsOnly
      ? `not in this file: statistics only \u00b7 w.to_html("page.html", tensors=[${pyString(main.tensor)}])`
      : "";
    const parts = [
      error ? `${error.type}: ${error.message}` : only || describe(main, ""),
      compared && describe(compared, `${compared.run !== main?.run && run ? truncate(run, 40) : "compared"}: `),
    ];
    setText(this.#source, truncate(parts.filter(Boolean).join(" \u00b7 "), 400));
    this.#source.classList.toggle("smdw-error", Boolean(error));
  }

  #drawChips(main: TensorView | undefined) {
    const counts = main?.frames.plan?.form === "text" ? undefined : main?.frame?.counts;
    if (this.#chips.childElementCount === 0)
      for (const [name] of CHIPS)
        this.#chips.append(h("span", { class: "smdw-chip" }, h("span", {}, name), h("b", {})));
    setVisible(this.#chips, Boolean(counts));
    if (!counts) return;
    CHIPS.forEach(([name, at], i) => {
      const chip = this.#chips.children[i] as HTMLElement;
      const n = counts[at] as number;
      const total = counts[0] as number;
      const share = n && total > 1 ? ` ${percent(n / total)}` : "";
      setText(
        chip.lastElementChild as HTMLElement,
        name === "zero" ? (total > 1 ? percent(total ? n / total : 0) : count(n)) : `${count(n)}${share}`,
      );
      chip.classList.toggle("smdw-bad", name !== "zero" && n > 0);
      chip.title = `${count(n)} of ${count(total)} values are ${name}`;
    });
  }

  #comparisons({ traits, run }: Scene, workers: readonly string[]) {
    const { store } = this.context.session;
    const { compare } = traits;
    const options: [string, string][] = [
      ["", "Compare with\u2026"],
      ["pin", "This step"],
    ];
    if (compare.step !== undefined) options.push(["step", `Step ${count(compare.step)}`]);
    for (const [index, other] of store.runs)
      if (index !== traits.run) options.push([`run:${index}`, `Run ${other.head.name}`]);
    for (const worker of workers)
      if (worker !== (traits.worker || workers[0])) options.push([`worker:${worker}`, worker]);
    const value =
      compare.run !== undefined
        ? `run:${compare.run}`
        : compare.worker !== undefined
          ? `worker:${compare.worker}`
          : compare.step !== undefined
            ? "step"
            : "";
    this.#compare.update(options, value);
    setVisible(this.#compare.el, Boolean(run));
    setVisible(this.#stopComparing, value !== "");
  }

  #setComparison(value: string) {
    const { state } = this.context.session;
    const [kind, rest = ""] = [value.split(":")[0], value.slice(value.indexOf(":") + 1)];
    if (kind === "pin" && this.#scene) state.set({ compare: { step: this.#scene.step } });
    else if (kind === "run") state.set({ compare: { run: Number(rest) } });
    else if (kind === "worker") state.set({ compare: { worker: rest } });
    else if (kind === "") state.set({ compare: {} });
    this.context.redraw();
  }
}

/** Selects the row and column axes and the fixed indices of tensors with more than two axes. */
class SliceBar implements Part {
  readonly el = h("div", { class: "smdw-slice" });
  readonly #rows: Select;
  readonly #cols: Select;
  readonly #others = h("span", { class: "smdw-slice-others" });
  #inputs: HTMLInputElement[] = [];
  #key = "";
  #shape: number[] = [];
  #axes: number[] = [];
  #fixed: number[] = [];

  constructor(private readonly context: Context) {
    const { signal } = context;
    this.#rows = new Select("Row axis", (axis) => this.#choose(0, Number(axis)), signal);
    this.#cols = new Select("Column axis", (axis) => this.#choose(1, Number(axis)), signal);
    this.el.append(
      h("label", { class: "smdw-field" }, h("span", {}, "Rows"), this.#rows.el),
      h("label", { class: "smdw-field" }, h("span", {}, "Columns"), this.#cols.el),
      this.#others,
    );
    context.keys.on(this.#others, (event) => this.#step(event));
    this.#others.addEventListener("change", (event) => this.#fix(event.target), { signal });
  }

  update({ main, traits }: Scene): void {
    const sizes = main?.frame?.shape ?? main?.frames.plan?.shape ?? [];
    setVisible(this.el, sizes.length > 2);
    if (sizes.length <= 2) return;
    this.#shape = sizes;
    this.#axes = resolveAxes(traits.axes, sizes.length, main?.frames.plan?.form);
    this.#fixed = resolveFixed(traits.fixed, sizes);
    const options = sizes.map((size, axis) => [String(axis), `axis ${axis} (${count(size)})`] as const);
    this.#rows.update(options, String(this.#axes[0]));
    this.#cols.update(options, String(this.#axes[1]));
    const key = JSON.stringify([sizes, this.#axes]);
    if (key !== this.#key) {
      this.#key = key;
      this.#inputs = [];
      this.#others.replaceChildren(
        ...sizes.flatMap((size, axis) => {
          if (this.#axes.includes(axis)) return [];
          const input = h("input", {
            class: "smdw-input smdw-index",
            inputmode: "numeric",
            "aria-label": `Index on axis ${axis}, of ${size}`,
            "data-axis": axis,
          });
          this.#inputs.push(input);
          return [
            h(
              "label",
              { class: "smdw-field" },
              h("span", {}, `Axis ${axis}`),
              input,
              h("span", { class: "smdw-quiet" }, `of ${count(size)}`),
            ),
          ];
        }),
      );
    }
    for (const input of this.#inputs)
      if (!input.matches(":focus")) input.value = String(this.#fixed[Number(input.dataset.axis)] ?? 0);
  }

  #choose(which: 0 | 1, axis: number) {
    const axes = [...this.#axes];
    // Selecting the other selector's axis swaps the two.
    if (axes[1 - which] === axis) axes[1 - which] = axes[which] as number;
    axes[which] = axis;
    this.context.session.state.set({ axes, zoom: [], selection: {} });
  }

  #fix(target: EventTarget | null, by = 0) {
    const input = this.#inputs.find((each) => each === target);
    if (!input) return false;
    const axis = Number(input.dataset.axis);
    const fixed = [...this.#fixed];
    const size = this.#shape[axis] as number;
    const value = Number.parseInt(input.value, 10);
    fixed[axis] = Math.max(0, Math.min(size - 1, (Number.isFinite(value) ? value : 0) + by));
    input.value = String(fixed[axis]);
    this.context.session.state.set({ fixed });
    return true;
  }

  #step(event: KeyboardEvent): boolean {
    const by = { ArrowUp: 1, ArrowDown: -1, Enter: 0 }[event.key];
    return by !== undefined && this.#fix(event.composedPath()[0] ?? null, by);
  }
}
