/** What the pointer is over, beside the pointer, so that it takes the place of nothing. */
import { h, setText, setVisible } from "../../lib/dom";

/** Pixels between the pointer and the text. */
const GAP = 14;

export class Tooltip {
  readonly el = h("div", { class: "smdw-hover", "aria-hidden": "true", hidden: true });
  #x = 0;
  #y = 0;
  #width = 0;
  #height = 0;

  /** Follows the pointer over an element, which contains the text. */
  follow(stage: HTMLElement, signal: AbortSignal): void {
    stage.addEventListener(
      "pointermove",
      (event) => {
        const box = stage.getBoundingClientRect();
        [this.#x, this.#y] = [event.clientX - box.left, event.clientY - box.top];
        [this.#width, this.#height] = [box.width, box.height];
      },
      { signal, passive: true },
    );
  }

  /** Shows a text; nothing if it is empty. */
  show(text: string): void {
    setText(this.el, text);
    setVisible(this.el, text !== "");
    if (!text) return;
    // On the side of the pointer that has more room, so that its own size needs no measurement.
    const [left, above] = [this.#x > this.#width / 2, this.#y > this.#height - 60];
    const [dx, dy] = [left ? -GAP : GAP, above ? -GAP : GAP];
    const shift = `translate(${left ? "-100%" : "0"}, ${above ? "-100%" : "0"})`;
    this.el.style.transform = `translate(${this.#x + dx}px, ${this.#y + dy}px) ${shift}`;
    this.el.style.maxWidth = `${Math.max(120, (left ? this.#x : this.#width - this.#x) - 2 * GAP)}px`;
  }
}
