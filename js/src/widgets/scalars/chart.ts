/** One chart of curves with a legend and a readout of all curves under the pointer or the arrow keys. */

import { lastAtOrBefore, nearestIndex } from "../../data/frames";
import { type Curve, drawLines, type LinesPicture, layoutLines } from "../../draw/lines";
import type { Theme } from "../../draw/theme";
import { defined } from "../../lib/defined";
import { h, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { dateTime, duration } from "../../lib/time-text";
import type { Line } from "../../protocol/types";
import { Figure } from "../common/figure";
import type { Context } from "../common/part";

export interface ShownCurve {
  line: Required<Line>;
  name: string;
  /** the name without what the chart's title says */
  short: string;
  curve: Curve;
  /** the step of each x */
  steps: ArrayLike<number>;
}

export interface ChartContent extends Omit<LinesPicture, "curves" | "hover" | "xLabel" | "step" | "marked" | "range"> {
  title: string;
  curves: readonly ShownCurve[];
  /** in steps */
  step: number;
  range: readonly number[];
  marked: readonly number[];
  /** whether curves can be removed */
  removable: boolean;
}

interface Actions {
  /** a click */
  step(step: number): void;
  /** a drag over steps; `done` when it ends */
  select(range: [number, number], done: boolean): void;
  remove(line: Required<Line>): void;
}

/** Rows of the readout; of more curves, those with the largest values. */
const MOST_ROWS = 12;
/** Curves that the chart's label names. */
const NAMED = 8;
const LABELS = { step: "step", relative: "elapsed", wall: "local time" };

export class ScalarChart {
  readonly el: HTMLElement;
  readonly figure: Figure;
  readonly #title = h("h4", { class: "smdw-chart-title" });
  readonly #card = h("div", { class: "smdw-card", "aria-hidden": "true", hidden: true });
  readonly #legend = h("ul", { class: "smdw-legend" });
  #content: ChartContent | undefined;
  #picture: LinesPicture | undefined;
  /** x that is read */
  #hover: number | undefined;
  readonly #legendMemo = new Memo();

  constructor(
    private readonly context: Context,
    private readonly actions: Actions,
    signal: AbortSignal,
  ) {
    this.figure = new Figure("scalars", context, signal);
    setAttributes(this.figure.canvas, { tabindex: 0, role: "slider" });
    this.figure.el.append(this.#card);
    this.el = h("div", { class: "smdw-chart" }, this.#title, this.figure.el, this.#legend);
    const layout = () => this.#picture && layoutLines(this.#picture, this.figure.size);
    this.figure.gestures(
      {
        move: (at) => {
          const placed = at && layout();
          const of = this.#longest();
          const i = placed && of ? nearestIndex(of.curve.x, placed.x.invert(at.x)) : -1;
          this.#read(i < 0 ? undefined : of?.curve.x[i]);
        },
        down: (start) => {
          const placed = layout();
          if (!placed) return undefined;
          return (at, done) => {
            const { box, x } = placed;
            const step = (px: number) => this.#stepAt(x.invert(Math.max(box.x, Math.min(box.x + box.width, px))));
            // A click sets the step. A drag selects a range of steps.
            if (Math.abs(at.x - start.x) < 5) {
              if (done) actions.step(step(at.x));
              return;
            }
            actions.select([step(start.x), step(at.x)].sort((a, b) => a - b) as [number, number], done);
          };
        },
      },
      signal,
    );
    context.keys.on(this.figure.canvas, (event) => this.#key(event));
    this.figure.canvas.addEventListener("blur", () => this.#read(undefined), { signal });
  }

  update(content: ChartContent, theme: Theme): void {
    this.#content = content;
    const { axis = "step", range } = content;
    setText(this.#title, content.title);
    setVisible(this.#title, content.title !== "");
    this.#picture = {
      ...content,
      curves: content.curves.map((each) => each.curve),
      range: range.length === 2 ? this.#xRange(range as [number, number]) : undefined,
      step: this.#xOf(content.step),
      marked: content.marked.map((step) => this.#xOf(step)),
      hover: this.#hover,
      xLabel: LABELS[axis],
    };
    const picture = this.#picture;
    this.figure.paint((pen, size, paint) => drawLines(pen, size, paint, picture), theme);
    this.#drawLegend();
    this.#drawCard();
    const shown = this.#rows(this.#hover ?? picture.step);
    const steps = this.#longest()?.steps ?? [];
    setAttributes(this.figure.canvas, {
      "aria-valuemin": steps[0] ?? 0,
      "aria-valuemax": steps[steps.length - 1] ?? 0,
      "aria-valuenow": this.readStep,
      "aria-valuetext": `${this.readText()}: ${shown.map(({ of, i }) => `${truncate(of.name, 60)} ${num(defined(of.curve.y[i]), 5)}`).join("; ")}`,
    });
    const names = content.curves.slice(0, NAMED).map(({ name }) => truncate(name, 60));
    const all = plural(content.curves.length, "curve");
    this.figure.describe(`${content.title || all}: ${names.join(", ")}`);
  }

  get reading(): boolean {
    return this.#hover !== undefined;
  }

  /** The step that is read. */
  get readStep(): number {
    return this.#hover === undefined ? (this.#content?.step ?? Number.NaN) : this.#stepAt(this.#hover);
  }

  /** "step 120 · 3 min 20 s" */
  readText(): string {
    const axis = this.#content?.axis ?? "step";
    const step = this.readStep;
    if (Number.isNaN(step)) return "";
    const x = this.#hover ?? this.#xOf(step);
    return `step ${count(step)}${axis === "step" || Number.isNaN(x) ? "" : ` \u00b7 ${axis === "wall" ? dateTime(x) : duration(x)}`}`;
  }

  #longest(): ShownCurve | undefined {
    return this.#content?.curves.reduce<ShownCurve | undefined>(
      (best, each) => (best && best.steps.length >= each.steps.length ? best : each),
      undefined,
    );
  }

  #stepAt(x: number): number {
    const of = this.#longest();
    const i = of ? nearestIndex(of.curve.x, x) : -1;
    return i < 0 ? Number.NaN : defined(of?.steps[i]);
  }

  #xOf(step: number): number {
    if ((this.#content?.axis ?? "step") === "step") return step;
    const of = this.#longest();
    const i = of ? lastAtOrBefore(of.steps, step) : -1;
    return i < 0 ? Number.NaN : defined(of?.curve.x[i]);
  }

  /** The x of all curves within steps. */
  #xRange(range: [number, number]): [number, number] {
    if ((this.#content?.axis ?? "step") === "step") return range;
    const ends: number[] = [];
    for (const { steps, curve } of this.#content?.curves ?? []) {
      const [first, last] = [lastAtOrBefore(steps, range[0]), lastAtOrBefore(steps, range[1])];
      if (last >= 0) ends.push(defined(curve.x[Math.max(0, first)]), defined(curve.x[last]));
    }
    return ends.length ? [Math.min(...ends), Math.max(...ends)] : range;
  }

  #read(x: number | undefined) {
    if (this.#hover === x) return;
    this.#hover = x;
    this.context.redraw();
  }

  #key(event: KeyboardEvent): boolean {
    const of = this.#longest();
    const n = of?.curve.x.length ?? 0;
    if (!of || n === 0) return false;
    if (event.key === "Escape" && this.#hover !== undefined) {
      this.#read(undefined);
      return true;
    }
    if (event.key === "Enter" && this.#hover !== undefined) {
      this.actions.step(this.readStep);
      return true;
    }
    const tenth = Math.max(1, Math.round(n / 10));
    const by = { ArrowRight: 1, ArrowLeft: -1, PageUp: tenth, PageDown: -tenth, Home: -n, End: n }[event.key];
    if (by === undefined) return false;
    const at = nearestIndex(of.curve.x, this.#hover ?? this.#picture?.step ?? 0);
    this.#read(defined(of.curve.x[Math.max(0, Math.min(n - 1, at + by))]));
    return true;
  }

  /** The value of each curve nearest to an x, the largest first. */
  #rows(x: number): { of: ShownCurve; i: number }[] {
    const value = ({ of: { curve }, i }: { of: ShownCurve; i: number }) => defined(curve.y[i]);
    return (this.#content?.curves ?? [])
      .map((of) => ({ of, i: nearestIndex(of.curve.x, x) }))
      .filter(({ i }) => i >= 0)
      .sort((a, b) => (Number.isNaN(value(a)) ? 1 : Number.isNaN(value(b)) ? -1 : value(b) - value(a)));
  }

  #drawCard() {
    const x = this.#hover;
    const picture = this.#picture;
    const layout = x !== undefined && picture && layoutLines(picture, this.figure.size);
    const rows = x === undefined ? [] : this.#rows(x);
    setVisible(this.#card, Boolean(layout) && rows.length > 0);
    if (!layout || x === undefined) return;
    const step = this.readStep;
    this.#card.replaceChildren(
      h("div", { class: "smdw-card-head" }, this.readText()),
      ...rows.slice(0, MOST_ROWS).map(({ of: { curve, steps, short }, i }) => {
        const there = defined(steps[i]);
        return h(
          "div",
          { class: "smdw-card-row" },
          swatch(curve),
          h("span", { class: "smdw-legend-name" }, truncate(short, 80)),
          h("b", {}, num((curve.smooth ?? curve.y)[i] as number, 5)),
          h("span", { class: "smdw-quiet" }, curve.smooth ? num(defined(curve.y[i]), 5) : ""),
          h("span", { class: "smdw-quiet" }, there === step ? "" : `@ ${count(there)}`),
        );
      }),
    );
    if (rows.length > MOST_ROWS)
      this.#card.append(h("div", { class: "smdw-quiet" }, `${rows.length - MOST_ROWS} more`));
    const { width } = this.figure.size;
    const right = layout.x(x) < width / 2;
    const edge = (right ? layout.x(x) : width - layout.x(x)) + 12;
    this.#card.style.inset = right ? `${layout.box.y}px auto auto ${edge}px` : `${layout.box.y}px ${edge}px auto auto`;
    this.#card.style.maxWidth = `${width - edge}px`;
  }

  #drawLegend() {
    const { curves = [], removable = false } = this.#content ?? {};
    if (this.#legendMemo.changed([removable, curves.map(({ name, curve }) => [name, curve.colour, curve.dash])]))
      this.#legend.replaceChildren(
        ...curves.map(({ name, curve, line }) => {
          const label = h("span", { class: "smdw-legend-name", title: truncate(name, 2000) }, truncate(name, 120));
          const entry = h("li", {}, swatch(curve), label, h("b", {}));
          if (removable) {
            const drop = textButton("\u00d7", () => this.actions.remove(line), this.context.signal);
            drop.setAttribute("aria-label", `Remove ${truncate(name, 80)}`);
            entry.append(drop);
          }
          return entry;
        }),
      );
    const x = this.#hover ?? this.#picture?.step ?? Number.NaN;
    curves.forEach(({ curve }, i) => {
      const value = this.#legend.children[i]?.querySelector("b");
      const index = lastAtOrBefore(curve.x, x);
      if (value) setText(value, num(index < 0 ? Number.NaN : defined(curve.y[index]), 5));
    });
  }
}

function swatch({ colour, dash }: Curve): HTMLElement {
  const el = h("span", { class: "smdw-swatch", "data-dash": dash?.length ? "1" : "" });
  el.style.color = colour;
  return el;
}
