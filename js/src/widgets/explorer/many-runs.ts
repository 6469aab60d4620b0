/** An explorer of many runs: their table, and in its place the map of the run that was opened. */
import { focusedNear, h, setVisible } from "../../lib/dom";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";
import { RunsView } from "../runs/view";
import { Explorer } from "./view";

export class ManyRuns implements Part {
  readonly el = h("div", { class: "smdw-many" });
  readonly #table: RunsView;
  #explorer: Explorer | undefined;
  #shown: boolean | undefined;

  constructor(private readonly context: Context) {
    this.#table = new RunsView(context);
    this.el.append(this.#table.el);
  }

  update(scene: Scene): void {
    const { table } = scene.traits;
    if (!table && !this.#explorer) {
      this.#explorer = new Explorer(this.context);
      this.el.append(this.#explorer.el);
    }
    setVisible(this.#table.el, table);
    if (this.#explorer) setVisible(this.#explorer.el, !table);
    if (table) this.#table.update(scene);
    else this.#explorer?.update(scene);
    if (this.#shown === table) return;
    // The focus follows, unless it is elsewhere in the page.
    const focused = focusedNear(this.el);
    const follows = this.#shown !== undefined && (this.el.contains(focused) || focused === document.body);
    this.#shown = table;
    if (follows) table ? this.#table.focus() : this.#explorer?.el.focus({ preventScroll: true });
  }
}
