/** Colours and names of the two values that are compared. */

import type { Store } from "../../data/store";
import type { TensorView } from "../../data/tensor-view";
import type { Theme } from "../../draw/theme";
import { h, setText, setVisible } from "../../lib/dom";
import { count, truncate } from "../../lib/format";
import { slotColours } from "../../lib/slot-colour";
import type { ModeName } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { stepName } from "../common/frame-text";

/** Colours of A and B on the page's theme. */
export const comparisonColours = ({ main, compared }: Scene, store: Store, theme: Theme): [string, string] =>
  slotColours(main, compared, store, theme.dark);

/** Names what differs between the two: run, tensor, worker or step. */
export function slotNames(main: TensorView, compared: TensorView, mode: ModeName, store: Store): [string, string] {
  const name = (view: TensorView, other: TensorView) => {
    if (view.run !== other.run) return truncate(store.runs.get(view.run)?.head.name ?? `run ${view.run}`, 40);
    if (view.tensor !== other.tensor) return truncate(view.tensor, 40);
    if (view.worker !== other.worker) return view.worker || (view.frames.plan?.workers[0] ?? "first worker");
    // As in the step input and in "Compare with".
    if (Number.isNaN(view.savedStep)) return "not saved";
    return mode === "" || view === compared
      ? `step ${count(view.savedStep)}`
      : stepName(store, view.run, view.savedStep);
  };
  return [name(main, compared), name(compared, main)];
}

/** The legend of a picture that shows two values. */
export class ComparisonLegend {
  readonly el = h("ul", { class: "smdw-legend", hidden: true });
  readonly #entries = ["A: ", "B: "].map((prefix) => {
    const swatch = h("span", { class: "smdw-swatch" });
    const name = h("span", { class: "smdw-legend-name" });
    this.el.append(h("li", {}, swatch, name));
    return { prefix, swatch, name };
  });

  update(scene: Scene, store: Store, theme: Theme): void {
    const { main, compared } = scene;
    setVisible(this.el, compared !== undefined);
    if (!main || !compared) return;
    const colours = comparisonColours(scene, store, theme);
    const texts = slotNames(main, compared, scene.traits.mode, store);
    this.#entries.forEach(({ prefix, swatch, name }, i) => {
      swatch.style.color = colours[i] as string;
      setText(name, `${prefix}${texts[i]}`);
    });
  }
}
