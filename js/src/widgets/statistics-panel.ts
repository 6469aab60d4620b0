import { bottomAxis, message } from "../draw/axes";
import { cursor } from "../draw/history";
import { type Curve, drawSpark, extent } from "../draw/lines";
import { line } from "../draw/pen";
import { nearestIndex, statistic, type TensorFrames } from "../frames";
import { series } from "../lib/colour";
import { h, show, Toggle, textButton } from "../lib/dom";
import { clipped, count, num, percent, plural } from "../lib/format";
import { linear, log, type Scale } from "../lib/scale";
import { MODES, REDUCTIONS } from "../protocol";
import { pythonSteps } from "../python";
import type { Scene, Shown } from "../session";
import { nothing } from "./histogram-panel";
import { type Context, PicturePanel, type Rows } from "./panel";

const ROW = 46;
const NAME = 112;
const NOW = 92;
const FOOT = 24;
const SHARES = new Set(["nan", "inf", "zero"]);
const CHOICES = [...REDUCTIONS, "update_ratio", "nan", "inf", "zero"];

/** Statistics of the tensor over its steps, a row each with a scale of its own: a mean of 1e-3 is not flattened by a norm of 100. */
export class StatisticsPanel extends PicturePanel {
  readonly #toggles = new Map<string, Toggle>();
  readonly #log: Toggle;
  readonly #all: HTMLButtonElement;
  #scene: Scene | undefined;
  #curves = new Map<string, { key: string; curve: Curve }>();
  #hover: number | undefined;
  #x: Scale | undefined;

