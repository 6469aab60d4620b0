/** The explorer: the whole run as a map over its timeline, and an inspector of one tensor below. */

import { scalarsOnly } from "../../data/scalars";
import { isScalar } from "../../data/tensor-view";
import { capturePointer, h, onResize, setAttributes, setText, setVisible, Toggle, textButton } from "../../lib/dom";
import { truncate } from "../../lib/format";
import { MINIMAP } from "../../lib/step-axis";
import { viewOf } from "../../session/query-view";
import type { Scene } from "../../session/scene";
import { Deferred } from "../common/deferred";
import type { Context, Part } from "../common/part";
import { fits } from "../inspector/fits";
import { TensorHeader } from "../inspector/header";
import type { Pictures } from "../inspector/pictures";
import { ROOMY } from "../map/list";
import { RunMap } from "../map/view";
import type { Multiples } from "../multiples/grid";
import { DiagnosisBar } from "../status/diagnosis";
import { RunLine } from "../status/run-line";
import { StepControl } from "../steps/control";
import type { SizeLane, StripLane, ValueLane } from "../timeline/tensor-lanes";
import { Timeline } from "../timeline/view";
import type { Brush } from "./brush";
import { KeyHelp } from "./key-help";
import { Toolbar } from "./toolbar";
import { Tooltip } from "./tooltip";

const HEIGHT = 600;
const LEAST_HEIGHT = 420;
/** Pixels that the axis of steps takes below the lanes. */
const AXIS = 22;

/** How many pictures fit side by side; 0: the inspector hides the map. */
const roomOf = (width: number) => (width >= 1000 ? 3 : width >= 700 ? 2 : width >= 500 ? 1 : 0);

export class Explorer implements Part {
  readonly el: HTMLElement;
  /** map, lanes and strip: what the axis of steps spans */
  readonly stage: HTMLElement;
  readonly #control: StepControl;
  readonly #run: RunLine;
  readonly #diagnosis: DiagnosisBar;
  readonly #toolbar: Toolbar;
  readonly #map: RunMap;
  readonly #multiples: Deferred<Multiples>;
  readonly #timeline: Timeline;
  readonly #size: Deferred<SizeLane>;
  readonly #strip: Deferred<StripLane>;
  readonly #value: Deferred<ValueLane>;
  readonly #brush: Deferred<Brush>;
  readonly #header: TensorHeader;
  readonly #pictures: Deferred<Pictures>;
  readonly #help: KeyHelp;
  readonly #playhead = h("div", { class: "smdw-playhead" });
  readonly #message = h("p", { class: "smdw-state", role: "status" });
  readonly #hover = new Tooltip();
  readonly #open: HTMLButtonElement;
  /** opens the pictures that a scalar has no place for */
  readonly #others: Toggle;
  readonly #openKey = h("span", { "aria-hidden": "true" });
  readonly #openName = h("span", { class: "smdw-sr" });
  readonly #edge: HTMLElement;
  #shown = "";
  #height = 0;
  #stageHeight = 0;
  #gutter = 0;
  /** the next frame, in which what the pointer is over is shown */
  #hoverFrame = 0;

