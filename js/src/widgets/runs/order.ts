/** Filters and sorts the rows of a table of runs. */

import type { RunRow, Runs } from "../../data/runs";
import { compareNatural } from "../../lib/natural-order";
import type { RunsSort } from "../../protocol/types";
import type { Subject } from "../../query/complete";
import { type Cell, evaluate, KeyTable, parseFor } from "../../query/evaluate";

type Value = Cell | boolean | null;

/** Columns that every table has; hyperparameters follow. */
export const COLUMNS = ["name", "best", "last", "steps", "findings", "state", "duration", "group"] as const;

const NOTES: Record<(typeof COLUMNS)[number], string> = {
  name: "name, in natural order",
  best: "best value of the curve",
  last: "last value of the curve",
  steps: "number of steps",
  findings: "number of findings",
  state: "running, ended, \u2026",
  duration: "seconds",
  group: "equal hyperparameters",
};

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

/** Runs by number, and the table of them that queries see: "loss" is the best value of the curve. */
export interface RunsTable {
  runs: Runs;
  rows: readonly RunRow[];
  keys: KeyTable;
}

export function tableOf(runs: Runs): RunsTable {
  const rows = [...runs.rows.values()].sort((a, b) => a.run - b.run);
  const columns = new Map<string, Value[]>();
  for (const by of COLUMNS)
    columns.set(
      by,
      rows.map((row) => cellOf(runs, row, by)),
    );
  columns.delete("name");
  const best = columns.get("best") ?? [];
  for (const name of curveNames(runs)) if (!columns.has(name) && !runs.hparams.includes(name)) columns.set(name, best);
  for (const by of runs.hparams) {
    const values = rows.map((row) => cellOf(runs, row, `hparams.${by}`));
    if (!columns.has(by)) columns.set(by, values);
    columns.set(`hparams.${by}`, values);
  }
  const ascending = [...columns.keys()].filter((by) => columns.get(by) === best || by === "last");
  const names = rows.map((row) => row.name);
  return { runs, rows, keys: new KeyTable(names, columns, runs.head?.high ? [] : ascending) };
}

/** Names of the best value of the curve. */
function curveNames(runs: Runs): Set<string> {
  const { tag = "" } = runs.head ?? {};
  return new Set(["loss", tag, tag.split("/").at(-1) ?? ""].filter(Boolean));
}

/** What can be typed in a query of the table. */
export function subjectOf({ runs, keys }: RunsTable): Subject {
  const curves = curveNames(runs);
  const hparams = new Set(runs.hparams);
  const note = (key: string) =>
    Object.hasOwn(NOTES, key)
      ? NOTES[key as keyof typeof NOTES]
      : hparams.has(key)
        ? "hyperparameter"
        : curves.has(key)
          ? NOTES.best
          : "";
  // A hyperparameter is listed once.
  const listed = keys.keys.filter((key) => !(key.startsWith("hparams.") && hparams.has(key.slice(8))));
  return {
    words: { ...keys, keys: listed, isText: (key) => keys.isText(key) },
    names: keys.names,
    note,
    values: (key) => {
      const texts = Array.from(keys.cells(key)).filter((cell) => typeof cell === "string");
      return [...new Set(texts)].sort(compareNatural);
    },
  };
}

/** The rows that a query leaves, in the order of the keys, of the query, or the best first. Throws a QueryError. */
export function select(table: RunsTable, text: string, sort: readonly RunsSort[]): RunRow[] {
  const { runs } = table;
  let rows = [...table.rows];
  let ordered = false;
  if (text.trim()) {
    const query = parseFor(text, table.keys, table.keys.names);
    ordered = query.stages.some((stage) => stage.kind === "order");
    rows = evaluate(table.keys, query).map((at) => rows[at] as RunRow);
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
