/** The selected steps, over all lanes, and what can be done with them. */
import { lastAtOrBefore, nearestIndex } from "../../data/frames";
import { h, iconButton, setText, setVisible, textButton } from "../../lib/dom";
import { count } from "../../lib/format";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";

interface Actions {
  loop(range: [number, number]): void;
  differences(range: [number, number]): void;
}

export class Brush implements Part {
  readonly el: HTMLElement;
  readonly #band = h("div", { class: "smdw-brush" });
  readonly #menu: HTMLElement;
  readonly #words = h("span", { class: "smdw-quiet" });
  #range: [number, number] | undefined;

  constructor(context: Context, actions: Actions) {
    const { state } = context.session;
    const { signal } = context;
    const act = (run: (range: [number, number]) => void) => () => this.#range && run(this.#range);
    const clear = () => state.set({ selection: {} });
    this.#menu = h(
      "div",
      { class: "smdw-brush-menu", role: "group", "aria-label": "Selected steps" },
      this.#words,
      textButton(
        "Zoom",
        act((range) => state.set({ range, selection: {} })),
        signal,
      ),
      textButton("Loop", act(actions.loop), signal),
      textButton("What differs", act(actions.differences), signal),
      textButton(
        "Bookmark",
        act(([step]) => {
          const { axis } = context.session.scene();
          const saved = axis.steps[nearestIndex(axis.steps, step)] ?? step;
          const others = state.get("bookmarks").filter((each) => each.step !== saved);
          const bookmark = { step: saved, tensor: state.get("tensor"), note: "" };
          state.set({ bookmarks: [...others, bookmark].sort((a, b) => a.step - b.step) });
        }),
        signal,
      ),
      iconButton("close", "Clear selection (Esc)", clear, signal),
    );
    this.el = h("div", { class: "smdw-brush-layer" }, this.#band, this.#menu);
  }

  update({ traits, stepAxis: axis, axis: { steps } }: Scene): void {
    const { selection } = traits;
    this.#range = selection.kind === "steps" ? selection.range : undefined;
    setVisible(this.el, this.#range !== undefined);
    if (!this.#range) return;
    const inside = (x: number) => Math.max(axis.left, Math.min(axis.right, x));
    const [from, to] = [inside(axis.x(this.#range[0])), inside(axis.x(this.#range[1]))];
    this.#band.style.transform = `translateX(${from}px)`;
    this.#band.style.width = `${Math.max(1, to - from)}px`;
    const [first, last] = this.#range;
    const saved = lastAtOrBefore(steps, last) - lastAtOrBefore(steps, first - 1e-9);
    setText(this.#words, `${count(first)}\u2013${count(last)} \u00b7 ${count(saved)} saved`);
    // Beside the selection, inside the widget.
    const width = 390;
    this.#menu.style.transform = `translateX(${Math.max(4, Math.min(to + 8, axis.right + 56 - width))}px)`;
  }
}
