/** One of the small multiples: the curve of a tensor over the steps in view, or its histogram at the step in view. */

import { availableHistogramKey, histogramRequest, nearestIndex } from "../../data/frames";
import { isLog, type Survey } from "../../data/survey";
import { surveyPoints } from "../../data/survey-columns";
import { type Column, drawBars } from "../../draw/bars";
import { drawCurve, type LaneCurve } from "../../draw/lanes";
import { STAT_NAMES } from "../../draw/map";
import { notFiniteRanges } from "../../draw/not-finite";
import { CanvasPen } from "../../draw/pen";
import type { Theme } from "../../draw/theme";
import { defined } from "../../lib/defined";
import { h, setAttributes, setText, setVisible } from "../../lib/dom";
import { factorText, num, percent, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { StepAxis } from "../../lib/step-axis";
import type { MapStat, SeriesLine } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { CurveSource, valueNear } from "../common/curve-source";
import type { Context } from "../common/part";
import { nameElement, spreads } from "../map/text";

/** Smallest size in pixels, the largest height, and the size of the axis at the left. */
export const CELL = { width: 176, height: 72, tallest: 360 };
const GUTTER = 38;
const TOP = 19;

export interface CellContent {
  tensor: number;
  name: string;
  label: string;
  letter: string;
  /** the curve, if it is not one of the survey */
  line?: SeriesLine;
  survey?: Survey;
  histogram: boolean;
  ends?: readonly [number, number];
}

export class MultipleCell {
  readonly el: HTMLElement;
  content: CellContent | undefined;
  readonly #canvas = h("canvas", { "aria-hidden": "true" });
  readonly #name = h("span", { class: "smdw-multiple-name" });
  readonly #value = h("b", {});
  readonly #head = h("div", { class: "smdw-playhead" });
  readonly #band = h("div", { class: "smdw-multiple-band" });
  readonly #pen: CanvasPen | undefined;
  readonly #source: CurveSource;
  readonly #curve = new Memo<LaneCurve | undefined>();
  readonly #drawn = new Memo();
  #label = "";

  constructor(private readonly context: Context) {
    const canvas = this.#canvas.getContext("2d");
    if (canvas) this.#pen = new CanvasPen(canvas);
    this.#source = new CurveSource(context.session);
    const words = h("span", { class: "smdw-multiple-line" }, this.#name, this.#value);
    this.el = h("div", { class: "smdw-multiple", role: "option" }, words, this.#canvas, this.#band, this.#head);
  }

  axis({ stepAxis }: Scene, width: number): StepAxis {
    return new StepAxis(stepAxis.from, stepAxis.to, GUTTER, width - 5);
  }

  update(scene: Scene, content: CellContent, width: number, height: number): void {
    this.content = content;
    const { traits, step } = scene;
    const { name, histogram } = content;
    const label = `${content.letter} ${content.label}`;
    if (label !== this.#label) {
      this.#label = label;
      // The letter says that it is a weight.
      const short = content.label.replace(/[._/]weight$/, "");
      this.#name.replaceChildren(h("span", { class: "smdw-map-mark" }, content.letter), nameElement(short));
    }
    const curve = histogram ? undefined : this.#curveIn(scene, content);
    const text = histogram ? this.#histogramText(scene, content) : curve ? valueText(curve, scene, content) : "";
    setText(this.#value, text);
    setAttributes(this.el, {
      title: truncate(name, 1000),
      "aria-selected": String(traits.tensor === name),
    });
    const axis = this.axis(scene, width);
    const x = axis.x(step);
    const inside = !histogram && x >= axis.left - 0.5 && x <= axis.right + 0.5;
    setVisible(this.#head, inside);
    if (inside) this.#head.style.transform = `translateX(${x}px)`;
    this.#markSelection(scene, axis);
    if (histogram) this.#drawHistogram(scene, content, width, height);
    else this.#drawCurve(curve, axis, width, height);
  }

  #markSelection({ traits: { selection } }: Scene, axis: StepAxis) {
    const range = selection.kind === "steps" && !this.content?.histogram ? selection.range : undefined;
    setVisible(this.#band, range !== undefined);
    if (!range) return;
    const [from, to] = range.map((each) => Math.max(axis.left, Math.min(axis.right, axis.x(each))));
    this.#band.style.transform = `translateX(${from}px)`;
    this.#band.style.width = `${Math.max(1, (to as number) - (from as number))}px`;
  }

  #curveIn(scene: Scene, { line, survey, tensor, ends }: CellContent): LaneCurve | undefined {
    const curve = line ? this.#source.curve(line, scene) : undefined;
    return this.#curve.of([curve, survey, survey?.version, tensor, ends], () => {
      const drawn = line ? curve : survey && curveOf(survey, tensor);
      return drawn && { ...drawn, ...(ends && { ends }), dots: drawn.dots.map((dot) => ({ ...dot, name: "" })) };
    });
  }

  #drawCurve(curve: LaneCurve | undefined, axis: StepAxis, width: number, height: number) {
    const colours = this.context.theme();
    if (!this.#drawn.changed([curve, axis.from, axis.to, width, height, colours])) return;
    const box = { x: GUTTER, y: TOP + 6, width: axis.right - axis.left, height: height - TOP - 13 };
    this.#paint(width, height, colours, (pen) => curve?.x.length && drawCurve(pen, colours, curve, axis, box));
  }

  #histogramOf({ traits, step }: Scene, { name }: CellContent) {
    const frames = this.context.session.store.findFrames(traits.run, name, traits.worker);
    const frame = frames?.frameAt(step);
    return { frame, hist: frame?.histograms.get(availableHistogramKey(frame, histogramRequest(traits))) };
  }

  #histogramText(scene: Scene, content: CellContent): string {
    const { hist, frame } = this.#histogramOf(scene, content);
    const bad = (frame?.counts?.[1] ?? 0) + (frame?.counts?.[2] ?? 0) + (frame?.counts?.[3] ?? 0);
    if (bad) return frame?.counts?.[1] ? "NaN" : "Inf";
    return hist ? `${num(defined(hist.edges[0]), 2)} \u2026 ${num(hist.edges.at(-1) as number, 2)}` : "";
  }

  #drawHistogram(scene: Scene, content: CellContent, width: number, height: number) {
    const colours = this.context.theme();
    const { hist } = this.#histogramOf(scene, content);
    if (!this.#drawn.changed([hist, width, height, colours, "histogram"])) return;
    const box = { x: 6, y: TOP + 3, width: width - 12, height: height - TOP - 8 };
    this.#paint(width, height, colours, (pen) => hist && drawBars(pen, colours, hist.counts as Column, box));
  }

  #paint(width: number, height: number, theme: Theme, draw: (pen: CanvasPen) => void) {
    this.context.paint(() => {
      this.#pen?.begin(width - 2, height - 2, Math.min(3, globalThis.devicePixelRatio || 1), theme);
      if (this.#pen) draw(this.#pen);
    });
  }
}

