/** Evaluates queries on the tables of tests/vectors/query.json. scripts/query.mjs runs it without a browser. */
import { type Cell, evaluate, KeyTable, parseFor, type Table } from "../src/query/evaluate";
import { conditionsOf, type Query, QueryError, type Vocabulary } from "../src/query/parse";
import { tensorWords } from "../src/query/tensors";

/** null is NaN, or a missing value. */
type Json = number | string | boolean | null | { number: "inf" | "-inf" };
export interface Tables {
  tensors: {
    names: string[];
    collections: Record<string, number[]>;
    statistics: Record<string, Record<string, Json[]>>;
  };
  runs: { names: string[]; keys: Record<string, Json[]>; ascending: string[] };
}
export type Answer =
  | {
      rows: string[];
      columns: string[];
      values: Json[][];
      statistic?: string;
      steps?: (number | null)[];
      view?: string;
    }
  | { error: { start: number; end: number; message: string; suggestion: string | null } };

const fromJson = (value: Json): Exclude<Json, object> =>
  value !== null && typeof value === "object"
    ? value.number === "inf"
      ? Number.POSITIVE_INFINITY
      : Number.NEGATIVE_INFINITY
    : value;
const toJson = (cell: Cell): Json => {
  if (cell === undefined || Number.isNaN(cell)) return null;
  if (typeof cell === "string" || Number.isFinite(cell)) return cell;
  return { number: cell > 0 ? "inf" : "-inf" };
};

/** Tensors with their statistics at every step: the page has those of bins. */
class ExactTable implements Table {
  readonly names: readonly string[];
  readonly #words: Vocabulary;

  constructor(private readonly of: Tables["tensors"]) {
    this.names = of.names;
    this.#words = tensorWords(Object.keys(of.collections));
  }
  get keys() {
    return this.#words.keys;
  }
  get statistics() {
    return this.#words.statistics;
  }
  get views() {
    return this.#words.views;
  }
  get hasSteps() {
    return true;
  }
  get isText() {
    return this.#words.isText;
  }
  get collections() {
    return this.#words.collections;
  }
  members(collection: string): number[] {
    return this.of.collections[collection] ?? [];
  }
  isDescending(): boolean {
    return true;
  }

  cells(key: string, query: Query): Cell[] {
    return this.names.map((name) => (key === "name" ? name : this.#cell(key, name, query)));
  }

  #values(statistic: string, name: string, { steps }: Query): number[] {
    const found = this.of.statistics[name];
    const all = (found?.[statistic] ?? found?.step?.map(() => null) ?? []).map(
      (value) => fromJson(value) ?? Number.NaN,
    );
    const { from, to } = { from: steps?.from ?? 0, to: steps?.to ?? Number.POSITIVE_INFINITY };
    const inside = all.filter((_, i) => (found?.step?.[i] as number) >= from && (found?.step?.[i] as number) <= to);
    return inside.map((value) => (statistic === "surprise" ? Math.abs(value as number) : (value as number)));
  }

  #cell(key: string, name: string, query: Query): Cell {
    if (key === "change") return change(this.#values("size", name, query)) ?? change(this.#values("l2", name, query));
    if (key !== "first" && key !== "last" && key !== "worst") {
      const known = this.#values(key, name, query).filter((value) => !Number.isNaN(value));
      return known.length ? Math[key === "min" ? "min" : "max"](...known) : undefined;
    }
    const statistic = query.statistic ?? "size";
    const values = this.#values(statistic, name, query);
    return key === "worst" ? worst(statistic, values) : values.at(key === "first" ? 0 : -1);
  }
}

function change(values: readonly number[]): Cell {
  const known = values.filter((value) => !Number.isNaN(value));
  const [low, high] = [Math.min(...known), Math.max(...known)];
  return known.length ? (low === high ? 1 : high / low) : undefined;
}

function worst(statistic: string, values: readonly number[]): Cell {
  const ordered = values.filter((value) => !Number.isNaN(value)).sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
  const [low, high] = [ordered[0] as number, ordered.at(-1) as number];
  const middle = ordered[(ordered.length - 1) >> 1] as number;
  if (!ordered.length || ["zeros", "nonfinite", "surprise"].includes(statistic)) return high;
  const ratio = (a: number, b: number) => (a === b ? 1 : a / b);
  const isRatio = ["size", "l2", "update", "growth"].includes(statistic);
  const [above, below] = isRatio ? [ratio(high, middle), ratio(middle, low)] : [high - middle, middle - low];
  return above >= below ? high : low;
}

export function tableOf(tables: Tables, name: keyof Tables): Table & { columns: readonly string[] } {
  if (name === "tensors")
    return Object.assign(new ExactTable(tables.tensors), { columns: ["name", "first", "last", "worst", "change"] });
  const { names, keys, ascending } = tables.runs;
  const values = Object.entries(keys).map(([key, list]) => [key, list.map(fromJson)] as const);
  return Object.assign(new KeyTable(names, new Map(values), ascending), { columns: ["name"] });
}

/** What the vectors say of a query. */
export function answer(table: Table & { columns: readonly string[] }, text: string): Answer {
  try {
    const query = parseFor(text, table, table.names);
    const rows = evaluate(table, query);
    const columns = [
      ...new Set([...table.columns, ...conditionsOf(query).flatMap((part) => ("key" in part ? [part.key] : []))]),
    ];
    const cells = columns.slice(1).map((key) => table.cells(key, query));
    return {
      rows: rows.map((row) => table.names[row] as string),
      columns,
      values: rows.map((row) => cells.map((column) => toJson(column[row]))),
      ...(query.statistic === undefined ? {} : { statistic: query.statistic }),
      ...(query.steps ? { steps: [query.steps.from, query.steps.to ?? null] } : {}),
      ...(query.view === undefined ? {} : { view: query.view }),
    };
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    const { start, end, message, suggestion = null } = error;
    return { error: { start, end, message, suggestion } };
  }
}
