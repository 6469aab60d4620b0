/** Arranges components, one layout per widget kind. */

import { h, setAttributes, Toggle } from "../lib/dom";
import type { Kind, PanelName } from "../protocol/types";
import type { Scene } from "../session/session";
import { viewed } from "../session/slots";
import { Explorer } from "./explorer";
import { ManyRuns } from "./many-runs";
import type { Context, Part } from "./part";
import { fits, openPanels, PANELS, PanelSet, type PictureName, showsChanges } from "./pictures";
import { RulePanel } from "./rule-panel";
import { ScalarPanel } from "./scalar-panel";
import { StepSlider } from "./step-slider";
import { TensorHeader } from "./tensor-header";

/** The open panels, created when first shown. */
class Panels implements Part {
  readonly el = h("div", { class: "smdw-panels" });
  readonly #made: PanelSet;
  #order = "";

  constructor(context: Context) {
    this.#made = new PanelSet(context);
  }

  update(scene: Scene): void {
    const open = openPanels(scene);
    // In the order of the trait.
    const wanted = [...new Set([...open.filter((name) => name === "pr_curve"), ...scene.traits.panels])].filter(
      (name) => open.includes(name),
    );
    const names: PictureName[] = [...wanted];
    if (showsChanges(scene)) names.splice(names.indexOf("heatmap") + 1, 0, "changed");
    const parts = names.map((name) => this.#made.get(name));
    if (this.#order !== names.join()) {
      this.#order = names.join();
      this.el.replaceChildren(...parts.map((part) => part.el));
    }
    for (const part of parts) part.update(viewed(scene));
  }
}

/** Toggles for the panels. */
class PanelToggles implements Part {
  readonly el = h("div", { class: "smdw-panel-choice", role: "group", "aria-label": "Panels" });
  readonly #toggles = new Map<PanelName, Toggle>();
  readonly #exported: boolean;
  constructor(context: Context, names: readonly PanelName[]) {
    const { state } = context.session;
    this.#exported = context.session.exported;
    for (const name of names) {
      const toggle = new Toggle(
        PANELS[name].title,
        (on) => {
          const now = state.get("panels");
          state.set({
            panels: on
              ? names.filter((each) => each === name || now.includes(each))
              : now.filter((each) => each !== name),
          });
        },
        context.signal,
      );
      this.#toggles.set(name, toggle);
      this.el.append(toggle.el);
    }
  }
  update(scene: Scene): void {
    for (const [name, toggle] of this.#toggles) {
      toggle.update(scene.traits.panels.includes(name) && fits(name, scene));
      setAttributes(toggle.el, {
        disabled: !fits(name, scene),
        title: this.#exported && !fits(name, scene) ? "Not in this file" : undefined,
      });
    }
  }
}

class Stack implements Part {
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

const INSPECTOR_PANELS: PanelName[] = ["histogram", "heatmap", "history", "statistics", "values"];

function inspector(context: Context): Part {
  const header = new TensorHeader(context);
  const stack = new Stack("inspector", [
    new StepSlider(context),
    header,
    new PanelToggles(context, INSPECTOR_PANELS),
    new Panels(context),
  ]);
  context.keys.on(stack.el, (event) => {
    const target = event.composedPath()[0];
    const typing = target instanceof Element && target.matches("input, select, textarea");
    return !typing && header.key(event.key);
  });
  return stack;
}

export function layout(kind: Kind, context: Context): Part {
  switch (kind) {
    case "slider":
      return new StepSlider(context);
    case "inspector":
      return inspector(context);
    case "scalars":
      return new Stack("single", [new StepSlider(context), new ScalarPanel(context)]);
    case "rules":
      return new Stack("single", [new StepSlider(context), new RulePanel(context)]);
    default:
      return context.session.state.get("_many") ? new ManyRuns(context) : new Explorer(context);
  }
}
