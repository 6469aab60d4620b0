/** A precision-recall curve of a log at the step in view. */

import { valueRef } from "../../data/difference";
import { averagePrecision, type PrCurve, prCurve, ROWS } from "../../data/pr-curve";
import { drawPr, layoutPr, type PrPicture } from "../../draw/pr-curve";
import { series } from "../../lib/colour";
import { defined } from "../../lib/defined";
import { setAttributes } from "../../lib/dom";
import { count, num, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { pyString } from "../../lib/save";
import { Resource } from "../../session/resource";
import type { Scene } from "../../session/scene";
import { emptyReason } from "../common/frame-text";
import { PicturePanel, type Rows } from "../common/panel";
import type { Context } from "../common/part";

const COUNTS = ["TP", "FP", "TN", "FN"];
/** The kernel sends at most 4,096 values: of more thresholds than these, precision and recall alone. */
const MOST_WITH_COUNTS = 682;
const MOST = 2048;
/** Milliseconds at a step before its curve is requested, so that a drag requests nothing. */
const IDLE_MS = 120;

export class PrCurvePanel extends PicturePanel {
  #scene: Scene | undefined;
  readonly #curves = new Memo<PrCurve | undefined>();
  #curve: PrCurve | undefined;
  #hover = -1;
  readonly #values: Resource;

  constructor(context: Context) {
    super("pr-curve", "Precision and recall", context);
    this.#values = new Resource(context.session, "pr_curve", context.signal, { rest: IDLE_MS, cancelsAtOnce: true });
    const { canvas } = this.figure;
    setAttributes(canvas, { tabindex: 0, role: "slider" });
    this.exports(true, () => ({
      name: `${this.#scene?.traits.tensor}-step-${this.#scene?.main?.savedStep}`,
      units: "precision by recall",
      rows: () => this.#rows(),
      python: () => this.#python(),
    }));
    this.figure.gestures(
      {
        move: (at) => {
          const { box } = layoutPr(this.figure.size);
          const inside = at && at.x >= box.x - 8 && at.x <= box.x + box.width + 8;
          this.#read(inside ? this.#nearest(at.x, at.y) : -1);
        },
      },
      context.signal,
    );
    canvas.addEventListener("blur", () => this.#read(-1), { signal: context.signal });
    context.keys.on(canvas, (event) => this.#key(event.key));
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { main } = scene;
    const { session, theme } = this.context;
    const plan = main?.frames.plan;
    const n = plan?.shape[1] ?? 0;
    const values =
      main &&
      session.store.values(
        ({ run, tensor, worker, step, rows, cols }) =>
          run === main.run &&
          tensor === main.tensor &&
          worker === main.worker &&
          step === main.savedStep &&
          rows[1] === ROWS &&
          cols[0] === 0 &&
          cols[1] === n,
      );
    const curve = this.#curves.of([values], () => values && prCurve(values));
    this.#curve = curve;
    if (!values && main && n > 0 && n <= MOST && !Number.isNaN(main.savedStep)) this.#load(n);
    const status = this.#values.status;
    this.note(status);
    const read = curve ? Math.min(this.#hover, curve.recall.length - 1) : -1;
    const colours = theme();
    const picture: PrPicture = {
      curve,
      hover: read,
      colour: series(0, colours.dark),
      emptyMessage:
        n > MOST
          ? `More than ${count(MOST)} thresholds`
          : session.exported
            ? "Not in this file"
            : emptyReason(scene, "curve"),
    };
    this.figure.paint((pen, size, paint) => drawPr(pen, size, paint, picture), colours);
    const summary = curve ? `average precision ${num(averagePrecision(curve), 4)}` : "";
    const text = curve && read >= 0 ? this.#text(curve, read) : summary;
    this.readout(text);
    setAttributes(this.figure.canvas, {
      "aria-valuemin": 0,
      "aria-valuemax": 1,
      "aria-valuenow": curve && read >= 0 ? curve.threshold[read] : 0,
      "aria-valuetext": text,
    });
    const name = truncate(scene.traits.tensor, 80);
    this.figure.describe(`Precision over recall of ${name}`);
    this.summary(`${name} at step ${main?.savedStep}: ${summary || picture.emptyMessage}.`);
  }

  #text({ threshold, precision, recall, counts }: PrCurve, i: number): string {
    const of = (values: Float64Array) => num(defined(values[i]), 4);
    const more = counts?.map((each, k) => `${COUNTS[k]} ${count(defined(each[i]))}`) ?? [];
    return [`threshold ${of(threshold)}`, `precision ${of(precision)}`, `recall ${of(recall)}`, ...more].join(
      " \u00b7 ",
    );
  }

  #read(i: number) {
    if (i === this.#hover) return;
    this.#hover = i;
    this.context.redraw();
  }

  /** The threshold whose point is nearest to a pixel. */
  #nearest(px: number, py: number): number {
    const curve = this.#curve;
    const { x, y } = layoutPr(this.figure.size);
    let best = -1;
    let least = Number.POSITIVE_INFINITY;
    curve?.recall.forEach((recall, i) => {
      const far = Math.hypot(x(recall) - px, y(defined(curve.precision[i])) - py);
      if (far < least) [best, least] = [i, far];
    });
    return best;
  }

  #key(key: string): boolean {
    const n = this.#curve?.recall.length ?? 0;
    if (n === 0) return false;
    if (key === "Escape" && this.#hover >= 0) this.#read(-1);
    else {
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -n, End: n }[key];
      if (by === undefined) return false;
      this.#read(Math.max(0, Math.min(n - 1, this.#hover + by)));
    }
    return true;
  }

  #load(n: number) {
    const main = this.#scene?.main;
    if (!main || this.context.session.exported || main.pending) return;
    const request = {
      what: "values" as const,
      role: "main" as const,
      ...valueRef(main),
      axes: [0, 1],
      fixed: [0, 0],
      rows: [n > MOST_WITH_COUNTS ? ROWS - 2 : 0, ROWS] as [number, number],
      cols: [0, n] as [number, number],
    };
    this.#values.update(request, () => request);
  }

  #rows(): Rows | undefined {
    const curve = this.#curve;
    if (!curve) return undefined;
    const counts = curve.counts ?? [];
    return [
      ["threshold", "precision", "recall", ...(curve.counts ? COUNTS : [])],
      ...Array.from(curve.threshold, (threshold, i) => [
        threshold,
        defined(curve.precision[i]),
        defined(curve.recall[i]),
        ...counts.map((each) => defined(each[i])),
      ]),
    ];
  }

  #python(): string {
    const main = this.#scene?.main;
    const path = this.context.session.store.runs.get(main?.run ?? 0)?.head.path ?? "";
    return `smdwidgets.create_trial(${pyString(path)}).pr_curve(${pyString(main?.tensor ?? "")}, ${main?.savedStep})`;
  }
}
