/** The cells that changed most between B and A, with their values over steps. */

import { type Difference, differenceStatistic, type Life, lifeKey, valueRef } from "../../data/difference";
import { type Matrix, matrixOf } from "../../data/matrix";
import { notFiniteColour } from "../../draw/not-finite";
import { defined } from "../../lib/defined";
import { focusedNear, h, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { bytes, count, num, plural } from "../../lib/format";
import { IdleTimer } from "../../lib/idle-timer";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import { Panel, type Rows } from "../common/panel";
import type { Context } from "../common/part";
import { comparisonColours, slotNames } from "./legend";

/** Cells of one request; see MOST_CELLS in pictures/differences.py. */
const LIVES = 8;
const REST = 150;
/** Bytes of records that are read without a click. */
const MOST_BYTES = 256 << 20;
/** Steps that the kernel reads at most. */
const MOST_STEPS = 512;
const WIDE = 84;
const HIGH = 18;

export class ChangedPanel extends Panel {
  readonly #head = h("div", { class: "smdw-change smdw-change-head", role: "row" });
  readonly #rows = h("div", { role: "rowgroup" });
  readonly #table: HTMLElement;
  readonly #read: HTMLButtonElement;
  readonly #idle: IdleTimer;
  #scene: Scene | undefined;
  #found: Difference | undefined;
  /** the compared values whose cells over steps were requested */
  #asked: unknown;
  readonly #drawn = new Memo();

  constructor(context: Context) {
    super("changed", "Cells that changed most", context);
    const { signal, session } = context;
    this.#idle = new IdleTimer(signal);
    this.#table = h("div", { class: "smdw-changes", role: "table", "aria-label": "Cells that changed most" });
    this.#table.append(h("div", { role: "rowgroup" }, this.#head), this.#rows);
    this.#read = textButton("", () => this.#ask(), signal);
    this.body.append(this.#table);
    this.tools.append(this.#read);
    this.exports(false, () => ({
      name: `${this.#scene?.traits.tensor}-changed-cells`,
      rows: () => this.#csv(),
      python: () => this.#python(),
    }));
    signal.addEventListener("abort", () => session.connection.cancel("life"));
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { main, compared, traits } = scene;
    const { session } = this.context;
    if (!main || !compared) return;
    const found = session.store.differences(valueRef(main), valueRef(compared))[0];
    // While dragging, the cells that arrived last stay.
    const stale = found === undefined;
    if (found) this.#found = found;
    const held = this.#found;
    const belongs = held?.head.a.tensor === main.tensor && held.head.a.run === main.run;
    const shown = belongs ? held : undefined;
    const matrix = matrixOf(main, traits.axes, traits.fixed);
    const status = session.connection.requests.get("diff");
    this.note(
      status?.error || status?.busy ? status : session.connection.requests.get("life"),
      session.exported ? "Not in this file" : stale && shown ? "of an earlier step" : "",
    );
    this.#table.classList.toggle("smdw-stale", stale);
    this.#fill(scene, shown, matrix);
    if (shown) this.readout(this.#readoutText(shown));
    else
      this.readout(session.exported ? "The exact difference needs a kernel" : status?.error ? "" : "Subtracting\u2026");
    this.summary(
      shown
        ? `${plural(differenceStatistic(shown, "changed"), "cell")} changed. ${shown.changed
            .slice(0, 3)
            .map(({ index, a, b }) => `[${index.join(", ")}] from ${num(b)} to ${num(a)}`)
            .join(", ")}.`
        : "No difference loaded.",
    );
    this.#lives(scene, stale ? undefined : shown);
  }

  #readoutText(found: Difference): string {
    const of = (name: Parameters<typeof differenceStatistic>[1]) => differenceStatistic(found, name);
    const odd = of("nan") + of("neg_inf") + of("pos_inf");
    return `${count(of("changed"))} of ${count(of("count"))} cells changed   largest ${num(of("abs_max"))}   L2 ${num(of("l2"))}${odd ? `   ${count(odd)} not finite` : ""}`;
  }

  #fill(scene: Scene, found: Difference | undefined, matrix: Matrix | undefined) {
    const { main, compared, traits } = scene;
    const { session, theme } = this.context;
    if (!main || !compared) return;
    const { dark, ink2 } = theme();
    const [colour] = comparisonColours(scene, session.store, theme());
    const lives = (found?.changed ?? []).map(({ index }) =>
      session.store.lives.get(lifeKey(main.run, main.tensor, main.worker, index)),
    );
    const names = slotNames(main, compared, traits.mode, session.store);
    const inputs = [
      found && [found.head.a, found.head.b],
      lives.map((life) => life?.size),
      traits.selection,
      matrix && [matrix.axes, matrix.fixed],
      names,
      dark,
      scene.step,
    ];
    if (!this.#drawn.changed(inputs)) return;
    this.#head.replaceChildren(
      ...["cell", `B ${names[1]}`, `A ${names[0]}`, "over steps"].map((text) =>
        h("span", { role: "columnheader", title: text }, text),
      ),
    );
    const focused = [...this.#rows.children].indexOf(focusedNear(this.el) as Element);
    this.#rows.replaceChildren(
      ...(found?.changed ?? []).map(({ index, a, b }, i) => {
        const value = (x: number) =>
          h("span", { role: "cell", class: Number.isFinite(x) ? "" : "smdw-bad" }, num(x, 3));
        const row = h(
          "div",
          {
            class: "smdw-change",
            role: "row",
            tabindex: 0,
            "aria-selected": String(matrix !== undefined && isSelected(matrix, index, traits.selection)),
            title: "Select this cell",
          },
          h("span", { role: "cell", class: "smdw-change-cell" }, index.length ? `[${index.join(", ")}]` : "value"),
          value(b),
          value(a),
          h("span", { role: "cell" }, lives[i] && lifeLine(lives[i], scene.step, colour, ink2)),
        );
        row.addEventListener("click", () => this.#select(index));
        this.context.keys.on(row, (event) => {
          if (event.key === "Enter" || event.key === " ") this.#select(index);
          else if (event.key === "ArrowDown") (row.nextElementSibling as HTMLElement | null)?.focus();
          else if (event.key === "ArrowUp") (row.previousElementSibling as HTMLElement | null)?.focus();
          else return false;
          return true;
        });
        return row;
      }),
    );
    if (focused >= 0) (this.#rows.children[focused] as HTMLElement | undefined)?.focus();
    const none = found && !found.changed.length;
    if (none) this.#rows.append(h("p", { class: "smdw-quiet" }, "No cell changed: A and B are equal."));
  }

  /** Selects a cell in all parts: the plane is that of the cell. */
  #select(index: readonly number[]) {
    const { traits, main } = this.#scene ?? {};
    const { state } = this.context.session;
    const m = traits && matrixOf(main, traits.axes, traits.fixed);
    if (!m) return;
    const fixed = m.shape.map((_, axis) => (m.axes.includes(axis) ? defined(m.fixed[axis]) : defined(index[axis])));
    const at = (axis: number | undefined) => (axis === undefined ? 0 : defined(index[axis]));
    const [row, col] = m.axes.length === 2 ? [at(m.axes[0]), at(m.axes[1])] : [0, at(m.axes[0])];
    const zoom = state.get("zoom");
    const [r0 = 0, r1 = m.rows, c0 = 0, c1 = m.cols] = zoom;
    const inside = row >= r0 && row < r1 && col >= c0 && col < c1;
    state.set({
      selection: { kind: "cells", rows: [row, row + 1], cols: [col, col + 1] },
      ...(equal(fixed, m.fixed) ? {} : { fixed }),
      ...(inside ? {} : { zoom: [] }),
    });
    // Of cells below the first ones, the values over steps are read when they are selected.
    if (this.#found && !this.#hasLife(index)) this.#request([[...index]]);
  }

  #hasLife(index: readonly number[]): boolean {
    const main = this.#scene?.main;
    const { store } = this.context.session;
    return main !== undefined && store.lives.has(lifeKey(main.run, main.tensor, main.worker, index));
  }

  /** Requests the first cells over steps, by itself if that is little to read. */
  #lives({ main }: Scene, found: Difference | undefined) {
    const { session } = this.context;
    const plan = main?.frames.plan;
    const size = (plan?.bytes ?? 0) * Math.min(MOST_STEPS, main?.frames.steps.length ?? 0);
    const values = found && [found.head.a, found.head.b];
    const missing = found?.changed.slice(0, LIVES).some(({ index }) => !this.#hasLife(index)) ?? false;
    const much = size > MOST_BYTES;
    setVisible(this.#read, missing && much && !session.exported);
    setText(this.#read, `Read over steps (${bytes(size)})`);
    if (!missing || much || session.exported || equal(values, this.#asked)) return;
    if (session.connection.requests.get("life")?.error) return;
    this.#idle.schedule(REST, () => {
      this.#asked = values;
      this.#ask();
    });
  }

  #ask() {
    this.#request((this.#found?.changed ?? []).slice(0, LIVES).map(({ index }) => index));
  }

  #request(cells: number[][]) {
    const main = this.#scene?.main;
    const { session } = this.context;
    if (!main || !cells.length || session.exported) return;
    const { run, tensor, worker, savedStep } = main;
    void session.connection.request("life", { what: "life", run, tensor, worker, near: savedStep, cells });
  }

  #csv(): Rows | undefined {
    const found = this.#found;
    if (!found) return undefined;
    const axes = found.head.shape.map((_, axis) => `axis_${axis}`);
    return [[...axes, "a", "b"], ...found.changed.map(({ index, a, b }) => [...index, a, b])];
  }

  #python(): string {
    return "w.difference().changed()";
  }
}

/** Whether exactly this cell is selected. */
function isSelected(m: Matrix, index: readonly number[], selection: Scene["traits"]["selection"]): boolean {
  if (selection.kind !== "cells") return false;
  if (index.some((at, axis) => !m.axes.includes(axis) && at !== m.fixed[axis])) return false;
  const [row, col] = m.axes.length === 2 ? m.axes.map((axis) => index[axis]) : [0, index[defined(m.axes[0])] ?? 0];
  return (
    selection.rows.join() === [row, Number(row) + 1].join() && selection.cols.join() === [col, Number(col) + 1].join()
  );
}

const SVG = "http://www.w3.org/2000/svg";

/** The values of a cell over steps as a small line, with the step in view. Values that are not finite are marks. */
function lifeLine(life: Life, step: number, colour: string, faint: string): SVGSVGElement {
  const points = [...life].sort(([a], [b]) => a - b);
  const finite = points.filter(([, y]) => Number.isFinite(y));
  const [first, last] = [points[0]?.[0] ?? 0, points.at(-1)?.[0] ?? 1];
  let [lo, hi] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const [, y] of finite) [lo, hi] = [Math.min(lo, y), Math.max(hi, y)];
  const x = (at: number) => 1 + ((at - first) / (last - first || 1)) * (WIDE - 2);
  const y = (value: number) => (hi > lo ? 2 + ((hi - value) / (hi - lo)) * (HIGH - 4) : HIGH / 2);
  const svg = document.createElementNS(SVG, "svg");
  setAttributes(svg, {
    viewBox: `0 0 ${WIDE} ${HIGH}`,
    width: WIDE,
    height: HIGH,
    class: "smdw-life",
    "aria-hidden": "true",
  });
  const add = (tag: string, attributes: Record<string, string | number>) => {
    const el = document.createElementNS(SVG, tag);
    setAttributes(el, attributes);
    svg.append(el);
  };
  if (step >= first && step <= last)
    add("line", { x1: x(step), x2: x(step), y1: 0, y2: HIGH, stroke: faint, "stroke-width": 1 });
  let line = "";
  let broken = true;
  for (const [at, value] of points) {
    if (Number.isFinite(value)) line += `${broken ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    broken = !Number.isFinite(value);
  }
  add("path", { d: line, fill: "none", stroke: colour, "stroke-width": 1.2, "stroke-linejoin": "round" });
  for (const [at, value] of points)
    if (!Number.isFinite(value)) {
      const kind = Number.isNaN(value) ? "nan" : value > 0 ? "posInf" : "negInf";
      add("rect", { x: x(at) - 1, y: HIGH - 4, width: 2, height: 4, fill: notFiniteColour(kind) });
    }
  return svg;
}
