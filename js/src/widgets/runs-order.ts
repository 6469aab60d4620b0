/** Filters and sorts the rows of a table of runs. */

import type { RunRow, Runs } from "../data/runs";
import { compareNatural } from "../lib/natural-order";
import type { RunsSort } from "../protocol/types";
import { type Cell, evaluate, KeyTable } from "../query/evaluate";
import { parse, type Vocabulary } from "../query/parse";

type Value = Cell | boolean | null;

/** Columns that every table has; hyperparameters follow. */
export const COLUMNS = ["name", "best", "last", "steps", "findings", "state", "duration", "group"] as const;

/** The value of a run in a column. */
export function cellOf(runs: Runs, row: RunRow, by: string): Value {
  switch (by) {
    case "name":
    case "best":
    case "last":
    case "steps":
    case "findings":
    case "state":
    case "duration":
      return row[by];
    case "given":
      return row.run;
    case "group":
      return runs.group(row.run);
  }
  const value = row.hparams.get(by.replace(/^hparams\./, ""));
  return Array.isArray(value) ? value.join() : value;
}

/** The direction of a column that is sorted first. */
export const firstDown = (runs: Runs, by: string): boolean =>
  by === "best" || by === "last" ? Boolean(runs.head?.high) : by === "findings" || by === "duration";

/** The table as queries see it: "loss" is the best value of the curve. */
export function keyTable(runs: Runs, rows: readonly RunRow[]): KeyTable {
  const { tag = "" } = runs.head ?? {};
  const columns = new Map<string, Value[]>();
  for (const by of [...COLUMNS, ...runs.hparams])
    columns.set(
      by,
      rows.map((row) => cellOf(runs, row, by)),
    );
  for (const by of runs.hparams) columns.set(`hparams.${by}`, columns.get(by) ?? []);
  columns.delete("name");
  const best = columns.get("best") ?? [];
  for (const name of ["loss", tag, tag.split("/").at(-1) ?? ""])
    if (name && !columns.has(name)) columns.set(name, best);
  const ascending = [...columns.keys()].filter((by) => columns.get(by) === best || by === "last");
  return new KeyTable(
    rows.map((row) => row.name),
    columns,
    runs.head?.high ? [] : ascending,
  );
}

/** The rows that a query leaves, in the order of the keys, of the query, or the best first. Throws a QueryError. */
export function select(runs: Runs, text: string, sort: readonly RunsSort[]): RunRow[] {
  let rows = [...runs.rows.values()].sort((a, b) => a.run - b.run);
  let ordered = false;
  if (text.trim()) {
    const table = keyTable(runs, rows);
    const query = parse(text, table as Vocabulary);
    ordered = query.stages.some((stage) => stage.kind !== "filter");
    rows = evaluate(table, query).map((at) => rows[at] as RunRow);
  }
  const best = { by: "best", down: Boolean(runs.head?.high) };
  const keys = ordered ? sort : [...sort, best];
  const values = keys.map(({ by }) => new Map(rows.map((row) => [row.run, cellOf(runs, row, by)])));
  const compare = (a: RunRow, b: RunRow) => {
    for (const [i, { down }] of keys.entries()) {
      const order = compareValues(values[i]?.get(a.run), values[i]?.get(b.run), Boolean(down));
      if (order) return order;
    }
    return 0;
  };
  return rows.sort(compare);
}

const isMissing = (value: Value) => value === null || value === undefined || Number.isNaN(value);

/** Numbers, then texts; missing values last in both directions. */
function compareValues(a: Value, b: Value, down: boolean): number {
  const [missing, other] = [isMissing(a), isMissing(b)];
  if (missing || other) return Number(missing) - Number(other);
  const sign = down ? -1 : 1;
  if (typeof a === "number" && typeof b === "number") return a < b ? -sign : a > b ? sign : 0;
  if (typeof a === "number" || typeof b === "number") return typeof a === "number" ? -1 : 1;
  return sign * compareNatural(String(a), String(b));
}