function curveOf(survey: Survey, tensor: number): LaneCurve {
  const { x, y, saved, notFinite } = surveyPoints(survey, tensor);
  const ranges = notFiniteRanges(saved, (i) => notFinite[i]);
  return { x, y, dots: [], notFinite: ranges, logY: isLog(survey.stat) };
}

/** The value at the step in view. */
function valueText(curve: LaneCurve, { traits, step }: Scene, content: CellContent): string {
  const bad = curve.notFinite.find(({ first, last }) => step >= first && step <= last);
  if (bad && !content.line) return bad.kind === "nan" ? "NaN" : "Inf";
  const at = valueNear(curve, step);
  return at ? written(traits.map_stat, content, at.value) : "";
}

function written(stat: MapStat, { line }: CellContent, value: number): string {
  if (line) return num(value);
  if (stat === "surprise") return spreads(value);
  if (stat === "growth") return value ? factorText(Math.log10(value)) : "0";
  return isLog(stat) ? num(value, 3) : percent(value);
}

/** What the curves show, for the heading of all cells. */
export const curveTitle = (stat: MapStat) => (stat === "surprise" ? "size in usual spreads" : STAT_NAMES[stat]);

/** The saved step nearest to a position. */
export const stepAt = (axis: StepAxis, steps: ArrayLike<number>, x: number): number => {
  const step = axis.step(Math.max(axis.left, Math.min(axis.right, x)));
  return (steps[nearestIndex(steps, step)] as number | undefined) ?? step;
};
