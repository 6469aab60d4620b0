import { lastAtOrBefore } from "../../data/frames";
import { byMode } from "../../data/split-series";
import { type Series, seriesKey } from "../../data/store";
import type { XAxis } from "../../draw/lines";
import { kindOf, type NotFiniteRange, notFiniteRanges } from "../../draw/not-finite";
import { modeColour, series as seriesColour } from "../../lib/colour";
import { defined } from "../../lib/defined";
import { field, h, Select, setAttributes, setText, setVisible, Toggle, textButton } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { pyString } from "../../lib/save";
import { movingAverage, smooth } from "../../lib/smooth";
import { type Line, MODES, type ModeName, REDUCTIONS } from "../../protocol/types";
import { chartGroupsOf } from "../../session/chart-groups";
import type { Scene } from "../../session/scene";
import { type Chart, chartsOf, selectedCurves } from "../../session/selected-curves";
import { Panel, type Rows } from "../common/panel";
import type { Context } from "../common/part";
import { ScalarChart, type ShownCurve } from "./chart";

const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const COLOURS = 7;
const AXES = [
  ["step", "Step"],
  ["relative", "Relative time"],
  ["wall", "Wall time"],
] as const;
/** Clocks of several computers differ by less. */
const CLOCK_SKEW = 1;

interface ChartCurves {
  title: string;
  curves: ShownCurve[];
}

/** A series of one mode. */
interface ModeSeries {
  mode: number;
  steps: Float64Array;
  y: Float64Array;
  notFinite: NotFiniteRange[];
  /** Unix seconds by step; undefined: unknown */
  times: Float64Array | undefined;
  /** the first step whose time is before that of an earlier one, or NaN */
  backwards: number;
  voided: { x: Float64Array; y: Float64Array } | undefined;
}

