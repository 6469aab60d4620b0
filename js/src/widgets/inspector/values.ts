import { valueRef } from "../../data/difference";
import { type Matrix, matrixOf } from "../../data/matrix";
import type { Values } from "../../data/store";
import { defined } from "../../lib/defined";
import { h, setAttributes, setText } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { count, minusSigns, num, truncate } from "../../lib/format";
import { markdown } from "../../lib/markdown";
import { Memo } from "../../lib/memo";
import { Viewport } from "../../lib/viewport";
import { type VisibleRange, visibleRange } from "../../lib/virtual-rows";
import type { PlanHead, ValuesHead } from "../../protocol/types";
import { pythonValue, sliceText } from "../../session/python-code";
import { Resource } from "../../session/resource";
import type { Scene } from "../../session/scene";
import { emptyReason } from "../common/frame-text";
import { Panel, type Rows } from "../common/panel";
import type { Context } from "../common/part";

const ROW = 22;
/** Column width in pixels per type, wide enough for its longest number. */
const WIDE: Record<string, number> = {
  bool: 64,
  uint8: 64,
  int8: 64,
  float64: 190,
  int64: 164,
  uint64: 164,
  complex64: 236,
  complex128: 390,
  str: 240,
};
const USUAL = 128;
/** In the explorer, numbers have three digits, and as many columns as fit share the width. */
const SHORT = 76;
const HEAD = 64;
/** A request loads a block around the visible cells, so that small scrolls need none. */
const BLOCK_ROWS = 64;
const BLOCK_COLS = 32;
const IDLE_MS = 120;

/** Exact values in a virtual table. */
export class ValuesPanel extends Panel {
  readonly #scroll = h("div", { class: "smdw-scroll", tabindex: 0, role: "group", "aria-label": "Values" });
  readonly #view: Viewport;
  readonly #canvas = h("div", { class: "smdw-scroll-space", role: "presentation" });
  readonly #cells = h("div", { class: "smdw-cells", role: "presentation" });
  readonly #pool: HTMLElement[] = [];
  #scene: Scene | undefined;
  #matrix: Matrix | undefined;
  readonly #request: Resource;
  #col = USUAL;
  #visible: { rows: VisibleRange; cols: VisibleRange } | undefined;
  /** values of the current step, if loaded */
  #loaded: Values | undefined;
  /** inputs of the cells drawn */
  #table = new Memo();

