/** The first step at which the compared runs differ: a flag on the axis with the tensor, which a press shows. */
import { partingKey } from "../../data/store";
import { h, setAttributes, setText, setVisible } from "../../lib/dom";
import { count, truncate } from "../../lib/format";
import type { DivergenceHead } from "../../protocol/types";
import { comparedRuns } from "../../session/comparison";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";

export class PartingMark implements Part {
  readonly el: HTMLElement;
  readonly #flag = h("button", { type: "button", class: "smdw-parting" });
  #shown: DivergenceHead | undefined;

  constructor(private readonly context: Context) {
    this.#flag.addEventListener("click", () => this.#go(), { signal: context.signal });
    this.el = h("div", { class: "smdw-bookmarks" }, this.#flag);
  }

  update({ traits, stepAxis: axis }: Scene): void {
    const { store } = this.context.session;
    const runs = comparedRuns(traits);
    this.#shown = runs && store.partings.get(partingKey(...runs));
    const { step = null, tensor = "", text = "", meaning = "" } = this.#shown ?? {};
    const x = step === null ? Number.NaN : axis.x(step);
    const inside = x >= axis.left - 1 && x <= axis.right + 1;
    setVisible(this.el, inside);
    if (!inside || step === null || !runs) return;
    this.#flag.style.transform = `translateX(${x}px)`;
    // Near the end of the axis, the text is on the other side of its line.
    this.#flag.dataset.left = String(x > (axis.left + axis.right) / 2);
    const words = `\u2260 ${truncate(tensor || `step ${count(step)}`, 40)}`;
    setText(this.#flag, words);
    const said = `B = ${truncate(store.runs.get(runs[1])?.head.name ?? "", 60)}. ${truncate(text, 400)}`;
    setAttributes(this.#flag, {
      "aria-label": `${words}. ${said}`,
      title: [said, meaning].filter(Boolean).join("\n"),
    });
  }

  #go() {
    const { step = null, tensor = "" } = this.#shown ?? {};
    if (step === null) return;
    this.context.session.state.set({ step, follow: false, ...(tensor ? { tensor, inspect: true } : {}) });
  }
}
