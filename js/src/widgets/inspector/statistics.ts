import { type Frame, nearestIndex, notFiniteKind, statistic, type TensorFrames } from "../../data/frames";
import { isScalar, type TensorView } from "../../data/tensor-view";
import type { Curve } from "../../draw/lines";
import { kindOf, notFiniteRanges } from "../../draw/not-finite";
import {
  drawStatistics,
  type StatisticsPicture,
  type StatisticsRow,
  statisticsHeight,
  statisticsScale,
} from "../../draw/statistics";
import { defined } from "../../lib/defined";
import { h, setVisible, Toggle, textButton } from "../../lib/dom";
import { count, num, percent, plural, truncate } from "../../lib/format";
import { MODES, REDUCTIONS } from "../../protocol/types";
import { framesSlot } from "../../session/connection";
import { pythonSteps } from "../../session/python-code";
import type { Scene } from "../../session/scene";
import { emptyReason } from "../common/frame-text";
import { PicturePanel, type Rows } from "../common/panel";
import type { Context } from "../common/part";
import { ComparisonLegend, comparisonColours } from "../compare/legend";

const SHARES = new Set(["nan", "inf", "zero"]);
const CHOICES = [...REDUCTIONS, "update_ratio", "nan", "inf", "zero"];

/** Statistics of the tensor over steps, one row with its own scale per statistic. */
export class StatisticsPanel extends PicturePanel {
  readonly #legend = new ComparisonLegend();
  readonly #toggles = new Map<string, Toggle>();
  readonly #log: Toggle;
  readonly #all: HTMLButtonElement;
  #scene: Scene | undefined;
  #curves = new Map<string, { key: string; curve: Curve }>();
  #picture: StatisticsPicture | undefined;