  constructor(context: Context) {
    super("values", "Values", context);
    const { signal, session } = context;
    this.#scroll.append(this.#canvas, this.#cells);
    this.body.append(this.#scroll);
    this.#view = new Viewport(this.#scroll, context.redraw, signal);
    this.#request = new Resource(session, "values", signal, { cancelsAtOnce: true });
    context.keys.on(this.#scroll, (event) => {
      const by = {
        ArrowUp: [0, -ROW],
        ArrowDown: [0, ROW],
        ArrowLeft: [-this.#col, 0],
        ArrowRight: [this.#col, 0],
        PageUp: [0, -8 * ROW],
        PageDown: [0, 8 * ROW],
      }[event.key];
      if (by) this.#scroll.scrollBy(defined(by[0]), defined(by[1]));
      else if (event.key === "Home") this.#scroll.scrollTo(0, 0);
      else if (event.key === "End") this.#scroll.scrollTo(this.#scroll.scrollLeft, this.#scroll.scrollHeight);
      else return false;
      return true;
    });
    this.exports(false, () => ({
      name: `${this.#scene?.traits.tensor}-values-step-${this.#scene?.main?.savedStep}`,
      rows: () => this.#rows(),
      python: () =>
        `${pythonValue(session, this.#scene?.main)}${this.#matrix ? sliceText(this.#matrix.shape.length, this.#matrix.axes, this.#matrix.fixed) : ""}`,
    }));
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main } = scene;
    const { session } = this.context;
    const m = matrixOf(main, traits.axes, traits.fixed);
    this.#matrix = m;
    const status = this.#request.status;
    const nothing =
      !m || !main || m.rows * m.cols === 0 || main.frames.plan?.reduced || main.frame?.error || main.frame?.sampled;
    if (nothing || Number.isNaN(main.savedStep)) {
      setAttributes(this.#scroll, { role: "group", "aria-rowcount": undefined, "aria-colcount": undefined });
      const reason = emptyReason(scene, "table");
      this.#cells.replaceChildren(h("p", { class: reason ? "smdw-empty" : "smdw-skeleton" }, reason));
      this.#pool.length = 0;
      this.#table = new Memo();
      this.#canvas.style.width = this.#canvas.style.height = "0";
      this.note(status);
      this.readout("");
      return;
    }
    // A small tensor needs no empty rows; 16 pixels are for a scroll bar.
    const height = `${Math.min(12, m.rows + 1) * ROW + (m.rows > 11 ? 0 : 16)}px`;
    if (this.#scroll.style.height !== height) this.#scroll.style.height = height;
    const { left, top, width: inner, height: tall } = this.#view;
    const rows = visibleRange(m.rows, ROW, top, tall - ROW);
    this.#setColumnWidth(main.frames.plan, m.cols, inner);
    const cols = visibleRange(m.cols, this.#col, left, inner - HEAD);
    this.#visible = { rows, cols };
    this.#canvas.style.height = `${rows.total + ROW}px`;
    this.#canvas.style.width = `${cols.total + HEAD}px`;
    const covers = (head: ValuesHead) =>
      head.run === main.run &&
      head.tensor === main.tensor &&
      head.worker === main.worker &&
      equal(head.axes, m.axes) &&
      equal(head.fixed, m.fixed) &&
      head.rows[0] <= rows.first &&
      head.rows[1] >= rows.last &&
      head.cols[0] <= cols.first &&
      head.cols[1] >= cols.last;
    const loaded = session.store.values((head) => head.step === main.savedStep && covers(head));
    this.#loaded = loaded;
    const stale = !loaded || main.pending;
    // While dragging, and while a training runs, the values that arrived last stay, with their step.
    const written = loaded ?? session.store.values(covers);
    const inputs = [written, stale, left, top, inner, tall, m.rows, m.cols, m.axes, this.#col];
    // A single text is not shown as a table.
    const alone = m.rows * m.cols === 1 && main.frames.plan?.form === "text" ? written?.head.cells[0]?.[0] : undefined;
    this.#scroll.classList.toggle("smdw-plain", alone !== undefined);
    if (this.#table.changed(inputs)) {
      if (alone === undefined) this.#fill(m, rows, cols, written, stale);
      else {
        const formatted = main.frames.plan?.collections.includes("text");
        const words = formatted ? markdown(alone) : h("p", {}, alone);
        words.classList.add("smdw-words");
        words.classList.toggle("smdw-quiet", stale);
        this.#cells.replaceChildren(words);
        this.#canvas.style.width = this.#canvas.style.height = "0";
      }
    }
    if (alone !== undefined) this.#scroll.style.height = "auto";
    const earlier = stale && written ? `Values of step ${count(written.head.step)}` : "";
    this.note(status, stale && !status && session.exported ? "Not in this file" : earlier);
    setAttributes(
      this.#scroll,
      alone === undefined
        ? { role: "grid", "aria-rowcount": m.rows + 1, "aria-colcount": m.cols + 1 }
        : { role: "group", "aria-rowcount": undefined, "aria-colcount": undefined },
    );
    const where =
      m.rows * m.cols === 1
        ? "1 value"
        : `rows ${count(rows.first)}\u2013${count(rows.last - 1)} of ${count(m.rows)}, columns ${count(cols.first)}\u2013${count(cols.last - 1)} of ${count(m.cols)}`;
    this.readout(where);
    this.summary(
      `Values of ${truncate(traits.tensor, 80)}${sliceText(m.shape.length, m.axes, m.fixed)} at step ${main.savedStep}: ${where}.`,
    );
    if (!loaded && !session.exported && !main.pending && inner > 0) this.#load(m, rows, cols);
  }

  /** Columns are as wide as their type needs; text columns share the available width. */
  #setColumnWidth(plan: PlanHead | undefined, columns: number, inner: number) {
    const words = plan?.form === "text";
    const room = Math.max(1, Math.floor((inner - HEAD) / SHORT));
    if (this.compact && plan?.form === "number" && inner > HEAD) {
      this.#col = Math.floor((inner - HEAD) / Math.min(room, columns));
      this.#col = Math.min(this.#col, USUAL);
      this.#cells.style.setProperty("--smdw-column", `${this.#col}px`);
      return;
    }
    const least = WIDE[words ? "str" : (plan?.dtype ?? "")] ?? USUAL;
    this.#col = words ? Math.max(least, Math.min(720, Math.floor((inner - HEAD) / columns))) : least;
    this.#cells.style.setProperty("--smdw-column", `${this.#col}px`);
    this.#scroll.classList.toggle("smdw-of-text", words);
  }

  #fill(m: Matrix, rows: VisibleRange, cols: VisibleRange, values: Values | undefined, stale: boolean) {
    const { left: scrollLeft, top: scrollTop } = this.#view;
    const place = (c: number) => HEAD + c * this.#col - cols.shift;
    const columns = Array.from({ length: cols.last - cols.first }, (_, i) => cols.first + i);
    const corner = m.axes.length === 2 ? `${m.axes[0]} \\ ${m.axes[1]}` : "";
    this.#row(0, scrollTop, 0, [
      { words: corner, kind: "smdw-corner-head", role: "columnheader", x: scrollLeft, column: 0 },
      ...columns.map((c) => ({
        words: count(c),
        kind: "smdw-col-head",
        role: "columnheader",
        x: place(c),
        column: c + 1,
      })),
    ]);
    for (let r = rows.first; r < rows.last; r++) {
      const line = values?.head.cells[r - values.head.rows[0]];
      this.#row(r - rows.first + 1, ROW + r * ROW - rows.shift, r + 1, [
        { words: count(r), kind: "smdw-row-head", role: "rowheader", x: scrollLeft, column: 0 },
        ...columns.map((c) => {
          const words = line?.[c - (values?.head.cols[0] ?? 0)];
          const kind =
            words === undefined
              ? ""
              : /^[+-]?(nan|inf)/i.test(words)
                ? "smdw-bad"
                : words && Number(words) === 0
                  ? "smdw-zero"
                  : "";
          return {
            words: words === undefined ? "\u00b7" : this.#written(words, values),
            title: this.compact && values?.number ? words : undefined,
            kind: stale ? `${kind} smdw-stale` : kind,
            role: "gridcell",
            x: place(c),
            column: c + 1,
          };
        }),
      ]);
    }
    const used = this.#pool.slice(0, rows.last - rows.first + 1);
    if (this.#cells.childElementCount !== used.length || this.#cells.firstChild !== used[0])
      this.#cells.replaceChildren(...used);
  }

