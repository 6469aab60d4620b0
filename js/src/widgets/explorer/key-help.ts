/** The list of keys. */
import { h, textButton } from "../../lib/dom";
import { Deferred } from "../common/deferred";
import type { Context } from "../common/part";
import { Popover } from "../common/popover";

export class KeyHelp {
  readonly el: HTMLElement;
  readonly #popover: Popover;

  constructor(context: Context) {
    const list = new Deferred(context, async () => new (await import("./key-list")).KeyList());
    const button = textButton("?", () => list.use(() => {}), context.signal);
    button.setAttribute("aria-label", "Keys");
    button.title = "Keys (?)";
    const content = h("div", {}, list.el);
    this.#popover = new Popover(button, content, context);
    this.el = h("div", { class: "smdw-anchor smdw-help" }, button, this.#popover.el);
  }

  toggle(): void {
    this.#popover.button.click();
  }
}
