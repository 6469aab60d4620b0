/** The pictures of the tensor at the step, side by side; those without room share the last place as tabs. */
import { h, setAttributes, setVisible } from "../../lib/dom";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import { viewed } from "../../session/slots";
import { DeferredPart } from "../common/deferred";
import type { Context, Part } from "../common/part";
import { HeatmapPanel } from "../heatmap/panel";
import { fits, type PictureName } from "./fits";
import { HistogramPanel } from "./histogram";
import { HistoryPanel } from "./history";
import { StatisticsPanel } from "./statistics";

export const PANELS: Record<PictureName, { title: string; make(context: Context): Part }> = {
  pr_curve: {
    title: "PR curve",
    make: (context) => new DeferredPart(context, async () => new (await import("./pr-curve")).PrCurvePanel(context)),
  },
  histogram: { title: "Histogram", make: (context) => new HistogramPanel(context) },
  heatmap: { title: "Heat map", make: (context) => new HeatmapPanel(context) },
  changed: {
    title: "Cells",
    make: (context) =>
      new DeferredPart(context, async () => new (await import("../compare/changed-cells")).ChangedPanel(context)),
  },
  values: {
    title: "Values",
    make: (context) => new DeferredPart(context, async () => new (await import("./values")).ValuesPanel(context)),
  },
  statistics: { title: "Statistics", make: (context) => new StatisticsPanel(context) },
  history: { title: "Over steps", make: (context) => new HistoryPanel(context) },
  scalars: {
    title: "Curves",
    make: (context) =>
      new DeferredPart(context, async () => new (await import("../scalars/panel")).ScalarPanel(context)),
  },
  rules: {
    title: "Rules",
    make: (context) => new DeferredPart(context, async () => new (await import("../rules/panel")).RulePanel(context)),
  },
};
const NAMES = Object.keys(PANELS) as PictureName[];

/** The open panels that apply to the tensor in view. A precision-recall curve and changed cells open by themselves. */
export const openPanels = (scene: Scene): PictureName[] =>
  NAMES.filter(
    (name) => (name === "pr_curve" || name === "changed" || scene.traits.panels.includes(name)) && fits(name, scene),
  );

/** A panel of each kind, created when it is first shown. */
export class PanelSet {
  readonly #made = new Map<PictureName, Part>();
  constructor(private readonly context: Context) {}

  get(name: PictureName): Part {
    const part = this.#made.get(name) ?? PANELS[name].make(this.context);
    this.#made.set(name, part);
    return part;
  }
}

export class Pictures implements Part {
  readonly el = h("div", { class: "smdw-pictures" });
  readonly #panels: PanelSet;
  readonly #tabs = h("div", { class: "smdw-tabs", role: "tablist", "aria-label": "Pictures" });
  readonly #buttons = new Map<PictureName, HTMLButtonElement>();
  readonly #columns: HTMLElement[] = [];
  readonly #id = `smdw-tab-${Math.random().toString(36).slice(2)}`;
  #tab: PictureName | undefined;
  readonly #order = new Memo();
  #changes = false;

  constructor(private readonly context: Context) {
    this.#panels = new PanelSet(context);
    for (const name of NAMES) {
      const button = h("button", { type: "button", class: "smdw-tab", role: "tab" }, PANELS[name].title);
      button.addEventListener("click", () => this.#open(name), { signal: context.signal });
      this.#buttons.set(name, button);
      this.#tabs.append(button);
    }
    context.keys.on(this.#tabs, (event) => this.#key(event));
  }

  update(scene: Scene, room = 3): void {
    const chosen = openPanels(scene);
    // A − B takes the place of the tab that was open.
    if (chosen.includes("changed") !== this.#changes) this.#tab = undefined;
    this.#changes = chosen.includes("changed");
    const n = Math.min(room, Math.max(1, chosen.length));
    const beside = chosen.slice(0, n - 1);
    const tabs = NAMES.filter((name) => !beside.includes(name));
    const open = this.#tab && tabs.includes(this.#tab) && fits(this.#tab, scene) ? this.#tab : this.#first(chosen, n);
    const { exported } = this.context.session;
    for (const [name, button] of this.#buttons) {
      const can = fits(name, scene);
      setVisible(button, tabs.includes(name) && (can || exported));
      setAttributes(button, {
        "aria-selected": String(name === open),
        "aria-controls": name === open ? this.#id : undefined,
        tabindex: name === open || (!open && name === tabs[0]) ? 0 : -1,
        disabled: !can,
        title: can ? undefined : "Not in this file",
      });
    }
    const shown = open ? [...beside, open] : beside;
    if (this.#order.changed([n, shown])) this.#place(n, shown);
    for (const name of shown) this.#panels.get(name).update(viewed(scene));
  }

  /** The picture at the right: if it is the only one, A − B itself. */
  #first(chosen: readonly PictureName[], n: number): PictureName | undefined {
    return n === 1 && chosen.includes("changed") && chosen.includes("heatmap") ? "heatmap" : chosen[n - 1];
  }

  #place(n: number, shown: readonly PictureName[]) {
    while (this.#columns.length < n) this.#columns.push(h("div", { class: "smdw-picture" }));
    const columns = this.#columns.slice(0, n);
    columns.forEach((column, i) => {
      const name = shown[i];
      const last = i === n - 1;
      column.classList.toggle("smdw-tabbed", last);
      column.replaceChildren(...(last ? [this.#tabs] : []), ...(name ? [this.#panels.get(name).el] : []));
      if (last && name) setAttributes(this.#panels.get(name).el, { id: this.#id, role: "tabpanel" });
    });
    this.el.style.setProperty("--smdw-columns", String(n));
    this.el.replaceChildren(...columns);
  }

  #open(name: PictureName) {
    this.#tab = name;
    this.#buttons.get(name)?.scrollIntoView({ block: "nearest", inline: "nearest" });
    const { state } = this.context.session;
    const panels = state.get("panels");
    if (name !== "changed" && !panels.includes(name)) state.set({ panels: [...panels, name] });
    this.context.redraw();
  }

  #key(event: KeyboardEvent): boolean {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return false;
    const tabs = [...this.#buttons].filter(([, button]) => !button.hidden && !button.disabled);
    const at = tabs.findIndex(([name]) => this.#buttons.get(name)?.getAttribute("aria-selected") === "true");
    const next = tabs[(at + by + tabs.length) % tabs.length];
    if (next) {
      this.#open(next[0]);
      next[1].focus();
    }
    return true;
  }
}