  #written(words: string, values: Values | undefined): string {
    if (!values?.number) return truncate(words, 160);
    const exact = minusSigns(words);
    const value = Number(words);
    return this.compact && words.length > 6 && !Number.isNaN(value) ? num(value, 3) : truncate(exact, 160);
  }

  /** Fills the i-th row on screen. Rows and cells are reused. */
  #row(
    i: number,
    y: number,
    index: number,
    cells: readonly {
      words: string;
      kind: string;
      role: string;
      x: number;
      column: number;
      title?: string | undefined;
    }[],
  ) {
    const row = this.#pool[i] ?? h("div", { class: "smdw-line", role: "row" });
    this.#pool[i] = row;
    row.style.transform = `translateY(${y}px)`;
    row.classList.toggle("smdw-line-head", i === 0);
    setAttributes(row, { "aria-rowindex": index + 1 });
    while (row.childElementCount > cells.length) row.lastChild?.remove();
    while (row.childElementCount < cells.length) row.append(h("div", {}));
    cells.forEach(({ words, kind, role, x, column, title }, k) => {
      const el = row.children[k] as HTMLElement;
      el.style.transform = `translateX(${x}px)`;
      const name = `smdw-cell ${kind}`.trim();
      if (el.className !== name) el.className = name;
      setAttributes(el, { role, title, "aria-colindex": column + 1 });
      setText(el, words);
    });
  }

  #load(m: Matrix, rows: VisibleRange, cols: VisibleRange) {
    const main = this.#scene?.main;
    if (!main) return;
    const block = (first: number, last: number, n: number, size: number): [number, number] => {
      const room = Math.max(0, size - (last - first)) >> 1;
      const from = Math.max(0, first - room);
      return [from, Math.min(n, Math.max(last, from + size))];
    };
    const request = {
      what: "values" as const,
      role: "main" as const,
      ...valueRef(main),
      axes: m.axes,
      fixed: m.fixed,
      rows: block(rows.first, rows.last, m.rows, BLOCK_ROWS),
      cols: block(cols.first, cols.last, m.cols, BLOCK_COLS),
    };
    const { follow } = this.#scene?.traits ?? {};
    // Steps can arrive faster than values, so that the next request waits for the response to this one.
    if (follow && this.#request.status?.error === "") return;
    this.#request.update(request, () => request, follow ? 0 : IDLE_MS);
  }

  #rows(): Rows | undefined {
    const seen = this.#visible;
    const values = this.#loaded;
    if (!seen || !values) return undefined;
    const { head } = values;
    const cols = Array.from({ length: seen.cols.last - seen.cols.first }, (_, i) => seen.cols.first + i);
    const out: Rows = [["row", ...cols]];
    for (let r = seen.rows.first; r < seen.rows.last; r++)
      out.push([r, ...cols.map((c) => head.cells[r - head.rows[0]]?.[c - head.cols[0]] ?? "")]);
    return out;
  }
}
