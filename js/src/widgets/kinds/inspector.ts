/** `TensorInspector`: the panels of one tensor below a step slider. */
import { h, setAttributes, Toggle } from "../../lib/dom";
import { Memo } from "../../lib/memo";
import type { PanelName } from "../../protocol/types";
import { DataRequester } from "../../session/data-requester";
import type { Scene } from "../../session/scene";
import { viewed } from "../../session/slots";
import type { Context, Part, WidgetKind } from "../common/part";
import { Stack } from "../common/stack";
import { SliceBar } from "../heatmap/slice-bar";
import { fits, type PictureName, showsChanges } from "../inspector/fits";
import { TensorHeader } from "../inspector/header";
import { openPanels, PANELS, PanelSet } from "../inspector/pictures";
import { StepSlider } from "../steps/slider";

/** The open panels, created when first shown. */
class Panels implements Part {
  readonly el = h("div", { class: "smdw-panels" });
  readonly #made: PanelSet;
  readonly #order = new Memo();

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
    if (this.#order.changed(names)) this.el.replaceChildren(...parts.map((part) => part.el));
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

const INSPECTOR_PANELS: PanelName[] = ["histogram", "heatmap", "history", "statistics", "values"];

function layout(context: Context): Part {
  const header = new TensorHeader(context, new SliceBar(context));
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

export const kind: WidgetKind = { layout, requester: (session, signal) => new DataRequester(session, signal) };
