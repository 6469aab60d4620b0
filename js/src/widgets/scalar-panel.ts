import { lastAtOrBefore } from "../data/frames";
import { type Series, seriesKey } from "../data/store";
import { type Curve, drawLines, type LinesPicture, layoutLines } from "../draw/lines";
import { kindOf, type NotFiniteRange, notFiniteRanges } from "../draw/not-finite";
import { modeColour, series as seriesColour } from "../lib/colour";
import { field, h, Select, setText, setVisible, Toggle, textButton } from "../lib/dom";
import { count, num, plural, truncate } from "../lib/format";
import { pyString } from "../lib/save";
import { smooth } from "../lib/smooth";
import { type Line, MODES, type ModeName, REDUCTIONS } from "../protocol/types";
import { selectedCurves } from "../session/selected-curves";
import type { Scene } from "../session/session";
import { PicturePanel, type Rows } from "./panel";
import type { Context } from "./part";

const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];

/** Steps and values per mode. */
type SplitSeries = [mode: number, x: Float64Array, y: Float64Array, notFinite: NotFiniteRange[]][];

interface DisplayedCurve {
  line: Required<Line>;
  curve: Curve;
  name: string;
}

/** Curves of scalars, and of reductions of tensors. */
export class ScalarPanel extends PicturePanel {
  readonly #logX: Toggle;
  readonly #logY: Toggle;
  readonly #smoothing = h("input", {
    type: "range",
    min: 0,
    max: 50,
    step: 0.5,
    class: "smdw-range",
    "aria-label": "Smoothing (points)",
  });
  readonly #width = h("span", { class: "smdw-quiet smdw-smoothing" });
  readonly #legend = h("ul", { class: "smdw-legend" });
  readonly #all: HTMLButtonElement;
  readonly #stat: Select;
  #statChosen = "value";
  #scene: Scene | undefined;
  #picture: LinesPicture | undefined;
  #shown: DisplayedCurve[] = [];
  #smoothed = new Map<string, { y: ArrayLike<number>; width: number; out: Float64Array }>();
  readonly #splits = new WeakMap<Series, { key: string; split: SplitSeries }>();
  #hover: number | undefined;
  #legendKey = "";

  constructor(context: Context) {
    super("scalars", "Scalars", context);
    const { signal, session } = context;
    const { state } = session;
    this.#logY = new Toggle("Log y", (log_y) => state.set({ log_y }), signal);
    this.#logX = new Toggle("Log x", (log_x) => state.set({ log_x }), signal);
    this.#all = textButton("All steps", () => state.set({ range: [] }), signal);
    this.#smoothing.addEventListener("input", () => state.set({ smoothing: this.#smoothing.valueAsNumber }), {
      signal,
    });
    this.tools.append(
      this.#all,
      h("label", { class: "smdw-field" }, h("span", {}, "Smoothing"), this.#smoothing, this.#width),
      this.#logX.el,
      this.#logY.el,
    );
    this.#stat = new Select(
      "Statistic",
      (value) => {
        this.#statChosen = value;
        context.redraw();
      },
      signal,
    );
    this.menu.append(
      field("Statistic", this.#stat.el),
      h(
        "div",
        { class: "smdw-actions" },
        textButton("Add curve", () => this.#add(), signal),
        textButton("Reset curves", () => state.set({ series: [] }), signal),
      ),
    );
    this.body.append(this.#legend);
    this.exports(this.figure, () => ({ name: "scalars", rows: () => this.#rows(), python: () => this.#python() }));
    this.figure.gestures(
      {
        move: (at) => {
          const layout = this.#picture && layoutLines(this.#picture, this.figure.size);
          const next = at && layout ? layout.x.invert(at.x) : undefined;
          this.#hover = next;
          context.redraw();
        },
        down: (start) => {
          const layout = this.#picture && layoutLines(this.#picture, this.figure.size);
          if (!layout) return undefined;
          return (at, done) => {
            const value = (x: number) =>
              Math.round(layout.x.invert(Math.max(layout.box.x, Math.min(layout.box.x + layout.box.width, x))));
            // A click sets the step. A drag selects a range of steps.
            if (Math.abs(at.x - start.x) < 5) {
              if (done) state.set({ step: this.#nearest(value(at.x)), follow: false, selection: {} });
              return;
            }
            const range = [value(start.x), value(at.x)].sort((a, b) => a - b) as [number, number];
            state.set(done ? { range, selection: {} } : { selection: { kind: "steps", range } });
          };
        },
      },
      signal,
    );
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits } = scene;
    const { session, theme } = this.context;
    const colours = theme();
    this.#logX.update(traits.log_x);
    this.#logY.update(traits.log_y);
    setVisible(this.#all, traits.range.length === 2);
    if (!this.#smoothing.matches(":active")) this.#smoothing.valueAsNumber = Math.min(50, traits.smoothing);
    setText(this.#width, traits.smoothing ? `\u00b1${num(traits.smoothing, 2)}` : "off");
    this.#stat.update([["value", "value"], ...REDUCTIONS.map((name) => [name, name] as const)], this.#statChosen);
    this.note(session.requests.get("series"));
    this.#shown = this.#curves(scene, colours.dark);
    const picture: LinesPicture = {
      curves: this.#shown.map((each) => each.curve),
      logX: traits.log_x,
      logY: traits.log_y,
      range: traits.range.length === 2 ? (traits.range as [number, number]) : undefined,
      step: scene.step,
      marked: traits.selection.kind === "steps" ? traits.selection.range : [],
      xLabel: "step",
      emptyMessage: session.requests.has("series") ? "" : "No curves: add one from the menu",
    };
    this.#picture = picture;
    this.figure.paint((pen, size, paint) => drawLines(pen, size, paint, picture), colours);
    this.#drawLegend(scene);
    const at = this.#hover === undefined ? scene.step : this.#nearest(this.#hover);
    this.readout(Number.isNaN(at) ? "" : `step ${count(at)}`);
    const description = `${plural(this.#shown.length, "curve")}. ${this.#shown
      .slice(0, 8)
      .map((each) => `${truncate(each.name, 60)} at step ${scene.step}: ${num(valueAt(each.curve, scene.step))}`)
      .join("; ")}.`;
    this.figure.describe(description);
    this.summary(description);
  }

  #curves(scene: Scene, dark: boolean): DisplayedCurve[] {
    const { traits } = scene;
    const { store } = this.context.session;
    const lines = selectedCurves(scene, this.context.session);
    const tensors = [...new Set(lines.map(curveId))];
    const runs = store.runs.size > 1;
    const out: DisplayedCurve[] = [];
    const used = new Set<string>();
    for (const line of lines) {
      const key = seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat);
      const data = store.series.get(key);
      if (!data) continue;
      const which = tensors.indexOf(curveId(line));
      for (const [mode, x, y, notFinite] of this.#split(line.run, data, traits.mode)) {
        const cacheKey = `${key}/${mode}`;
        used.add(cacheKey);
        // One colour per run if there are several. Else one per tensor, or one per mode if there is a single tensor.
        const colour = runs
          ? seriesColour(store.colourOf(line.run), dark)
          : tensors.length === 1
            ? modeColour(mode, dark)
            : seriesColour(which, dark);
        const dash = runs
          ? DASHES[(which + (mode === 2 ? 1 : 0)) % DASHES.length]
          : tensors.length === 1
            ? []
            : DASHES[mode === 2 ? 1 : mode === 3 ? 2 : 0];
        const name = [
          line.stat === "value" ? "" : `${line.stat} of`,
          line.tensor,
          line.worker,
          mode === 4 ? "" : `(${MODES[mode]})`,
          runs ? `\u00b7 ${store.runs.get(line.run)?.head.name ?? line.run}` : "",
        ]
          .filter(Boolean)
          .join(" ");
        out.push({
          line,
          name,
          curve: {
            x,
            y,
            notFinite,
            colour,
            dash: dash ?? [],
            smooth: traits.smoothing > 0 ? this.#smooth(cacheKey, x, y, traits.smoothing) : undefined,
          },
        });
      }
    }
    for (const cacheKey of this.#smoothed.keys()) if (!used.has(cacheKey)) this.#smoothed.delete(cacheKey);
    return out;
  }

  /** Splits a series by mode, cached until the series or the run's steps change. */
  #split(run: number, data: Series, mode: ModeName): SplitSeries {
    const { store } = this.context.session;
    const key = `${store.runs.get(run)?.version}/${mode}`;
    const known = this.#splits.get(data);
    if (known?.key === key) return known.split;
    const only = mode === "" ? 0 : MODES.indexOf(mode);
    const split = byMode(data, (step) => store.modeOf(run, step)?.mode ?? 4, only);
    this.#splits.set(data, { key, split });
    return split;
  }

  #smooth(cacheKey: string, x: ArrayLike<number>, y: Float64Array, width: number): Float64Array {
    const known = this.#smoothed.get(cacheKey);
    if (known && known.width === width && known.y.length === y.length && known.y[y.length - 1] === y[y.length - 1])
      return known.out;
    const out = smooth(x, y, width);
    this.#smoothed.set(cacheKey, { y, width, out });
    return out;
  }

  #drawLegend(scene: Scene) {
    const key = JSON.stringify(this.#shown.map((each) => [each.name, each.curve.colour]));
    if (key !== this.#legendKey) {
      this.#legendKey = key;
      const removable = scene.traits.series.length > 0;
      this.#legend.replaceChildren(
        ...this.#shown.map(({ name, curve, line }) => {
          const swatch = h("span", { class: "smdw-swatch" });
          swatch.style.color = curve.colour;
          swatch.dataset.dash = curve.dash?.length ? "1" : "";
          const entry = h(
            "li",
            {},
            swatch,
            h("span", { class: "smdw-legend-name", title: truncate(name, 2000) }, truncate(name, 120)),
            h("b", {}),
          );
          if (removable) {
            const drop = textButton("\u00d7", () => this.#removeCurve(line), this.context.signal);
            drop.setAttribute("aria-label", `Remove ${truncate(name, 80)}`);
            entry.append(drop);
          }
          return entry;
        }),
      );
    }
    const at = this.#hover === undefined ? scene.step : this.#hover;
    this.#shown.forEach(({ curve }, i) => {
      const value = this.#legend.children[i]?.querySelector("b");
      if (value) setText(value, num(valueAt(curve, at), 5));
    });
  }

  #add() {
    const { state } = this.context.session;
    const { tensor, worker } = this.#scene?.traits ?? { tensor: "", worker: "" };
    if (!tensor || !this.#scene) return;
    const before: Line[] = state.get("series").length
      ? state.get("series")
      : unique(selectedCurves(this.#scene, this.context.session));
    const line: Line = { tensor, stat: this.#statChosen, run: -1, ...(worker && { worker }) };
    if (!before.some((each) => curveId(each) === curveId(line))) state.set({ series: [...before, line] });
  }

  #removeCurve(line: Line) {
    const { state } = this.context.session;
    state.set({
      series: state.get("series").filter((each) => curveId(each) !== curveId(line)),
    });
  }

  #nearest(step: number): number {
    const steps = this.#scene?.axis.steps ?? new Float64Array(0);
    const i = lastAtOrBefore(steps, step);
    const [a, b] = [steps[i], steps[i + 1]];
    return a === undefined ? (b ?? Number.NaN) : b === undefined || step - a <= b - step ? a : b;
  }

  #rows(): Rows | undefined {
    if (!this.#shown.length) return undefined;
    const range = this.#picture?.range;
    const smoothed = (this.#scene?.traits.smoothing ?? 0) > 0;
    const rows: Rows = [["curve", "step", "value", ...(smoothed ? ["smoothed"] : [])]];
    for (const { name, curve } of this.#shown)
      for (let i = 0; i < curve.x.length; i++) {
        const step = curve.x[i] as number;
        if (range && (step < range[0] || step > range[1])) continue;
        rows.push([name, step, curve.y[i] as number, ...(curve.smooth ? [curve.smooth[i] as number] : [])]);
      }
    return rows;
  }

  #python(): string {
    const first = this.#shown[0]?.line;
    const path = this.context.session.store.runs.get(first?.run ?? 0)?.head.path ?? "";
    const trial = `smdwidgets.create_trial(${pyString(path)})`;
    if (!first) return trial;
    return first.stat === "value"
      ? `${trial}.tensor(${pyString(first.tensor)}).values()`
      : `${trial}.reductions(${pyString(first.tensor)})`;
  }
}

/** Identifies a curve across runs. */
const curveId = ({ tensor, stat, worker = "" }: Line) => JSON.stringify([tensor, stat, worker]);

function unique(lines: Required<Line>[]): Line[] {
  const out = new Map<string, Line>();
  for (const line of lines) out.set(curveId(line), { tensor: line.tensor, stat: line.stat, run: -1 });
  return [...out.values()];
}

/** Splits a series by mode, because a curve must not connect training and evaluation. */
function byMode(data: Series, modeOf: (step: number) => number, only: number): SplitSeries {
  const rows = new Map<number, number[]>();
  for (let i = 0; i < data.step.length; i++) {
    const mode = modeOf(data.step[i] as number);
    if (only && mode !== only) continue;
    const list = rows.get(mode);
    if (list) list.push(i);
    else rows.set(mode, [i]);
  }
  return [...rows]
    .sort(([a], [b]) => a - b)
    .map(([mode, at]) => {
      const x = Float64Array.from(at, (i) => data.step[i] as number);
      const y = Float64Array.from(at, (i) => data.y[i] as number);
      return [mode, x, y, notFiniteRanges(x, (i) => kindOf(y[i] as number))];
    });
}

function valueAt(curve: Curve, step: number): number {
  const i = lastAtOrBefore(curve.x, step);
  return i < 0 ? Number.NaN : (curve.y[i] as number);
}