  constructor(private readonly context: Context) {
    const { signal, session, keys } = context;
    this.#control = new StepControl(context, "global");
    this.#help = new KeyHelp(context);
    this.#run = new RunLine(
      context,
      this.#control,
      () => this.#toggleFull(),
      this.#help.el,
      () => this.stage,
    );
    this.#diagnosis = new DiagnosisBar(context);
    this.#toolbar = new Toolbar(context);
    this.#map = new RunMap(context, () => this.#pointed());
    this.#multiples = new Deferred(context, async () => new (await import("../multiples/grid")).Multiples(context));
    this.#timeline = new Timeline(context, this.#control, () => this.#pointed());
    const lanes = () => import("../timeline/tensor-lanes");
    this.#size = new Deferred(context, async () => new (await lanes()).SizeLane(context));
    this.#strip = new Deferred(context, async () => new (await lanes()).StripLane(context));
    this.#value = new Deferred(context, async () => new (await lanes()).ValueLane(context));
    this.#header = new TensorHeader(context);
    this.#pictures = new Deferred(context, async () => new (await import("../inspector/pictures")).Pictures(context));
    const actions = {
      loop: (range: [number, number]) => this.#control.setPlaying(true, range),
      differences: (range: [number, number]) => this.#map.showDifferences(range),
    };
    this.#brush = new Deferred(context, async () => new (await import("./brush")).Brush(context, actions));
    // It does what it says: a second click before the next frame does not undo the first.
    this.#open = textButton("", () => session.state.set({ inspect: this.el.dataset.inspect !== "true" }), signal);
    this.#open.classList.add("smdw-inspect-button");
    this.#open.append(this.#openKey, this.#openName);
    this.#others = new Toggle(
      "Curves and rules",
      (on) => {
        const others = session.state.get("panels").filter((name) => name !== "scalars");
        session.state.set({ panels: on ? [...others, "scalars"] : others });
      },
      signal,
    );
    this.#edge = this.#makeEdge();
    this.stage = h(
      "div",
      { class: "smdw-stage" },
      h("div", { class: "smdw-map-box" }, this.#map.el, this.#multiples.el, this.#message),
      this.#timeline.el,
      this.#size.el,
      this.#strip.el,
      this.#value.el,
      this.#playhead,
      h("div", { class: "smdw-brush-layer" }, this.#brush.el),
      this.#hover.el,
    );
    this.#hover.follow(this.stage, signal);
    const resized = () => {
      const { clientHeight } = this.stage;
      if (clientHeight === this.#stageHeight) return;
      this.#stageHeight = clientHeight;
      context.redraw();
    };
    onResize(this.stage, resized, signal);
    this.el = h(
      "div",
      { class: "smdw-explorer", tabindex: -1 },
      this.#run.el,
      this.#diagnosis.el,
      this.#toolbar.el,
      h(
        "div",
        { class: "smdw-workspace" },
        this.stage,
        h("div", { class: "smdw-tensor-bar" }, this.#header.el, this.#others.el, this.#open),
        this.#pictures.el,
      ),
      this.#edge,
    );
    keys.on(this.el, (event) => this.#key(event));
    document.addEventListener("fullscreenchange", () => this.#fullChanged(), { signal });
  }

  update(scene: Scene): void {
    const { traits, run, main, stepAxis: axis } = scene;
    const { session } = this.context;
    const steps = run?.steps.length ?? 0;
    const scalars = scalarsOnly(run);
    const inspect = traits.inspect && traits.tensor !== "";
    const single = scalars || isScalar(main);
    const room = roomOf(axis.right + MINIMAP);
    this.el.dataset.inspect = String(inspect);
    this.el.dataset.room = String(room);
    this.el.classList.toggle("smdw-scalars", scalars);
    this.#setHeight(traits.height);
    if (axis.left !== this.#gutter) {
      this.#gutter = axis.left;
      this.el.style.setProperty("--smdw-gutter", `${axis.left}px`);
      this.el.style.setProperty("--smdw-right", `${MINIMAP}px`);
    }
    this.#run.update(scene);
    this.#diagnosis.update(scene);
    const view = viewOf(scene.query, run);
    const cells = view === "curves" || view === "histograms";
    this.el.classList.toggle("smdw-cells", cells || view === "table");
    setVisible(this.#map.el, steps > 0 && !cells);
    setVisible(this.#multiples.el, steps > 0 && cells);
    if (steps > 0) {
      this.#map.update(scene);
      if (cells) this.#multiples.use((cells) => cells.update(scene, this.#map.results, this.#map.tensors));
      else this.#multiples.part?.hide();
      // The tensor was selected elsewhere, or the map has become lower.
      const shown = `${traits.run}/${traits.tensor}/${inspect}`;
      if (shown !== this.#shown && this.#shown) this.#map.reveal(run?.names.indexOf(traits.tensor) ?? -1);
      this.#shown = shown;
    }
    this.#toolbar.update(scene, this.#map.results);
    // A map of few rows leaves its height to the curve.
    const rows = cells || inspect || traits.map_fit ? Number.POSITIVE_INFINITY : this.#map.rows;
    this.#timeline.update(scene, this.#stageHeight - AXIS - rows * ROOMY);
    const numbers = inspect && !single && fits("statistics", scene);
    setVisible(this.#size.el, numbers);
    setVisible(this.#strip.el, numbers);
    setVisible(this.#value.el, inspect && single);
    // The curve of a scalar takes the place of the pictures, unless curves of others were opened there.
    const pictures = inspect && (!single || traits.panels.includes("scalars"));
    this.el.dataset.pictures = String(pictures);
    this.#value.el.classList.toggle("smdw-low", pictures);
    setVisible(this.#others.el, inspect && single);
    this.#others.update(pictures);
    setVisible(this.#pictures.el, pictures);
    if (inspect && single) this.#value.use((lane) => lane.update(scene));
    else if (numbers) {
      this.#size.use((lane) => lane.update(scene));
      this.#strip.use((lane) => lane.update(scene));
    }
    if (pictures) {
      const columns = this.el.dataset.full === "true" ? 3 : Math.max(1, room);
      this.#pictures.use((part) => part.update(scene, columns));
    }
    const at = axis.x(scene.step);
    const inside = !Number.isNaN(at) && at >= axis.left - 0.5 && at <= axis.right + 0.5;
    setVisible(this.#playhead, inside && steps > 0);
    if (inside) this.#playhead.style.transform = `translateX(${at}px)`;
    if (traits.selection.kind === "steps") this.#brush.use((brush) => brush.update(scene));
    else this.#brush.part?.update(scene);
    this.#header.update(scene);
    this.#showHover();
    setText(this.#openKey, inspect ? "Esc" : "Enter");
    setText(this.#openName, inspect ? "Close inspector" : "Open inspector");
    setAttributes(this.#open, {
      title: inspect ? "Close inspector (Esc)" : "Open inspector (Enter)",
      disabled: traits.tensor === "",
    });
    const message = this.#stateText(scene);
    setText(this.#message, message);
    setVisible(this.#message, message !== "");
    setVisible(this.#timeline.el, steps > 0);
    this.el.classList.toggle("smdw-pending", session.connection.disconnected);
  }

  /** Shows what the pointer is over in the next frame, and draws nothing else. */
  #pointed() {
    this.#hoverFrame ||= requestAnimationFrame(() => {
      this.#hoverFrame = 0;
      this.#map.hover();
      this.#showHover();
    });
  }

  #showHover() {
    this.#hover.show(this.#map.hoverText || this.#timeline.hoverText());
  }

  /** Why there is no map. */
  #stateText({ run, failure }: Scene): string {
    if (!run) return failure;
    if (run.steps.length) return "";
    const { status, path, message } = run.head;
    if (status === "error" || status === "gone") return message;
    if (status !== "running" && status !== "stalled") return "The run has no steps.";
    return `No step saved yet. Waiting for ${truncate(path, 120)}; new steps appear here.`;
  }

  #key(event: KeyboardEvent): boolean {
    const target = event.composedPath()[0];
    const typing = target instanceof Element && target.matches("input, select, textarea");
    const pressing = target instanceof Element && target.matches("button, a, summary");
    if (event.key === "Escape") return this.#back();
    if (typing || (pressing && (event.key === "Enter" || event.key === " "))) return false;
    const { state } = this.context.session;
    const { selection } = state.all();
    switch (event.key) {
      case "n":
        return this.#diagnosis.turn(1) || true;
      case "p":
        return this.#diagnosis.turn(-1) || true;
      case ".":
        return this.#timeline.turn(1) || true;
      case ",":
        return this.#timeline.turn(-1) || true;
      case "Enter":
        if (state.get("tensor")) state.set({ inspect: true });
        return true;
      case " ":
        this.#control.setPlaying(!this.#control.playing);
        return true;
      case "l":
        if (this.#control.loop) this.#control.setPlaying(false);
        else if (selection.kind === "steps") this.#control.setPlaying(true, selection.range);
        return true;
      case "b":
        this.#timeline.bookmark();
        return true;
      case "c":
      case "x":
      case "v":
      case "m":
        return this.#header.key(event.key);
      case "/":
        this.#toolbar.focus();
        return true;
      case "e":
        this.#toggleFull();
        return true;
      case "?":
        this.#help.toggle();
        return true;
    }
    if (/^[1-9]$/.test(event.key)) {
      this.#control.type(event.key);
      return true;
    }
    return this.#map.key(event);
  }

  /** Undoes the last thing that was opened. */
  #back(): boolean {
    const { state } = this.context.session;
    if (state.get("selection").kind === "steps") state.set({ selection: {} });
    else if (state.get("inspect")) state.set({ inspect: false });
    else if (this.el.dataset.full === "true") this.#toggleFull();
    else if (state.get("_many")) state.set({ table: true });
    this.el.focus({ preventScroll: true });
    return true;
  }

  /** The view's element, which holds all sizes. */
  get #widget(): HTMLElement {
    return this.el.closest<HTMLElement>(".smdw") ?? this.el;
  }

  /** Fills the screen, or the window where the page may not do that. */
  #toggleFull() {
    if (this.el.dataset.full === "true") {
      if (document.fullscreenElement) void document.exitFullscreen();
      else this.#setFull(false);
      return;
    }
    const request = this.#widget.requestFullscreen?.();
    if (request) request.catch(() => this.#setFull(true));
    else this.#setFull(true);
  }

  #fullChanged() {
    const root = this.#widget.getRootNode() as Document | ShadowRoot;
    this.#setFull(root.fullscreenElement === this.#widget);
  }

  #setFull(on: boolean) {
    if (this.el.dataset.full === String(on)) return;
    this.el.dataset.full = String(on);
    this.#widget.classList.toggle("smdw-full", on);
    if (on) this.el.focus({ preventScroll: true });
    this.context.redraw();
  }

  #setHeight(height: number) {
    const wanted = height > 0 ? Math.max(LEAST_HEIGHT, height) : HEIGHT;
    if (wanted === this.#height) return;
    this.#height = wanted;
    this.el.style.setProperty("--smdw-height", `${wanted}px`);
    setAttributes(this.#edge, { "aria-valuemin": LEAST_HEIGHT, "aria-valuemax": 2000, "aria-valuenow": wanted });
  }

  /** The lower edge, which can be dragged. */
  #makeEdge(): HTMLElement {
    const { session, signal, keys } = this.context;
    const edge = h("div", {
      class: "smdw-edge",
      role: "separator",
      "aria-orientation": "horizontal",
      "aria-label": "Height",
      tabindex: 0,
    });
    let from: { y: number; height: number } | undefined;
    edge.addEventListener(
      "pointerdown",
      (event) => {
        from = { y: event.clientY, height: this.#height };
        event.preventDefault();
        capturePointer(edge, event);
      },
      { signal },
    );
    edge.addEventListener(
      "pointermove",
      (event) => {
        if (from)
          session.state.set({ height: Math.max(LEAST_HEIGHT, Math.round(from.height + event.clientY - from.y)) });
      },
      { signal },
    );
    const end = () => {
      from = undefined;
    };
    edge.addEventListener("pointerup", end, { signal });
    edge.addEventListener("pointercancel", end, { signal });
    keys.on(edge, (event) => {
      const by = { ArrowUp: -20, ArrowDown: 20 }[event.key];
      if (by) session.state.set({ height: Math.max(LEAST_HEIGHT, this.#height + by) });
      return by !== undefined;
    });
    return edge;
  }
}
