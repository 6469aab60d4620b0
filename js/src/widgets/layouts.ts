/** Arranges components, one layout per widget kind. */

import { isScalar } from "../data/tensor-view";
import { series } from "../lib/colour";
import { h, Select, setAttributes, setText, setVisible, Toggle } from "../lib/dom";
import { clockTime, count, plural, truncate } from "../lib/format";
import type { Kind, PanelName } from "../protocol/types";
import { NO_KERNEL } from "../session/client";
import type { Scene } from "../session/session";
import { DiagnosisBar } from "./diagnosis-bar";
import { HeatmapPanel } from "./heatmap-panel";
import { HistogramPanel } from "./histogram-panel";
import { HistoryPanel } from "./history-panel";
import type { Context, Part } from "./part";
import { RulePanel } from "./rule-panel";
import { ScalarPanel } from "./scalar-panel";
import { StatisticsPanel } from "./statistics-panel";
import { StepSlider } from "./step-slider";
import { TensorHeader } from "./tensor-header";
import { Drawer, TensorTree } from "./tensor-tree";
import { ValuesPanel } from "./values-panel";

const PANELS: Record<PanelName, { title: string; make(context: Context): Part }> = {
  histogram: { title: "Histogram", make: (context) => new HistogramPanel(context) },
  heatmap: { title: "Heat map", make: (context) => new HeatmapPanel(context) },
  history: { title: "Over steps", make: (context) => new HistoryPanel(context) },
  statistics: { title: "Statistics", make: (context) => new StatisticsPanel(context) },
  values: { title: "Values", make: (context) => new ValuesPanel(context) },
  scalars: { title: "Scalars", make: (context) => new ScalarPanel(context) },
  rules: { title: "Rules", make: (context) => new RulePanel(context) },
};

/** Whether a panel applies to the tensor in view. */
function fits(name: PanelName, { main }: Scene): boolean {
  // Exact values come from a kernel.
  if (main?.exported && name === "values") return false;
  if (main?.statisticsOnly) return ["statistics", "scalars", "rules"].includes(name);
  if (main?.frames.plan?.form === "text") return !["histogram", "history", "heatmap", "statistics"].includes(name);
  // A logged histogram is not a matrix.
  if (main?.frames.plan?.form === "histogram" && name === "heatmap") return false;
  return !isScalar(main) || !["histogram", "history", "heatmap"].includes(name);
}

/** The open panels, created when first shown. */
class Panels implements Part {
  readonly el = h("div", { class: "smdw-panels" });
  readonly #made = new Map<PanelName, Part>();
  #order = "";

  constructor(private readonly context: Context) {}

  update(scene: Scene): void {
    const wanted = scene.traits.panels.filter((name) => name in PANELS && fits(name, scene));
    const parts = wanted.map((name) => {
      const part = this.#made.get(name) ?? PANELS[name].make(this.context);
      this.#made.set(name, part);
      return part;
    });
    if (this.#order !== wanted.join()) {
      this.#order = wanted.join();
      this.el.replaceChildren(...parts.map((part) => part.el));
    }
    for (const part of parts) part.update(scene);
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

const STATUS: Record<string, string> = {
  running: "Running",
  ended: "Ended",
  stalled: "No new steps",
  gone: "Missing",
  error: "Unreadable",
};

/** Name, status and size of the run. */
class RunBar implements Part {
  readonly el: HTMLElement;
  readonly #dot = h("span", { class: "smdw-dot", "aria-hidden": "true" });
  readonly #status = h("span", { class: "smdw-run-status" });
  readonly #name = h("span", { class: "smdw-run-name" });
  readonly #run: Select;
  readonly #swatch = h("span", { class: "smdw-swatch", "aria-hidden": "true" });
  readonly #facts = h("span", { class: "smdw-quiet" });
  readonly #restarted = h("span", { class: "smdw-restarted", role: "status" });
  readonly #message = h("span", { class: "smdw-note", role: "status" });
  readonly #extra: Node[];

  constructor(
    private readonly context: Context,
    ...extra: Node[]
  ) {
    this.#extra = extra;
    this.#run = new Select("Run", (run) => context.session.state.set({ run: Number(run) }), context.signal);
    this.el = h(
      "div",
      { class: "smdw-run" },
      this.#dot,
      this.#name,
      this.#swatch,
      this.#run.el,
      this.#status,
      this.#facts,
      this.#restarted,
      this.#message,
      ...this.#extra,
    );
  }

  update({ run, traits }: Scene): void {
    const { session } = this.context;
    const { runs } = session.store;
    const head = run?.head;
    this.#dot.dataset.status = head?.status ?? "";
    setText(this.#status, head ? (STATUS[head.status] ?? head.status) : "");
    setText(this.#name, runs.size > 1 ? "" : truncate(head?.path ?? "", 120));
    this.#name.title = truncate(head?.path ?? "", 2000);
    setVisible(this.#run.el, runs.size > 1);
    setVisible(this.#swatch, runs.size > 1);
    this.#swatch.style.color = series(session.store.colourOf(traits.run), this.context.theme().dark);
    if (runs.size > 1)
      this.#run.update(
        [...runs].map(([index, each]) => [String(index), each.head.name] as const),
        String(traits.run),
      );
    const facts = run
      ? [
          plural(run.steps.length, "step"),
          plural(run.names.length, "tensor"),
          head && head.workers.length > 1 ? `${count(head.workers.length)} workers` : "",
        ]
      : [];
    setText(this.#facts, facts.filter(Boolean).join(" \u00b7 "));
    const at = head?.restarted_at;
    setText(this.#restarted, at ? `This run was started again at ${clockTime(at)}` : "");
    setVisible(this.#restarted, Boolean(at));
    const status = session.requests.get("hello");
    const message =
      session.store.packetError ||
      (status && session.disconnected ? NO_KERNEL : "") ||
      status?.error ||
      (status?.busy ? "Kernel busy" : "") ||
      head?.message ||
      (run ? (session.exported ? "Saved page" : "") : "Waiting for run");
    setText(this.#message, truncate(message, 300));
    this.#message.title = truncate(message, 2000);
    this.#message.classList.toggle(
      "smdw-error",
      Boolean(
        session.store.packetError ||
          status?.error ||
          (status && session.disconnected) ||
          head?.status === "error" ||
          head?.status === "gone",
      ),
    );
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
  return new Stack("inspector", [
    new StepSlider(context),
    new TensorHeader(context),
    new PanelToggles(context, INSPECTOR_PANELS),
    new Panels(context),
  ]);
}

class Explorer implements Part {
  readonly el: HTMLElement;
  readonly #parts: Part[];
  constructor(context: Context) {
    const tree = new TensorTree(context, () => drawer.open(false));
    const drawer = new Drawer(tree.el, context.signal);
    const choice = new PanelToggles(context, [...INSPECTOR_PANELS, "scalars", "rules"]);
    const bar = new RunBar(context);
    const diagnosis = new DiagnosisBar(context);
    const slider = new StepSlider(context);
    const header = new TensorHeader(context);
    const panels = new Panels(context);
    this.#parts = [bar, diagnosis, tree, slider, header, choice, panels];
    this.el = h(
      "div",
      { class: "smdw-explorer" },
      h("div", { class: "smdw-top" }, drawer.button, bar.el),
      diagnosis.el,
      slider.el,
      tree.el,
      h("div", { class: "smdw-main" }, header.el, choice.el, panels.el),
    );
  }
  update(scene: Scene): void {
    for (const part of this.#parts) part.update(scene);
  }
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
      return new Explorer(context);
  }
}
