/** A box that a button opens and closes; Escape, a click elsewhere and loss of focus close it. */
import { h, setAttributes, setVisible } from "../../lib/dom";
import type { Context } from "./part";

export class Popover {
  readonly el: HTMLElement;

  constructor(
    readonly button: HTMLButtonElement,
    content: Node,
    private readonly context: Context,
    side: "above" | "below" = "below",
  ) {
    const { signal } = context;
    this.el = h("div", { class: `smdw-popover smdw-${side}`, hidden: true }, content);
    setAttributes(button, { "aria-expanded": "false" });
    button.addEventListener("click", () => this.show(!this.open), { signal });
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || !this.open) return false;
      this.show(false);
      button.focus();
      return true;
    };
    context.keys.on(this.el, onKey);
    context.keys.on(button, onKey);
    const inside = (target: EventTarget | null) =>
      target instanceof Node && (this.el.contains(target) || button.contains(target));
    this.el.addEventListener(
      "focusout",
      (event) => {
        if (event.relatedTarget && !inside(event.relatedTarget)) this.show(false);
      },
      { signal },
    );
    window.addEventListener(
      "pointerdown",
      (event) => {
        const [target] = event.composedPath();
        if (this.open && !inside(target ?? null)) this.show(false);
      },
      { signal, capture: true },
    );
  }

  get open(): boolean {
    return !this.el.hidden;
  }

  show(open: boolean): void {
    setVisible(this.el, open);
    setAttributes(this.button, { "aria-expanded": String(open) });
    if (open) this.#keepInside();
    this.context.redraw();
  }

  /** Moves the box so far to the left that it does not leave the widget. */
  #keepInside(): void {
    this.el.style.translate = "";
    const widget = this.el.closest(".smdw")?.getBoundingClientRect();
    const box = this.el.getBoundingClientRect();
    if (!widget) return;
    const right = Math.max(0, box.right - widget.right + 8);
    const left = Math.max(0, widget.left + 8 - box.left);
    if (right || left) this.el.style.translate = `${Math.round(left - right)}px`;
  }
}
