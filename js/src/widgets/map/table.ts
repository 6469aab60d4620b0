import { codePosition, codeValue, isLog, type Survey } from "../../data/survey";
import { notFiniteLabel } from "../../data/survey-summary";
import { STAT_NAMES } from "../../draw/map";
import { defined } from "../../lib/defined";
import { h, setText } from "../../lib/dom";
import { count, num, percent } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { MapStat } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import type { MapList } from "./list";
import { shortValue, spreads } from "./text";

/** Rows of the table, so that a page with many tensors stays fast. A query shows the others. */
const MOST = 500;

interface TableRow {
  tensor: number;
  name: string;
  trouble: number;
  worst: number;
  last: number;
  fired: number;
  worstText: string;
  lastText: string;
}
type Column = "name" | "trouble" | "worst" | "last" | "fired";

/** The Run Map as a table that can be sorted. */
export class MapTable {
  readonly el: HTMLElement;
  readonly #head: Map<Column, HTMLTableCellElement>;
  readonly #body = h("tbody");
  readonly #caption = h("caption");
  /** `by` undefined: the order of the query */
  #sort: { by: Column | undefined; down: boolean } = { by: "trouble", down: false };
  #query: unknown;
  readonly #drawn = new Memo();

  constructor(
    private readonly context: Context,
    private readonly select: (tensor: number) => void,
  ) {
    const titles: [Column, string][] = [
      ["name", "Tensor"],
      ["trouble", "First trouble"],
      ["worst", "Worst"],
      ["last", "Last"],
      ["fired", "Steps with firings"],
    ];
    this.#head = new Map(
      titles.map(([by, title]) => {
        const button = h("button", { type: "button" }, title);
        button.addEventListener(
          "click",
          () => {
            // Numbers are most interesting from the top.
            const down = by === "worst" || by === "last" || by === "fired";
            this.#sort = { by, down: this.#sort.by === by ? !this.#sort.down : down };
            context.redraw();
          },
          { signal: context.signal },
        );
        return [by, h("th", { scope: "col" }, button)];
      }),
    );
    this.el = h(
      "div",
      { class: "smdw-map-table", tabindex: 0, role: "region", "aria-label": "Run map as a table", hidden: true },
      h("table", {}, this.#caption, h("thead", {}, h("tr", {}, ...this.#head.values())), this.#body),
    );
  }

  update({ traits, run, query }: Scene, list: MapList, survey: Survey | undefined): void {
    const sorted = query.query.stages.some(({ kind }) => kind === "order") && query.query;
    if (sorted !== (this.#query ?? false)) {
      this.#query = sorted;
      this.#sort = { by: sorted ? undefined : "trouble", down: false };
    }
    const { by, down } = this.#sort;
    if (
      !this.#drawn.changed([
        list.rows,
        list.version,
        survey?.version,
        traits.map_stat,
        run?.version,
        by,
        down,
        traits.tensor,
      ])
    )
      return;
    for (const [column, cell] of this.#head)
      cell.setAttribute("aria-sort", column !== by ? "none" : down ? "descending" : "ascending");
    const { tensors } = list;
    const last = run?.steps.at(-1) ?? 0;
    const rows = tensors.map((tensor) => this.#row(tensor, list, survey, traits.map_stat, last));
    const sign = down ? -1 : 1;
    const rank = new Map(list.model.order.map((tensor, i) => [tensor, i]));
    rows.sort((a, b) => {
      if (by === undefined) return 0;
      if (by === "name") return sign * ((rank.get(a.tensor) ?? 0) - (rank.get(b.tensor) ?? 0));
      const [x, y] = [a[by], b[by]];
      // Rows without a number are last in both directions.
      if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y));
      return sign * (x - y);
    });
    const all = rows.length > MOST ? `, the first ${count(MOST)} of ${count(rows.length)} tensors` : "";
    const what =
      traits.map_stat === "surprise"
        ? "Size, as spreads from its usual value"
        : `Statistic: ${STAT_NAMES[traits.map_stat]}`;
    setText(this.#caption, `${what}${all}`);
    this.#body.replaceChildren(...rows.slice(0, MOST).map((row) => this.#element(row, traits.tensor)));
  }

  #row(tensor: number, list: MapList, survey: Survey | undefined, stat: MapStat, end: number): TableRow {
    const { summary } = list;
    const { onset } = list.trouble(tensor);
    const bad = notFiniteLabel(summary.flag[tensor] ?? 0);
    const worst = summary.code[tensor] ?? 0;
    // The latest saved value: at the end of the run, or a little before it.
    const cell = lastCell(survey, tensor, end);
    return {
      tensor,
      name: list.model.names[tensor] ?? "",
      trouble: Number.isFinite(onset) ? onset : Number.NaN,
      worst: bad ? Number.POSITIVE_INFINITY : worst ? defined(summary.score[tensor]) : Number.NaN,
      last: cell ? codePosition(stat, cell) : Number.NaN,
      fired: list.badges({ tensors: [tensor] }).fired,
      worstText: [bad, worst && written(stat, worst)].filter(Boolean).join(", ") || "\u2013",
      lastText: cell ? written(stat, cell) : "\u2013",
    };
  }

  #element(row: TableRow, tensor: string): HTMLElement {
    const name = h("button", { type: "button", title: row.name }, row.name);
    name.addEventListener("click", () => this.select(row.tensor), { signal: this.context.signal });
    return h(
      "tr",
      { "aria-current": row.name === tensor ? "true" : undefined },
      h("th", { scope: "row" }, name),
      h("td", {}, Number.isNaN(row.trouble) ? "\u2013" : `step ${count(row.trouble)}`),
      h("td", { class: row.worst === Number.POSITIVE_INFINITY ? "smdw-error" : undefined }, row.worstText),
      h("td", {}, row.lastText),
      h("td", {}, row.fired ? count(row.fired) : "\u2013"),
    );
  }
}

function written(stat: MapStat, code: number): string {
  if (stat === "surprise") return spreads(codePosition(stat, code));
  if (stat === "growth") return shortValue(stat, code);
  return isLog(stat) ? num(codeValue(stat, code), 3) : percent(codeValue(stat, code));
}

function lastCell(survey: Survey | undefined, tensor: number, end: number): number {
  for (const block of [...(survey?.blocks ?? [])].reverse()) {
    const row = block.rows.get(tensor);
    if (row === undefined || (block.first + block.bins) * 2 ** block.level <= end) continue;
    const bin = block.reader(row, (survey as Survey).stat);
    for (let k = block.bins - 1; k >= 0; k--) if (bin.read(k, 0) && bin.code) return bin.code;
  }
  return 0;
}
