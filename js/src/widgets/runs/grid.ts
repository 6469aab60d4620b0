/** The table of runs as a grid of rows, of which only those in sight have elements. */

import { envelope } from "../../data/run-curves";
import type { RunRow, Runs } from "../../data/runs";
import { defined } from "../../lib/defined";
import { focusedNear, h, setAttributes, setText } from "../../lib/dom";
import { equal } from "../../lib/equal";
import { count, num, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { visibleRange } from "../../lib/virtual-rows";
import type { RunsSort } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import { firstDown } from "./order";

const ROW = 24;
/** Room for the header, which stays in sight. */
const HEAD = 26;
/** Widest column of a hyperparameter, and how many are shown. */
const WIDEST = 130;
const MOST_HPARAMS = 30;
const [SPARK_WIDTH, SPARK_HEIGHT] = [96, 18];

const STATES: Record<string, string> = {
  reading: "Reading",
  error: "Error",
  running: "Running",
  stalled: "Stalled",
  ended: "Ended",
};
const stateText = (state: string) => STATES[state] ?? state;

interface Column {
  by: string;
  title: string;
  width: number;
  /** left-aligned */
  text?: boolean;
  cell(row: RunRow): Node | string;
}

export interface GridActions {
  open(run: number): void;
  compare(run: number): void;
  check(run: number): void;
}

let made = 0;

export class RunsGrid {
  readonly el: HTMLElement;
  readonly #head = h("div", { class: "smdw-runs-head", role: "row", "aria-rowindex": 1 });
  readonly #body = h("div", { class: "smdw-runs-body", role: "rowgroup" });
  readonly #empty = h("p", { class: "smdw-runs-empty" });
  readonly #id = `smdw-runs-${++made}`;
  readonly #elements = new Map<number, { inputs: readonly unknown[]; el: HTMLElement }>();
  #columns: Column[] = [];
  readonly #columnsMemo = new Memo();
  /** the columns of a version of the rows */
  readonly #allColumns = new Memo<Column[]>();
  #rows: readonly RunRow[] = [];
  #runs: Runs | undefined;
  #active = 0;
  #scroll = 0;
  /** what the user chose to see, in which order */
  readonly #order = new Memo();
  #checked = new Map<number, string>();
  #compared = -1;

  constructor(
    private readonly context: Context,
    private readonly actions: GridActions,
  ) {
    this.el = h(
      "div",
      { class: "smdw-runs-grid", role: "grid", "aria-label": "Runs", "aria-multiselectable": "true", tabindex: 0 },
      h("div", { role: "rowgroup", class: "smdw-runs-top" }, this.#head),
      this.#body,
      this.#empty,
    );
    const { signal } = context;
    this.el.addEventListener(
      "scroll",
      () => {
        if (this.el.scrollTop === this.#scroll) return;
        this.#scroll = this.el.scrollTop;
        this.#place();
      },
      { signal },
    );
    new ResizeObserver(() => !signal.aborted && this.#place()).observe(this.el);
    this.el.addEventListener("click", (event) => this.#click(event), { signal });
    this.el.addEventListener(
      "dblclick",
      (event) => {
        const row = this.#rowAt(event);
        if (row && !(event.target as Element).closest(".smdw-runs-check")) this.actions.open(row.run);
      },
      { signal },
    );
    context.keys.on(this.el, (event) => this.#key(event));
  }

  get active(): RunRow | undefined {
    return this.#rows[this.#active];
  }

  /** `checked`: colour by run. */
  update(scene: Scene, runs: Runs, rows: readonly RunRow[], checked: ReadonlyMap<number, string>, empty: string): void {
    const active = this.active?.run;
    const before = this.#rows;
    const { runs_query, runs_sort } = scene.traits;
    const ordered = this.#order.changed([runs_query, runs_sort]);
    this.#runs = runs;
    if (rows !== this.#rows) {
      this.#rows = rows;
      const at = rows.findIndex((row) => row.run === active);
      this.#active = Math.max(0, at >= 0 ? at : Math.min(this.#active, rows.length - 1));
    }
    this.#checked = new Map(checked);
    this.#compared = scene.traits.compare.run ?? -1;
    this.#setColumns(runs, runs_sort);
    setText(this.#empty, rows.length ? "" : empty);
    this.#empty.hidden = rows.length > 0;
    setAttributes(this.el, { "aria-rowcount": rows.length + 1, "aria-colcount": this.#columns.length + 1 });
    this.#place();
    if (rows !== before && !ordered) this.#keepInPlace(before);
  }

  focus(): void {
    this.el.focus({ preventScroll: true });
  }

  // ------------------------------------------------------------------------------------------------------ columns

  #setColumns(runs: Runs, sort: readonly RunsSort[]) {
    const columns = this.#allColumns.of([runs.version], () => this.#makeColumns(runs));
    const shown = columns.map(({ by, width }) => [by, width]);
    if (!this.#columnsMemo.changed([shown, sort, runs.head?.high])) return;
    this.#columns = columns;
    this.#elements.clear();
    this.#body.replaceChildren();
    const widths = columns.map(({ by, width }) => (by === "name" ? `minmax(${width}px, 1fr)` : `${width}px`));
    this.el.style.setProperty("--smdw-runs-columns", ["30px", ...widths].join(" "));
    const least = columns.reduce((sum, { width }) => sum + width, 30);
    this.el.style.setProperty("--smdw-runs-width", `${least}px`);
    const at = focusedNear(this.el) as HTMLElement | null;
    const focused = this.#head.contains(at) ? at?.dataset.by : undefined;
    this.#head.replaceChildren(
      h(
        "span",
        { role: "columnheader", "aria-colindex": 1, class: "smdw-runs-check" },
        h("span", { class: "smdw-sr" }, "Drawn"),
      ),
      ...columns.map((column, i) => this.#headCell(column, i, sort)),
    );
    if (focused) this.#head.querySelector<HTMLElement>(`[data-by=${JSON.stringify(focused)}]`)?.focus();
  }

  #headCell({ by, title, text }: Column, i: number, sort: readonly RunsSort[]): HTMLElement {
    const at = sort.findIndex((key) => key.by === by);
    const down = at >= 0 && sort[at]?.down;
    const sorted = at < 0 ? "none" : down ? "descending" : "ascending";
    const attributes = {
      role: "columnheader",
      "aria-colindex": i + 2,
      "aria-sort": sorted,
      class: text ? "smdw-runs-text" : undefined,
    };
    if (by === "curve") return h("span", { ...attributes, "aria-sort": undefined }, title);
    const order = at >= 0 && sort.length > 1 ? h("sup", {}, String(at + 1)) : null;
    const button = h(
      "button",
      { type: "button", "data-by": by, title: `Sort by ${title}; with Shift as a further key` },
      title,
      order,
    );
    button.addEventListener("click", (event) => this.#sort(by, event.shiftKey), { signal: this.context.signal });
    return h("span", attributes, button);
  }

  #sort(by: string, further: boolean) {
    const { state } = this.context.session;
    const sort = state.get("runs_sort");
    const known = sort.find((key) => key.by === by);
    const first = this.#runs ? firstDown(this.#runs, by) : false;
    const down = known ? !known.down : first;
    // The third click of a single key removes it.
    const gone = known && Boolean(known.down) !== first;
    const others = further ? sort.filter((key) => key.by !== by) : [];
    if (further && known) state.set({ runs_sort: sort.map((key) => (key.by === by ? { by, down } : key)) });
    else state.set({ runs_sort: gone ? others : [...others, { by, down }] });
  }

  #makeColumns(runs: Runs): Column[] {
    const tag = runs.head?.tag.split("/").at(-1) || "value";
    const short = tag.length > 14 ? `${tag.slice(0, 6)}\u2026${tag.slice(-6)}` : tag;
    const findings = [...runs.rows.values()].some((row) => !Number.isNaN(row.findings));
    const groups = new Set([...runs.rows.keys()].map((run) => runs.group(run)));
    const columns: Column[] = [
      { by: "name", title: "Run", width: 170, text: true, cell: (row) => this.#name(row) },
      { by: "best", title: `Best ${short}`, width: 96, cell: (row) => value(row.best) },
      { by: "last", title: "Last", width: 88, cell: (row) => last(row) },
      { by: "curve", title: short, width: SPARK_WIDTH + 20, text: true, cell: (row) => this.#spark(row) },
      {
        by: "steps",
        title: "Steps",
        width: 64,
        cell: (row) => (Number.isNaN(row.steps) ? "\u2013" : count(row.steps)),
      },
    ];
    if (findings) columns.push({ by: "findings", title: "Findings", width: 80, cell: findingsOf });
    columns.push(
      { by: "state", title: "State", width: 84, text: true, cell: (row) => this.#state(row) },
      { by: "duration", title: "Duration", width: 84, cell: (row) => duration(row.duration) },
    );
    for (const by of runs.hparams.slice(0, MOST_HPARAMS)) {
      let longest = by.length;
      let numeric = true;
      for (const row of runs.rows.values()) {
        longest = Math.max(longest, Math.min(20, hparam(row, by).length));
        const given = row.hparams.get(by);
        if (given !== undefined && typeof given !== "number") numeric = false;
      }
      columns.push({
        by,
        title: by.length > 16 ? `${by.slice(0, 7)}\u2026${by.slice(-7)}` : by,
        width: Math.min(WIDEST, Math.max(58, 22 + 7.2 * longest)),
        text: !numeric,
        cell: (row) => hparam(row, by),
      });
    }
    if (groups.size > 1 && groups.size < runs.rows.size)
      columns.push({ by: "group", title: "Group", width: 130, text: true, cell: (row) => runs.group(row.run) });
    return columns;
  }

  // --------------------------------------------------------------------------------------------------------- rows

  #place() {
    const n = this.#rows.length;
    const view = Math.max(ROW, this.el.clientHeight - HEAD);
    const { first, last, total, shift } = visibleRange(n, ROW, this.el.scrollTop, view);
    this.#body.style.height = `${total}px`;
    const used = new Set<number>();
    const shown: HTMLElement[] = [];
    const one = (at: number) => {
      const row = this.#rows[at];
      if (!row || used.has(row.run)) return;
      used.add(row.run);
      const el = this.#element(row, at);
      el.style.transform = `translateY(${at * ROW - shift}px)`;
      shown.push(el);
    };
    for (let at = Math.max(0, first - 2); at < Math.min(n, last + 2); at++) one(at);
    for (const [run, { el }] of this.#elements)
      if (!used.has(run)) {
        el.remove();
        this.#elements.delete(run);
      }
    shown.forEach((el, i) => {
      if (this.#body.children[i] !== el) this.#body.insertBefore(el, this.#body.children[i] ?? null);
    });
    const active = this.active;
    setAttributes(this.el, {
      "aria-activedescendant": active && used.has(active.run) ? this.#rowId(active.run) : undefined,
    });
  }

  /**
   * Keeps most rows in sight where they are when others come above them, or when one of them gets a better value. If the
   * first row is in sight, it stays so, and a new best one is seen.
   */
  #keepInPlace(before: readonly RunRow[]) {
    const first = Math.floor(this.el.scrollTop / ROW);
    if (!first) return;
    const places = new Map(this.#rows.map(({ run }, at) => [run, at]));
    const end = Math.ceil((this.el.scrollTop + this.el.clientHeight - HEAD) / ROW);
    const moved = before
      .slice(first, end)
      .flatMap(({ run }, i) => {
        const at = places.get(run);
        return at === undefined ? [] : [at - first - i];
      })
      .sort((a, b) => a - b);
    const by = moved[moved.length >> 1] ?? 0;
    if (!by) return;
    this.el.scrollTop += by * ROW;
    this.#place();
  }

  #rowId = (run: number) => `${this.#id}-${run}`;

  #element(row: RunRow, at: number): HTMLElement {
    const colour = this.#checked.get(row.run) ?? "";
    const inputs = [this.#runs?.version, at, colour, at === this.#active, this.#compared === row.run];
    const known = this.#elements.get(row.run);
    if (known && equal(inputs, known.inputs)) return known.el;
    const check = h("span", { role: "gridcell", "aria-colindex": 1, class: "smdw-runs-check" });
    const box = h("span", { class: "smdw-runs-box", "aria-hidden": "true" }, colour ? "\u2713" : "");
    if (colour) box.style.setProperty("--smdw-run-colour", colour);
    check.append(box, h("span", { class: "smdw-sr" }, colour ? "drawn" : "not drawn"));
    const cells = this.#columns.map(({ cell, text, by }, i) => {
      const content = cell(row);
      const full = typeof content === "string" && content.length > 12 ? content : undefined;
      return h(
        "span",
        {
          role: by === "name" ? "rowheader" : "gridcell",
          "aria-colindex": i + 2,
          class: `${text ? "smdw-runs-text" : ""} smdw-runs-${COLUMN_CLASS.has(by) ? by : "hparam"}`,
          title: full,
        },
        content,
      );
    });
    const el = h(
      "div",
      {
        role: "row",
        id: this.#rowId(row.run),
        class: `smdw-runs-row${at === this.#active ? " smdw-runs-active" : ""}`,
        "aria-rowindex": at + 2,
        "aria-selected": String(colour !== ""),
        "data-run": row.run,
        "data-state": row.state,
      },
      check,
      ...cells,
    );
    if (known) known.el.replaceWith(el);
    this.#elements.set(row.run, { inputs, el });
    return el;
  }

  #name(row: RunRow): HTMLElement {
    const el = cutName(row.name);
    const isB = this.#compared === row.run;
    return h(
      "span",
      { class: "smdw-runs-name-box" },
      el,
      isB ? h("b", { class: "smdw-runs-b", title: "Slot B of comparisons" }, "B") : null,
    );
  }

  #state(row: RunRow): HTMLElement {
    const text = stateText(row.state);
    return h(
      "span",
      { class: "smdw-runs-state-text", title: row.state === "error" ? truncate(row.notes[0] ?? "", 300) : text },
      h("span", { class: "smdw-dot", "data-status": row.state, "aria-hidden": "true" }),
      text,
    );
  }

  #spark(row: RunRow): Node | string {
    const { x, lo, hi, mid } = envelope(row.curve);
    if (!x.length) return "\u2013";
    const [from, to] = [defined(x[0]), x.at(-1) as number];
    const { low, high } = row.curve;
    const px = (step: number) => (to > from ? 1 + ((step - from) / (to - from)) * (SPARK_WIDTH - 2) : SPARK_WIDTH / 2);
    const py = (v: number) => SPARK_HEIGHT - 2 - (high > low ? (v - low) / (high - low) : 0.5) * (SPARK_HEIGHT - 4);
    const at = (step: number, v: number) => `${px(step).toFixed(1)},${py(v).toFixed(1)}`;
    let line = "";
    let band = "";
    for (let i = 0; i < x.length; i++) {
      if (!Number.isFinite(mid[i])) continue;
      const step = defined(x[i]);
      line += `${i && Number.isFinite(mid[i - 1]) ? "L" : "M"}${at(step, defined(mid[i]))}`;
      band += `M${at(step, defined(lo[i]))}L${at(step, defined(hi[i]))}`;
    }
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    setAttributes(svg, { width: SPARK_WIDTH, height: SPARK_HEIGHT, "aria-hidden": "true", class: "smdw-spark" });
    const add = (d: string, name: string) => {
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      setAttributes(path, { d, class: name });
      svg.append(path);
    };
    add(band, "smdw-spark-band");
    add(line, "smdw-spark-line");
    if (Number.isFinite(row.notFinite)) {
      const bad = Math.min(SPARK_WIDTH - 3, Math.max(1, px(Math.min(row.notFinite, to))));
      add(`M${bad},1V${SPARK_HEIGHT - 1}`, "smdw-spark-nan");
    }
    return svg;
  }

  // -------------------------------------------------------------------------------------------------- interaction

  #rowAt(event: Event): RunRow | undefined {
    const el = (event.target as Element).closest<HTMLElement>("[data-run]");
    return el ? this.#rows.find((row) => row.run === Number(el.dataset.run)) : undefined;
  }

  #click(event: MouseEvent) {
    const row = this.#rowAt(event);
    if (!row) return;
    this.#active = this.#rows.indexOf(row);
    if (event.altKey) this.actions.compare(row.run);
    else if ((event.target as Element).closest(".smdw-runs-check")) this.actions.check(row.run);
    this.#place();
    this.context.redraw();
  }

  #key(event: KeyboardEvent): boolean {
    const target = event.composedPath()[0];
    const row = this.active;
    if (target instanceof HTMLButtonElement && (event.key === "Enter" || event.key === " ")) return false;
    const page = Math.max(1, Math.floor((this.el.clientHeight - HEAD) / ROW) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 }[event.key];
    if (by !== undefined) {
      this.#active = Math.max(0, Math.min(this.#rows.length - 1, this.#active + by));
      this.#reveal();
      this.context.redraw();
      return true;
    }
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      this.el.scrollLeft += event.key === "ArrowLeft" ? -80 : 80;
      return true;
    }
    if (!row) return false;
    if (event.key === "Enter") this.actions.open(row.run);
    else if (event.key === " ") this.actions.check(row.run);
    else if (event.key === "c") this.actions.compare(row.run);
    else return false;
    return true;
  }

  #reveal() {
    const top = this.#active * ROW;
    const view = this.el.clientHeight - HEAD;
    if (top < this.el.scrollTop) this.el.scrollTop = top;
    else if (top + ROW > this.el.scrollTop + view) this.el.scrollTop = top + ROW - view;
    this.#place();
  }
}

const COLUMN_CLASS = new Set(["name", "best", "last", "curve", "steps", "findings", "state", "duration", "group"]);

/** Characters at the end of a name that stay in sight: runs often differ there. */
const TAIL = 14;

/** A name that is cut before its end where it does not fit. */
export function cutName(name: string): HTMLElement {
  const slash = name.lastIndexOf("/");
  const at = name.length - slash <= TAIL ? Math.max(0, slash) : Math.max(0, name.length - TAIL);
  // A hidden copy of the whole name, because two parts would be read as two words.
  return h(
    "span",
    { class: "smdw-runs-cut", title: name },
    h("span", { class: "smdw-sr" }, name),
    h("span", { "aria-hidden": "true" }, name.slice(0, at)),
    h("span", { "aria-hidden": "true" }, name.slice(at)),
  );
}

const value = (x: number) => (Number.isNaN(x) ? "\u2013" : num(x));

function last(row: RunRow): Node | string {
  if (!Number.isNaN(row.last)) return num(row.last);
  return row.known && row.curve.lo.length && Number.isFinite(row.notFinite)
    ? h("b", { class: "smdw-runs-nan" }, "NaN")
    : "\u2013";
}

function findingsOf(row: RunRow): Node | string {
  if (Number.isNaN(row.findings)) return "\u2013";
  if (!row.findings) return "none";
  return h(
    "b",
    { class: "smdw-runs-found", title: truncate(row.notes.join("\n"), 1000) },
    `\u25b2 ${count(row.findings)}`,
  );
}

function hparam(row: RunRow, name: string): string {
  const found = row.hparams.get(name);
  if (found === undefined || found === null) return "\u2013";
  return typeof found === "number"
    ? Number.isInteger(found) && Math.abs(found) < 1e6
      ? String(found)
      : num(found)
    : truncate(String(found), 100);
}

function duration(seconds: number): string {
  if (Number.isNaN(seconds)) return "\u2013";
  if (seconds < 60) return `${seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}
