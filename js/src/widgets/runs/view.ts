/** The table of runs: a query line, the rows, and the curves of the checked ones. */

import type { RunRow, Runs } from "../../data/runs";
import { series } from "../../lib/colour";
import { h, Select, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { RunsSort } from "../../protocol/types";
import type { Subject } from "../../query/complete";
import { QueryError } from "../../query/parse";
import type { Scene } from "../../session/scene";
import type { Context, Part } from "../common/part";
import { QueryBox } from "../common/query-box";
import { lastParts } from "../status/run-line";
import { MOST_LINES, RunsChart } from "./chart";
import { RunsGrid } from "./grid";
import { type RunsTable, select, subjectOf, tableOf } from "./order";

/** Runs that are drawn before any is checked. */
const FIRST = 5;
const HEIGHT = 600;

export class RunsView implements Part {
  readonly el: HTMLElement;
  readonly #grid: RunsGrid;
  readonly #chart: RunsChart;
  readonly #root = h("span", { class: "smdw-run-name" });
  readonly #facts = h("span", { class: "smdw-quiet smdw-runs-facts", role: "status" });
  readonly #bar = h("progress", { class: "smdw-runs-progress", "aria-label": "Progress" });
  readonly #work: HTMLButtonElement;
  readonly #tag: Select;
  readonly #query: QueryBox;
  readonly #uncheck: HTMLButtonElement;
  readonly #failure = h("span", { class: "smdw-note smdw-error", role: "status" });
  /** the rows of the last query without an error */
  #rows: readonly RunRow[] = [];
  readonly #selected = new Memo();
  #error: QueryError | undefined;
  /** the rows as queries see them, of one version */
  #made: { version: number; table: RunsTable; subject: Subject } | undefined;
  /** why a run is not opened */
  #message = "";
  #best: { version: number; rows: readonly RunRow[] } = { version: -1, rows: [] };
  readonly #colours = new Map<number, number>();

  constructor(private readonly context: Context) {
    const { session, signal } = context;
    const { state } = session;
    this.#grid = new RunsGrid(context, {
      open: (run) => this.#open(run),
      compare: (run) => state.set({ compare: state.get("compare").run === run ? {} : { run } }),
      check: (run) => this.#check(run),
    });
    this.#chart = new RunsChart(context);
    this.#tag = new Select("Curve", (tag) => this.#choose(tag), signal);
    this.#work = textButton("Diagnose", () => this.#press(), signal);
    this.#uncheck = textButton("Uncheck all", () => state.set({ checked: [] }), signal);
    this.#query = new QueryBox(
      context,
      "Query",
      "Query: lr < 0.01 | state = ended | top 20 by loss",
      (runs_query) => state.set({ runs_query }),
      () => this.#grid.focus(),
    );
    this.el = h(
      "div",
      { class: "smdw-explorer smdw-runs", tabindex: -1 },
      h(
        "div",
        { class: "smdw-run" },
        this.#root,
        this.#facts,
        this.#bar,
        this.#failure,
        h("span", { class: "smdw-space" }),
        this.#work,
      ),
      h(
        "div",
        { class: "smdw-toolbar smdw-runs-bar" },
        this.#query.el,
        h("span", { class: "smdw-space" }),
        this.#uncheck,
        this.#tag.el,
      ),
      this.#grid.el,
      this.#chart.el,
      h(
        "p",
        { class: "smdw-runs-keys smdw-quiet" },
        ...[
          ["Enter", "open map"],
          ["Space", "check"],
          ["c", "set B"],
          ["/", "query"],
        ].flatMap(([key, what]) => [h("kbd", {}, key), `${what}`]),
      ),
    );
    context.keys.on(this.el, (event) => this.#keyed(event));
  }

  update(scene: Scene): void {
    const { session } = this.context;
    const { runs } = session.store;
    const rows = session.store.table;
    const { traits } = scene;
    const { head } = rows;
    const height = traits.height > 0 ? Math.max(420, traits.height) : HEIGHT;
    this.el.style.setProperty("--smdw-height", `${height}px`);
    const subject = this.#select(rows, traits.runs_query, traits.runs_sort);
    setText(this.#root, head ? truncate(lastParts(head.root), 80) : "");
    this.#root.title = truncate(head?.root ?? "", 500);
    setText(this.#facts, facts(rows, this.#rows.length));
    const working = head?.doing === "reading" || head?.doing === "diagnosing";
    setVisible(this.#bar, working);
    if (working && head) setAttributes(this.#bar, { max: head.of, value: head.done });
    setText(this.#work, working ? "Stop" : head?.doing === "stopped" ? "Read the rest" : "Diagnose");
    const title =
      working || head?.doing === "stopped"
        ? undefined
        : `Diagnose ${plural(this.#rows.length, "run")} in the background`;
    setAttributes(this.#work, { title, disabled: session.exported || (!working && this.#rows.length === 0) });
    setVisible(this.#tag.el, rows.tags.length > 1);
    this.#tag.update(
      rows.tags.map((tag) => [tag, tag] as const),
      head?.tag ?? "",
    );
    if (session.exported) setAttributes(this.#tag.el, { disabled: true, title: "Not in this file" });
    this.#query.update({ ...subject, text: traits.runs_query, error: this.#error });
    const failed =
      [...session.connection.requests].find(([slot, status]) => slot.startsWith("open/") && status.error)?.[1].error ??
      "";
    const hello = session.connection.requests.get("hello")?.error ?? "";
    setText(this.#failure, truncate(failed || hello || session.store.packetError || this.#message, 300));
    const checked = this.#checked(rows, scene);
    const colours = this.#colour(checked, runs.size);
    setVisible(this.#uncheck, checked.length > 0);
    this.#grid.update(scene, rows, this.#rows, colours, emptyText(rows));
    this.#chart.update(scene, rows, checked, colours);
  }

  focus(): void {
    this.#grid.focus();
  }

  #table(runs: Runs): { table: RunsTable; subject: Subject } {
    if (this.#made?.version !== runs.version) {
      const table = tableOf(runs);
      this.#made = { version: runs.version, table, subject: subjectOf(table) };
    }
    return this.#made;
  }

  /** Selects the rows, and returns what a query can have. */
  #select(rows: Runs, query: string, sort: readonly RunsSort[]): Subject {
    const { table, subject } = this.#table(rows);
    if (!this.#selected.changed([rows.version, query, sort])) return subject;
    this.#message = "";
    this.#error = undefined;
    try {
      this.#rows = select(table, query, sort);
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      // The last good result stays, with new data of its rows.
      this.#error = error;
      this.#rows = this.#rows.flatMap((row) => rows.rows.get(row.run) ?? []);
    }
    return subject;
  }

  /** Checked runs in the order of the rows; before any is checked, the best ones. */
  #checked(runs: Runs, { traits }: Scene): RunRow[] {
    if (traits.checked === null) {
      if (this.#best.version !== runs.version) {
        const best = select(this.#table(runs).table, "", []).filter(
          (row) => row.curve.lo.length && !Number.isNaN(row.best),
        );
        this.#best = { version: runs.version, rows: best.slice(0, FIRST) };
      }
      return [...this.#best.rows];
    }
    const wanted = new Set(traits.checked.map(({ run }) => run));
    const order = new Map(this.#rows.map((row, i) => [row.run, i]));
    const found = [...wanted].flatMap((run) => runs.rows.get(run) ?? []);
    return found.sort((a, b) => (order.get(a.run) ?? 1e9) - (order.get(b.run) ?? 1e9));
  }

  /** Gives each checked run a colour, which it keeps while it is checked. */
  #colour(checked: readonly RunRow[], opened: number): Map<number, string> {
    const now = new Set(checked.map((row) => row.run));
    for (const run of this.#colours.keys()) if (!now.has(run)) this.#colours.delete(run);
    const { dark, accent } = this.context.theme();
    const { store } = this.context.session;
    for (const { run } of checked) {
      if (this.#colours.has(run)) continue;
      const taken = new Set(this.#colours.values());
      const fixed = opened ? store.runs.get(run)?.head.colour : undefined;
      const free =
        fixed !== undefined && !taken.has(fixed) ? fixed : [0, 1, 2, 3, 4, 5, 6].find((each) => !taken.has(each));
      this.#colours.set(run, free ?? 7);
    }
    const grouped = checked.length > MOST_LINES;
    return new Map(checked.map(({ run }) => [run, grouped ? accent : series(this.#colours.get(run) ?? 0, dark)]));
  }

  #check(run: number) {
    const { session } = this.context;
    const now = this.#checked(session.store.table, session.scene()).map((row) => row.run);
    const next = now.includes(run) ? now.filter((each) => each !== run) : [...now, run];
    session.state.set({ checked: next.map((each) => ({ run: each })) });
  }

  #open(run: number) {
    const { session } = this.context;
    if (session.exported && !session.store.runs.has(run)) {
      this.#message = "The map of this run is not in this file.";
      return this.context.redraw();
    }
    session.connection.cancel(`open/${run}`);
    session.state.set({ run, table: false });
  }

  #choose(tag: string) {
    const { session } = this.context;
    session.state.set({ runs_tag: tag });
    void session.connection.request("runs", { what: "runs", tag });
  }

  #press() {
    const { session } = this.context;
    const doing = session.store.table.head?.doing;
    if (doing === "reading" || doing === "diagnosing")
      void session.connection.command({ what: "runs_work", do: "stop" });
    else if (doing === "stopped") void session.connection.command({ what: "runs_work", do: "read" });
    else void session.connection.command({ what: "runs_work", do: "diagnose", runs: this.#rows.map((row) => row.run) });
  }

  #keyed(event: KeyboardEvent): boolean {
    if (event.key !== "/" || event.composedPath()[0] === this.#query.input) return false;
    this.#query.focus();
    return true;
  }
}

function facts(runs: Runs, shown: number): string {
  const { head } = runs;
  if (!head) return "";
  const all = plural(head.total, "run");
  const rows = shown === head.total ? all : `${count(shown)} of ${all}`;
  const busy = head.doing === "reading" || head.doing === "diagnosing";
  const work = busy
    ? `${head.doing} ${count(head.done)} of ${count(head.of)}`
    : head.doing === "stopped"
      ? "reading stopped"
      : "";
  return [rows, work].filter(Boolean).join(" \u00b7 ");
}

function emptyText(runs: Runs): string {
  if (!runs.head) return "Waiting for the kernel";
  return runs.head.total === 0 ? `No runs in ${truncate(runs.head.root, 200)}` : "No run matches the query";
}