  constructor(context: Context) {
    super("statistics", "Statistics over steps", context);
    const { signal, session } = context;
    this.#log = new Toggle("Log axis", (log_y) => session.state.set({ log_y }), signal);
    this.#all = textButton("All steps", () => session.state.set({ range: [] }), signal);
    this.tools.append(this.#all, this.#log.el);
    const list = h("div", { class: "smdw-checks", role: "group", "aria-label": "Statistics shown" });
    for (const name of CHOICES) {
      const toggle = new Toggle(
        label(name),
        (on) => {
          const now = session.state.get("stats");
          session.state.set({
            stats: on
              ? CHOICES.filter((each) => each === name || now.includes(each))
              : now.filter((each) => each !== name),
          });
        },
        signal,
      );
      this.#toggles.set(name, toggle);
      list.append(toggle.el);
    }
    this.menu.append(list);
    this.body.append(this.#legend.el);
    this.exports(true, () => ({
      name: `${this.#scene?.traits.tensor}-statistics`,
      units: "statistics over steps",
      rows: () => this.#rows(),
      python: () => `${pythonSteps(session, this.#scene as Scene)}`,
    }));
    const step = (x: number) => {
      const steps = this.#scene?.main?.frames.loadedSteps();
      const scale = this.#picture && statisticsScale(this.#picture, this.figure.size.width);
      const i = steps && scale ? nearestIndex(steps, scale.invert(x)) : -1;
      return i < 0 ? undefined : steps?.[i];
    };
    this.goesToSteps(step);
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main, axis } = scene;
    const { session, theme } = this.context;
    const colours = theme();
    this.#log.update(traits.log_y);
    setVisible(this.#all, traits.range.length === 2);
    for (const [name, toggle] of this.#toggles) toggle.update(traits.stats.includes(name));
    this.note(session.connection.requests.get(framesSlot("main")));
    const wanted = `${statisticsHeight(isScalar(main) ? 1 : traits.stats.length)}px`;
    if (this.figure.el.style.height !== wanted) this.figure.el.style.height = wanted;
    // Another step of the same tensor has the same curve.
    const compared =
      scene.compared && (scene.compared.run !== main?.run || scene.compared.worker !== main?.worker)
        ? scene.compared
        : undefined;
    const loaded = main?.frames.loadedSteps().length ?? 0;
    // All statistics of a single number are that number.
    const stats = isScalar(main) ? ["value"] : traits.stats;
    const [colour, comparedColour] = comparisonColours({ ...scene, compared }, session.store, colours);
    this.#legend.update({ ...scene, compared }, session.store, colours);
    const rows = stats.map((name): StatisticsRow => {
      const mine = this.#curve(name, name, main, scene, colour);
      const others = compared && this.#curve(`${name}/compared`, name, compared, scene, comparedColour);
      const now = [statistic(main?.frames.frameAt(scene.step), name), statistic(compared?.frame, name)];
      return {
        name: label(name),
        curves: [mine, others].filter((curve) => curve !== undefined),
        log: traits.log_y && !SHARES.has(name),
        now: now.map((x, i) => written(name, x, 4, [main?.frames.frameAt(scene.step), compared?.frame][i])),
        written: (x, digits) => written(name, x, digits),
      };
    });
    const picture: StatisticsPicture = {
      rows: loaded ? rows : [],
      logX: traits.log_x,
      range:
        traits.range.length === 2
          ? (traits.range as [number, number])
          : [axis.steps[0] ?? 0, axis.steps[axis.steps.length - 1] ?? 1],
      cut: traits.range.length === 2,
      step: scene.step,
      emptyMessage: emptyReason(scene, "statistic"),
    };
    this.#picture = picture;
    const at = this.hovered ?? scene.step;
    const frame = main?.frames.frameAt(at);
    const words = stats.map((name) => `${label(name)} ${written(name, statistic(frame, name), 4, frame)}`);
    this.figure.paint((pen, size, paint) => drawStatistics(pen, size, paint, picture), colours);
    this.readout(
      this.hovered === undefined
        ? `${plural(loaded, "step")} loaded`
        : `step ${count(this.hovered)}   ${words.join("   ")}`,
    );
    const description = `Statistics of ${truncate(traits.tensor, 80)} at step ${scene.step}: ${words.join(", ")}.`;
    this.figure.describe(description);
    this.summary(description);
  }

  #curve(place: string, name: string, shown: TensorView | undefined, scene: Scene, colour: string): Curve | undefined {
    if (!shown) return undefined;
    const key = `${shown.run}/${shown.tensor}/${shown.worker}/${scene.traits.mode}/${shown.frames.version}/${colour}`;
    const known = this.#curves.get(place);
    if (known?.key === key) return known.curve;
    const [x, y] = columns(shown.frames, name, this.#inMode(shown.run, scene));
    const { frames } = shown;
    const at = (i: number) => frames.frames.get(defined(x[i]));
    // A statistic that is not available is NaN, too.
    const notFinite = notFiniteRanges(x, (i) => kindOf(defined(y[i])) && notFiniteKind(at(i)));
    const curve: Curve = { x, y, colour, notFinite };
    this.#curves.set(place, { key, curve });
    return curve;
  }

  #inMode(run: number, { traits }: Scene): (step: number) => boolean {
    if (traits.mode === "") return () => true;
    const mode = MODES.indexOf(traits.mode);
    return (step) => this.context.session.store.modeOf(run, step)?.mode === mode;
  }

  #rows(): Rows | undefined {
    const main = this.#scene?.main;
    if (!main) return undefined;
    const inMode = this.#inMode(main.run, this.#scene as Scene);
    const names = this.#scene?.traits.stats ?? [];
    return [
      ["step", ...names],
      ...[...main.frames.loadedSteps()]
        .filter(inMode)
        .map((step) => [step, ...names.map((name) => statistic(main.frames.frames.get(step), name))]),
    ];
  }
}

export function columns(
  frames: TensorFrames,
  name: string,
  keep: (step: number) => boolean,
): [Float64Array, Float64Array] {
  const x = frames.loadedSteps().filter(keep);
  return [x, Float64Array.from(x, (step) => statistic(frames.frames.get(step), name))];
}

const NAMES: Record<string, string> = {
  update_ratio: "update ratio",
  nan: "NaN share",
  inf: "Inf share",
  zero: "zero share",
};
const label = (name: string) => NAMES[name] ?? name.replace("_", " ");
/** Text of a statistic. A dash stands for one that is not available. */
const written = (name: string, x: number, digits = 4, frame?: Frame) =>
  Number.isNaN(x) && !notFiniteKind(frame) ? "\u2013" : SHARES.has(name) ? percent(x) : num(x, digits);
