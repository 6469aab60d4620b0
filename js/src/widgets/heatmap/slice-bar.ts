/** Selects the row and column axes and the fixed indices of tensors with more than two axes. */

import { resolveAxes, resolveFixed } from "../../data/matrix";
import { defined } from "../../lib/defined";
import { h, Select, setVisible } from "../../lib/dom";
import { count } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";

export class SliceBar implements Part {
  readonly el = h("div", { class: "smdw-slice" });
  readonly #rows: Select;
  readonly #cols: Select;
  readonly #others = h("span", { class: "smdw-slice-others" });
  #inputs: HTMLInputElement[] = [];
  readonly #drawn = new Memo();
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
    if (this.#drawn.changed([sizes, [...this.#axes]])) {
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
    if (axes[1 - which] === axis) axes[1 - which] = defined(axes[which]);
    axes[which] = axis;
    this.context.session.state.set({ axes, zoom: [], selection: {} });
  }

  #fix(target: EventTarget | null, by = 0) {
    const input = this.#inputs.find((each) => each === target);
    if (!input) return false;
    const axis = Number(input.dataset.axis);
    const fixed = [...this.#fixed];
    const size = defined(this.#shape[axis]);
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
