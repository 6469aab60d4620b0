/** Parts below each other. */
import { h } from "../../lib/dom";
import type { Scene } from "../../session/scene";
import type { Part } from "./part";

export class Stack implements Part {
  readonly el: HTMLElement;
  constructor(
    name: string,
    private readonly parts: readonly Part[],
  ) {
    this.el = h("div", { class: `smdw-${name}` }, ...parts.map((part) => part.el));
  }
  update(scene: Scene): void {
    for (const part of this.parts) part.update(scene);
  }
}