/** Curves of scalars, and of reductions of tensors, in one chart or one per group of names. */
export class ScalarPanel extends Panel {
  readonly #logX: Toggle;
  readonly #logY: Toggle;
  readonly #axis: Select;
  readonly #groups = h("input", {
    type: "search",
    class: "smdw-input smdw-chart-groups",
    placeholder: "Group: (train|val)_loss",
    "aria-label": "Group curves by regular expression",
    title: "Regular expression: the text in its groups selects the colour, the rest of the name the chart",
    spellcheck: "false",
  });
  readonly #smoothing = h("input", {
    type: "range",
    min: 0,
    max: 0.99,
    step: 0.01,
    class: "smdw-range",
    "aria-label": "Smoothing",
  });
  readonly #width = h("span", { class: "smdw-quiet smdw-smoothing" });
  readonly #all: HTMLButtonElement;
  readonly #stat: Select;
  readonly #box = h("div", { class: "smdw-charts" });
  readonly #charts: { chart: ScalarChart; control: AbortController }[] = [];
  #statChosen = "value";
  #scene: Scene | undefined;
  #shown: ChartCurves[] = [];
  #smoothed = new Map<string, { y: ArrayLike<number>; width: number; out: Float64Array }>();
  readonly #splits = new WeakMap<Series, { key: string; split: ModeSeries[] }>();
  readonly #times = new WeakMap<Float64Array, { began: number; x: Float64Array }>();

  constructor(context: Context) {
    super("scalars", "Scalars", context);
    const { signal, session } = context;
    const { state } = session;
    this.#logY = new Toggle("Log y", (log_y) => state.set({ log_y }), signal);
    this.#logX = new Toggle("Log x", (log_x) => state.set({ log_x }), signal);
    this.#axis = new Select("Horizontal axis", (x_axis) => state.set({ x_axis: x_axis as XAxis }), signal);
    this.#all = textButton("All steps", () => state.set({ range: [] }), signal);
    this.#smoothing.addEventListener("input", () => state.set({ smoothing: this.#smoothing.valueAsNumber }), {
      signal,
    });
    this.#groups.addEventListener(
      "change",
      () => state.set({ charts: this.#groups.value.replace(/^\/(.*)\/$/, "$1") }),
      {
        signal,
      },
    );
    this.tools.append(
      this.#all,
      h("label", { class: "smdw-field" }, h("span", {}, "Smoothing"), this.#smoothing, this.#width),
      this.#axis.el,
      this.#logX.el,
      this.#logY.el,
      this.#groups,
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
        textButton("Reset curves", () => state.set({ series: [], charts: "" }), signal),
      ),
    );
    this.body.append(this.#box);
    this.#make(1);
    this.exports(true, () => ({
      name: "scalars",
      rows: () => this.#rows(),
      python: () => this.#python(),
    }));
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits } = scene;
    const { session, theme } = this.context;
    const colours = theme();
    const charts = chartsOf(scene, session);
    const { axis, why } = this.#usableAxis(scene, charts);
    this.#logX.update(traits.log_x && axis !== "wall");
    setAttributes(this.#logX.el, { disabled: axis === "wall" });
    this.#logY.update(traits.log_y);
    this.#axis.update(AXES, traits.x_axis);
    if (!this.#groups.matches(":focus")) this.#groups.value = traits.charts;
    setVisible(this.#all, traits.range.length === 2);
    if (!this.#smoothing.matches(":active")) this.#smoothing.valueAsNumber = Math.min(0.99, traits.smoothing);
    setText(
      this.#width,
      traits.smoothing >= 1 ? `\u00b1${num(traits.smoothing, 2)}` : traits.smoothing ? num(traits.smoothing, 2) : "off",
    );
    this.#stat.update([["value", "value"], ...REDUCTIONS.map((name) => [name, name] as const)], this.#statChosen);
    this.note(session.connection.requests.get("series"), chartGroupsOf(session).error || why);
    this.#shown = this.#curves(scene, charts, axis, colours.dark);
    this.#make(Math.max(1, this.#shown.length));
    this.#charts.forEach(({ chart }, i) => {
      const { title, curves } = this.#shown[i] ?? { title: "", curves: [] };
      chart.update(
        {
          title,
          curves,
          axis,
          logX: traits.log_x,
          logY: traits.log_y,
          range: traits.range,
          step: scene.step,
          marked: traits.selection.kind === "steps" ? traits.selection.range : [],
          removable: traits.series.length > 0 && !traits.charts,
          emptyMessage: session.connection.requests.has("series")
            ? ""
            : traits.charts
              ? "No curves"
              : "No curves: add one from the menu",
        },
        colours,
      );
    });
    this.readout(
      this.#charts
        .map(({ chart }) => chart)
        .find((chart) => chart.reading)
        ?.readText() ??
        this.#charts[0]?.chart.readText() ??
        "",
    );
    const all = this.#shown.flatMap(({ curves }) => curves);
    this.summary(
      `${plural(all.length, "curve")}. ${all
        .slice(0, 8)
        .map((each) => `${truncate(each.name, 60)} at step ${scene.step}: ${num(valueAt(each, scene.step))}`)
        .join("; ")}.`,
    );
  }

  /** Creates or removes charts. */
  #make(n: number) {
    const { signal, session } = this.context;
    const { state } = session;
    while (this.#charts.length > n) {
      const last = this.#charts.pop();
      last?.control.abort();
      last?.chart.el.remove();
    }
    while (this.#charts.length < n) {
      const control = new AbortController();
      signal.addEventListener("abort", () => control.abort(), { signal: control.signal });
      const chart = new ScalarChart(
        this.context,
        {
          step: (step) => {
            const near = this.#nearest(step);
            if (!Number.isNaN(near)) state.set({ step: near, follow: false, selection: {} });
          },
          select: (range, done) => state.set(done ? { range, selection: {} } : { selection: { kind: "steps", range } }),
          remove: (line) => this.#removeCurve(line),
        },
        control.signal,
      );
      this.#charts.push({ chart, control });
      this.#box.append(chart.el);
    }
  }

  /** Steps are shown if the time of one curve is unknown or goes backwards. */
  #usableAxis(scene: Scene, charts: readonly Chart[]): { axis: XAxis; why: string } {
    const { x_axis } = scene.traits;
    if (x_axis === "step") return { axis: x_axis, why: "" };
    const { store } = this.context.session;
    for (const { line } of charts.flatMap(({ curves }) => curves)) {
      const data = store.series.get(seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat));
      if (!data?.step.length) continue;
      const name = truncate(store.runs.get(line.run)?.head.name ?? line.tensor, 40);
      if (data.began === undefined)
        return { axis: "step", why: this.context.session.exported ? "Shown by step: no wall times in this file" : "" };
      if (data.began === null) return { axis: "step", why: `Shown by step: ${name} has no wall times` };
      for (const { backwards } of this.#split(line.run, data, scene.traits.mode))
        if (!Number.isNaN(backwards))
          return {
            axis: "step",
            why: `Shown by step: the clock of ${name} goes backwards at step ${count(backwards)}`,
          };
    }
    return { axis: x_axis, why: "" };
  }

  #curves(scene: Scene, charts: readonly Chart[], axis: XAxis, dark: boolean): ChartCurves[] {
    const { traits } = scene;
    const { store } = this.context.session;
    const all = charts.flatMap(({ curves }) => curves);
    const tensors = [...new Set(all.map(({ line }) => curveId(line)))];
    const matches = [...new Set(all.map(({ matched }) => matched))].sort();
    const began = new Map<number, number>();
    const dataOf = (line: Required<Line>) =>
      store.series.get(seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat));
    for (const { line } of all) {
      const first = dataOf(line)?.began;
      if (typeof first === "number") began.set(line.run, Math.min(first, began.get(line.run) ?? first));
    }
    const runs = store.runs.size > 1;
    const used = new Set<string>();
    const out = charts.map(({ title, curves }) => ({
      title,
      curves: curves.flatMap(({ line, matched }): ShownCurve[] => {
        const data = dataOf(line);
        if (!data) return [];
        const which = traits.charts ? matches.indexOf(matched) : tensors.indexOf(curveId(line));
        const several = traits.charts ? matches.length > 1 : tensors.length > 1;
        return this.#split(line.run, data, traits.mode).map(({ mode, steps, y, notFinite, times, voided }) => {
          const key = `${seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat)}/${mode}`;
          used.add(key);
          // One colour per run if there are several. Else one per tensor, or one per mode if there is a single tensor.
          const colour = runs
            ? seriesColour(store.colourOf(line.run), dark)
            : several
              ? seriesColour(which, dark)
              : mode === 4
                ? seriesColour(0, dark)
                : modeColour(mode, dark);
          const dash = runs
            ? DASHES[(which + (mode === 2 ? 1 : 0)) % DASHES.length]
            : several
              ? // Colours repeat.
                DASHES[(Math.floor(which / COLOURS) + (mode === 2 ? 1 : mode === 3 ? 2 : 0)) % DASHES.length]
              : [];
          const named = (tensor: string) =>
            [
              line.stat === "value" ? "" : `${line.stat} of`,
              tensor,
              line.worker,
              mode === 4 ? "" : `(${MODES[mode]})`,
              runs ? `\u00b7 ${store.runs.get(line.run)?.head.name ?? line.run}` : "",
            ]
              .filter(Boolean)
              .join(" ");
          const x =
            axis === "step" || !times ? steps : this.#x(times, axis === "wall" ? 0 : (began.get(line.run) ?? 0));
          const curve = {
            x,
            y,
            notFinite: x === steps ? notFinite : notFinite.map((range) => inTime(range, steps, x)),
            colour,
            dash: dash ?? [],
            smooth: traits.smoothing > 0 ? this.#smooth(key, steps, y, traits.smoothing) : undefined,
            voided: axis === "step" ? voided : undefined,
          };
          return { line, name: named(line.tensor), short: named(matched || line.tensor), curve, steps };
        });
      }),
    }));
    for (const key of this.#smoothed.keys()) if (!used.has(key)) this.#smoothed.delete(key);
    return out;
  }

  /** Seconds since `began`, the same array while nothing changes. */
  #x(times: Float64Array, began: number): Float64Array {
    const known = this.#times.get(times);
    if (known?.began === began) return known.x;
    let last = Number.NEGATIVE_INFINITY;
    const x = times.map((time) => {
      last = Math.max(last, time - began);
      return last;
    });
    this.#times.set(times, { began, x });
    return x;
  }

  /** Splits a series by mode, cached until the series or the run's steps change. */
  #split(run: number, data: Series, mode: ModeName): ModeSeries[] {
    const { store } = this.context.session;
    const key = `${store.runs.get(run)?.version}/${mode}`;
    const known = this.#splits.get(data);
    if (known?.key === key) return known.split;
    const only = mode === "" ? 0 : MODES.indexOf(mode);
    const { began, seconds, voided } = data;
    const parts = byMode(data, (step) => store.modeOf(run, step)?.mode ?? 4, only);
    const split = parts.map(({ mode, x, y, at }): ModeSeries => {
      const times =
        typeof began === "number" && seconds ? Float64Array.from(at, (i) => began + defined(seconds[i])) : undefined;
      return {
        mode,
        steps: x,
        y,
        notFinite: notFiniteRanges(x, (i) => kindOf(defined(y[i]))),
        times,
        backwards: x[times ? backwards(times) : -1] ?? Number.NaN,
        // The mode of a step that was superseded is unknown.
        voided: voided && parts.length === 1 && !only ? { x: voided.step, y: voided.y } : undefined,
      };
    });
    this.#splits.set(data, { key, split });
    return split;
  }

  #smooth(cacheKey: string, x: ArrayLike<number>, y: Float64Array, width: number): Float64Array {
    const known = this.#smoothed.get(cacheKey);
    if (known && known.width === width && known.y.length === y.length && known.y[y.length - 1] === y[y.length - 1])
      return known.out;
    const out = width < 1 ? movingAverage(y, width) : smooth(x, y, width);
    this.#smoothed.set(cacheKey, { y, width, out });
    return out;
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
    if (!this.#shown.some(({ curves }) => curves.length)) return undefined;
    const [from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY] = this.#scene?.traits.range ?? [];
    const smoothed = (this.#scene?.traits.smoothing ?? 0) > 0;
    const timed = this.#shown.some(({ curves }) => curves.some(({ curve, steps }) => curve.x !== steps));
    const rows: Rows = [["curve", "step", ...(timed ? ["seconds"] : []), "value", ...(smoothed ? ["smoothed"] : [])]];
    for (const { name, curve, steps } of this.#shown.flatMap(({ curves }) => curves))
      for (let i = 0; i < steps.length; i++) {
        const step = defined(steps[i]);
        if (step < from || step > to) continue;
        const time = timed ? [defined(curve.x[i])] : [];
        rows.push([name, step, ...time, defined(curve.y[i]), ...(curve.smooth ? [defined(curve.smooth[i])] : [])]);
      }
    return rows;
  }

  #python(): string {
    const first = this.#shown[0]?.curves[0]?.line;
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

function valueAt({ steps, curve }: ShownCurve, step: number): number {
  const i = lastAtOrBefore(steps, step);
  return i < 0 ? Number.NaN : defined(curve.y[i]);
}

/** The index at which times go backwards, or -1. */
function backwards(times: Float64Array): number {
  let last = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < times.length; i++) {
    if (defined(times[i]) < last - CLOCK_SKEW) return i;
    last = Math.max(last, defined(times[i]));
  }
  return -1;
}

function inTime(range: NotFiniteRange, steps: Float64Array, x: ArrayLike<number>): NotFiniteRange {
  const at = (step: number) => defined(x[lastAtOrBefore(steps, step)]);
  return { ...range, first: at(range.first), last: at(range.last), step: range.first };
}
