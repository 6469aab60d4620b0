/** The tensor in view over the steps, on the axis of the timeline: its size, and its values as a strip. */

import { type Frame, notFiniteKind, statistic } from "../../data/frames";
import { byMode } from "../../data/split-series";
import type { TensorView } from "../../data/tensor-view";
import { drawStripLane, type HistoryPicture, layoutStripLane, stripPixels } from "../../draw/history";
import { drawCurve, type LaneCurve } from "../../draw/lanes";
import { notFiniteRanges } from "../../draw/not-finite";
import type { Pixels } from "../../draw/pen";
import { defined } from "../../lib/defined";
import { h, setText, setVisible } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { table } from "../../lib/palette";
import { slotColours } from "../../lib/slot-colour";
import { MODES, REDUCTIONS } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { curveOf } from "../common/curve-source";
import { Figure } from "../common/figure";
import { emptyReason } from "../common/frame-text";
import { HistogramHistory } from "../common/histogram-history";
import type { Context, Part } from "../common/part";

const L2 = REDUCTIONS.indexOf("l2");

/** The root mean square of a frame's values. */
export function rootMeanSquare(frame: Frame | undefined): number {
  const n = frame?.counts?.[0] ?? 0;
  const l2 = frame?.stats?.[L2];
  return l2 === undefined || n === 0 ? Number.NaN : l2 / Math.sqrt(n);
}

function sizesOf({ frames }: TensorView, [own, colour]: [string, string]): LaneCurve["compared"] {
  const x = frames.loadedSteps();
  return { x, y: Float64Array.from(x, (step) => rootMeanSquare(frames.frames.get(step))), own, colour };
}

/** The last part of a name that tells tensors apart. */
export const shortName = (name: string) => truncate(/[^/.]+[/.][^/.]+$/.exec(name)?.[0] ?? name, 60);

/** A lane with a label in the gutter. */
abstract class TensorLane implements Part {
  readonly el: HTMLElement;
  protected readonly figure: Figure;
  protected readonly note = h("div", { class: "smdw-lane-note" });
  readonly #drawn = new Memo();

  constructor(
    name: string,
    title: string,
    protected readonly context: Context,
  ) {
    this.figure = new Figure(name, context);
    // In a narrow gutter, the first word has room beside the limits.
    const [word = "", ...more] = title.split(/(?= )/);
    const words = h("div", { class: "smdw-lane-name" }, word, h("span", {}, more.join("")));
    const label = h("div", { class: "smdw-lane-label" }, words, this.note);
    this.el = h("div", { class: `smdw-tensor-lane smdw-lane-${name}` }, this.figure.el, label);
  }

  abstract update(scene: Scene): void;

  /** Whether the picture has to be drawn again. */
  protected changed(scene: Scene, key: unknown): boolean {
    const { width, height } = this.figure.size;
    return this.#drawn.changed([key, scene.stepAxis.ends, width, height, this.context.theme()]);
  }
}

export class SizeLane extends TensorLane {
  readonly #curve = new Memo<LaneCurve>();

  constructor(context: Context) {
    super("size", "size", context);
  }

  update(scene: Scene): void {
    const { traits, main, compared, stepAxis: axis } = scene;
    const { session, theme } = this.context;
    // Another step of the same tensor has the same curve.
    const other = compared && (compared.run !== traits.run || compared.tensor !== traits.tensor) ? compared : undefined;
    setText(this.note, traits.tensor ? `of ${shortName(traits.tensor)}` : "");
    const version = [
      traits.run,
      traits.tensor,
      traits.worker,
      traits.mode,
      traits.log_y,
      main?.frames.version,
      other?.run,
      other?.tensor,
      other?.frames.version,
      theme().dark,
    ];
    const curve = this.#curve.of(version, () => {
      const mode = MODES.indexOf(traits.mode);
      const steps = (main?.frames.loadedSteps() ?? new Float64Array(0)).filter(
        (step) => traits.mode === "" || session.store.modeOf(traits.run, step)?.mode === mode,
      );
      const frameAt = (i: number) => main?.frames.frames.get(defined(steps[i]));
      return {
        x: steps,
        y: Float64Array.from(steps, (_, i) => rootMeanSquare(frameAt(i))),
        dots: [],
        notFinite: notFiniteRanges(steps, (i) => notFiniteKind(frameAt(i))),
        logY: traits.log_y,
        compared: other && sizesOf(other, slotColours(main, other, session.store, theme().dark)),
      };
    });
    if (!this.changed(scene, [version, main?.frame?.error, scene.failure])) return;
    const reason = curve.x.length ? "" : emptyReason(scene, "statistic");
    this.figure.paint((pen, size, colours) => {
      const box = { x: axis.left, y: 7, width: axis.right - axis.left, height: size.height - 12 };
      if (curve.x.length) drawCurve(pen, colours, curve, axis, box);
      else if (reason) pen.text(box.x + 4, size.height / 2, reason, { fill: colours.ink2, baseline: "middle" });
    }, theme());
    this.figure.describe(`Size of ${truncate(traits.tensor, 80)} over steps.`);
  }
}