  constructor(context: Context) {
    super("statistics", "Statistics over steps", context);
    const { signal, session } = context;
    this.#log = new Toggle("log axis", (log_y) => session.state.set({ log_y }), signal);
    this.#all = textButton("all steps", () => session.state.set({ range: [] }), signal);
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
    this.exports(this.figure, () => ({
      name: `${this.#scene?.traits.tensor}-statistics`,
      rows: () => this.#rows(),
      python: () => `${pythonSteps(session, this.#scene as Scene)}`,
    }));
    const step = (x: number) => {
      const steps = this.#scene?.main?.frames.held();
      const i = steps && this.#x ? nearestIndex(steps, this.#x.invert(x)) : -1;
      return i < 0 ? undefined : steps?.[i];
    };
    this.figure.gestures(
      {
        move: (at) => {
          const hover = at && step(at.x);
          if (hover === this.#hover) return;
          this.#hover = hover;
          context.redraw();
        },
        down: (start) => {
          const go = (x: number) => {
            const to = step(x);
            if (to !== undefined) session.state.set({ step: to, follow: false });
          };
          go(start.x);
          return (at) => go(at.x);
        },
      },
      signal,
    );
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main, other, axis } = scene;
    const { session, theme } = this.context;
    const colours = theme();
    this.#log.update(traits.log_y);
    show(this.#all, traits.range.length === 2);
    for (const [name, toggle] of this.#toggles) toggle.update(traits.stats.includes(name));
    this.note(session.waiting.get(session.place("main")));
    const stats = traits.stats;
    const height = Math.max(1, stats.length) * ROW + FOOT;
    const wanted = `${height}px`;
    if (this.figure.el.style.height !== wanted) this.figure.el.style.height = wanted;
    const compareOther = other && (other.run !== main?.run || other.worker !== main?.worker) ? other : undefined;
    const rows = stats.map((name) => {
      const curves = [
        this.#curve(`${name}`, name, main, scene, colours.accent),
        compareOther && this.#curve(`${name}/other`, name, compareOther, scene, series(1, colours.dark)),
      ];
      return { name, curves: curves.filter((curve) => curve !== undefined) };
    });
    const range =
      traits.range.length === 2
        ? (traits.range as [number, number])
        : ([axis.steps[0] ?? 0, axis.steps[axis.steps.length - 1] ?? 1] as [number, number]);
    const empty = nothing(main, "statistic");
    const held = main?.frames.held().length ?? 0;
    const at = this.#hover ?? scene.step;
    const words = stats.map((name) => `${label(name)} ${written(name, statistic(main?.frames.at(at), name))}`);
    this.figure.paint((pen, size, paint) => {
      if (!held) return message(pen, size.width, size.height, empty, paint);
      const span: [number, number] = [NAME, Math.max(NAME + 20, size.width - NOW)];
      const x = traits.log_x
        ? log(Math.max(1, range[0]), Math.max(2, range[1]), span)
        : linear(range[0], range[1], span);
      this.#x = x;
      rows.forEach(({ name, curves }, i) => {
        const top = i * ROW;
        if (i) line(pen, 0, top + 0.5, size.width, top + 0.5, { stroke: paint.grid });
        const shifted = shift(pen, top);
        drawSpark(
          shifted,
          { width: size.width, height: ROW },
          paint,
          {
            curves,
            logX: traits.log_x,
            logY: traits.log_y && !SHARES.has(name),
            range: traits.range.length === 2 ? range : undefined,
            step: scene.step,
            marked: [],
            xLabel: "",
            nothing: traits.log_y ? "nothing above 0" : "\u2013",
          },
          x,
        );
        const [lo, hi] = extent(
          curves,
          traits.range.length === 2 ? range : undefined,
          traits.log_y && !SHARES.has(name),
        );
        pen.text(0, top + 18, label(name), { fill: paint.ink, size: 12 });
        if (Number.isFinite(lo))
          pen.text(0, top + 33, lo === hi ? "constant" : `${written(name, lo, 2)} \u2026 ${written(name, hi, 2)}`, {
            fill: paint.ink2,
            size: 10,
            most: NAME - 6,
          });
        pen.text(size.width, top + 18, written(name, statistic(main?.frames.at(scene.step), name)), {
          fill: paint.ink,
          size: 12,
          align: "right",
          mono: true,
        });
        if (compareOther)
          pen.text(size.width, top + 34, written(name, statistic(compareOther.frame, name)), {
            fill: series(1, paint.dark),
            size: 11,
            align: "right",
            mono: true,
          });
      });
      const box = { x: span[0], y: 0, width: span[1] - span[0], height: size.height - FOOT };
      bottomAxis(pen, box, x, paint);
      cursor(pen, box, x(scene.step), paint);
    }, colours);
    this.readout(
      this.#hover === undefined ? `${plural(held, "step")} held` : `step ${count(this.#hover)}   ${words.join("   ")}`,
    );
    const said = `Statistics of ${clipped(traits.tensor, 80)} at step ${scene.step}: ${words.join(", ")}.`;
    this.figure.describe(said);
    this.summary(said);
  }

  #curve(place: string, name: string, shown: Shown | undefined, scene: Scene, colour: string): Curve | undefined {
    if (!shown) return undefined;
    const key = `${shown.run}/${shown.tensor}/${shown.worker}/${scene.traits.mode}/${shown.frames.version}/${colour}`;
    const known = this.#curves.get(place);
    if (known?.key === key) return known.curve;
    const [x, y] = columns(shown.frames, name, this.#inMode(shown.run, scene));
    const curve: Curve = { x, y, colour };
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
      ...[...main.frames.held()]
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
  const x = frames.held().filter(keep);
  return [x, Float64Array.from(x, (step) => statistic(frames.frames.get(step), name))];
}

const NAMES: Record<string, string> = {
  update_ratio: "update ratio",
  nan: "NaN share",
  inf: "Inf share",
  zero: "zero share",
};
const label = (name: string) => NAMES[name] ?? name.replace("_", " ");
const written = (name: string, x: number, digits = 4) =>
  Number.isNaN(x) ? "\u2013" : SHARES.has(name) ? percent(x) : num(x, digits);

/** A pen that draws lower down. */
function shift(pen: import("../draw/pen").Pen, dy: number): import("../draw/pen").Pen {
  return {
    rect: (x, y, w, hgt, ink) => pen.rect(x, y + dy, w, hgt, ink),
    path: (points, ink, close) =>
      pen.path(
        Array.from(points, (v, i) => (i % 2 ? v + dy : v)),
        ink,
        close,
      ),
    text: (x, y, words, style) => pen.text(x, y + dy, words, style),
    image: (pixels, x, y, w, hgt, from) => pen.image(pixels, x, y + dy, w, hgt, from),
    clip: (x, y, w, hgt, draw) => pen.clip(x, y + dy, w, hgt, draw),
    measure: (words, style) => pen.measure(words, style),
  };
}