export class StripLane extends TensorLane {
  readonly #history: HistogramHistory;
  #pixels: Pixels | undefined;

  constructor(context: Context) {
    super("values-strip", "values over steps", context);
    this.#history = new HistogramHistory(context.session);
  }

  update(scene: Scene): void {
    const { traits, stepAxis: axis } = scene;
    const colours = this.context.theme();
    const history = this.#history;
    history.update(scene);
    const frame = scene.main?.frame;
    const median = frame?.percentiles?.values[frame.percentiles.q.indexOf(50)];
    setText(this.note, median === undefined ? "" : `median ${num(median, 3)}`);
    setVisible(this.note, median !== undefined);
    const { width, height } = this.figure.size;
    if (!this.changed(scene, [history.version, history.frames.length, scene.failure])) return;
    const picture: HistoryPicture = {
      frames: history.finite ? history.frames : [],
      notFinite: history.notFinite,
      key: history.key,
      domain: history.domain,
      range: [axis.from, axis.to],
      step: scene.step,
      table: table("density", colours.dark),
      label: count,
      version: history.version,
      emptyMessage: history.frames.length ? "No finite values" : emptyReason(scene, "histogram"),
    };
    const box = { x: axis.left, y: 6, width: Math.max(1, axis.right - axis.left), height: Math.max(1, height - 9) };
    const layout = width ? layoutStripLane(picture, axis, box) : undefined;
    this.#pixels = layout && stripPixels(picture, layout);
    const pixels = this.#pixels;
    this.figure.paint((pen, size, paint) => {
      if (layout && pixels) drawStripLane(pen, paint, picture, layout, pixels);
      else
        pen.text(axis.left + 4, size.height / 2, picture.emptyMessage, {
          fill: paint.ink2,
          baseline: "middle",
          size: 11,
        });
    }, colours);
    this.figure.describe(`Histograms of ${truncate(traits.tensor, 80)} over ${history.frames.length} steps.`);
  }
}

/** The value of a tensor that is one number per step. */
export class ValueLane extends TensorLane {
  readonly #curve = new Memo<LaneCurve>();

  constructor(context: Context) {
    super("value", "value", context);
  }

  update(scene: Scene): void {
    const { traits, main, stepAxis: axis } = scene;
    const { store } = this.context.session;
    setText(this.note, traits.tensor ? `of ${shortName(traits.tensor)}` : "");
    const version = [traits.run, traits.tensor, traits.worker, traits.mode, traits.log_y, main?.frames.version];
    const curve = this.#curve.of(version, () => {
      const steps = main?.frames.loadedSteps() ?? new Float64Array(0);
      const y = Float64Array.from(steps, (step) => statistic(main?.frames.frames.get(step), "value"));
      const only = Math.max(0, MODES.indexOf(traits.mode));
      const parts = byMode({ step: steps, y }, (step) => store.modeOf(traits.run, step)?.mode ?? 4, only);
      return curveOf(parts, traits.log_y, true);
    });
    if (!this.changed(scene, [version, scene.failure])) return;
    this.figure.paint((pen, size, colours) => {
      const box = { x: axis.left, y: 10, width: axis.right - axis.left, height: size.height - 20 };
      if (curve.x.length) drawCurve(pen, colours, curve, axis, box);
      else pen.text(box.x + 4, size.height / 2, emptyReason(scene, "statistic"), { fill: colours.ink2 });
    }, this.context.theme());
    this.figure.describe(`${truncate(traits.tensor, 80)} over ${plural(curve.x.length, "step")}.`);
  }
}
