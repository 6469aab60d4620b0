/**
 * Evaluates queries on tables: rows with names, and keys with one cell per row. It depends on neither tensors nor runs. Python has
 * the same evaluator in `smdwidgets/queries/table.py`.
 */
import { compareNatural } from "../lib/natural-order";
import {
  type Comparison,
  type Condition,
  conditionsOf,
  type Order,
  parse,
  type Query,
  QueryError,
  type Vocabulary,
} from "./parse";
import type { Pattern } from "./pattern";
import { closest, folded, quoted } from "./words";

/** A number, a text, or undefined or NaN if the value is missing. */
export type Cell = number | string | undefined;

export interface Table extends Vocabulary {
  /** names of the rows, which are in model order */
  names: readonly string[];
  /** the rows of a collection */
  members(collection: string): Iterable<number>;
  /** the cells of a key, by row */
  cells(key: string, query: Query): ArrayLike<Cell>;
  /** whether the largest numbers of a key come first, without a direction in the query */
  isDescending(key: string): boolean;
}

/** The rows that a query leaves, in its order. */
export function evaluate(table: Table, query: Query): number[] {
  let rows = [...table.names.keys()];
  for (const stage of query.stages)
    rows =
      stage.kind === "order"
        ? ordered(table, rows, table.cells(stage.key, query), stage).slice(0, stage.count)
        : selected(table, stage, rows, query);
  return rows;
}

/** The rows for which a condition is true. */
function selected(table: Table, condition: Condition, rows: readonly number[], query: Query): number[] {
  switch (condition.kind) {
    case "names":
      return rows.filter((row) => condition.pattern.matches(table.names[row] as string));
    case "members": {
      const members = new Set(table.members(condition.collection));
      return rows.filter((row) => members.has(row));
    }
    case "comparison": {
      const cells = table.cells(condition.key, query);
      return rows.filter((row) => compares(cells[row], condition));
    }
    case "and":
      return condition.parts.reduce((left, part) => selected(table, part, left, query), [...rows]);
    case "not": {
      const leftOut = new Set(selected(table, condition.parts[0] as Condition, rows, query));
      return rows.filter((row) => !leftOut.has(row));
    }
    case "or": {
      const matches = new Set<number>();
      for (const part of condition.parts) {
        const rest = rows.filter((row) => !matches.has(row));
        for (const row of selected(table, part, rest, query)) matches.add(row);
      }
      return rows.filter((row) => matches.has(row));
    }
  }
}

/** Where the parts of a name end, and parts that need no quotes in a query. */
const SEPARATORS = /[./]/;
const PLAIN = /^[A-Za-z0-9_:.-]+(\/[A-Za-z0-9_:.-]+)*$/;

/** Parses a query of a table with these names. Throws QueryError, also if a pattern is found in no name. */
export function parseFor(text: string, vocabulary: Vocabulary, names: readonly string[]): Query {
  const query = parse(text, vocabulary);
  if (!names.length) return query;
  const letters = [...text];
  const isFound = (pattern: Pattern) => names.some((name) => pattern.matches(name));
  for (const part of conditionsOf(query)) {
    if (part.kind !== "names" && !(part.kind === "comparison" && part.key === "name")) continue;
    const { start, end, pattern } = part;
    if (pattern) {
      if (!isFound(pattern)) throw noName(names, pattern, letters.slice(start, end).join(""), start);
    } else if (part.kind === "comparison" && part.operator === "=" && part.value && part.number === undefined) {
      const expected = folded(part.value);
      if (names.some((name) => folded(name) === expected)) continue;
      const suggestion = closest(part.value, suggestible(names));
      throw new QueryError(`No name is ${quoted(part.value)}.`, start, end, suggestion);
    }
  }
  return query;
}

/** The error of a pattern that is found in no name. */
function noName(names: readonly string[], { parts }: Pattern, source: string, start: number): QueryError {
  const end = start + [...source].length;
  const [part] = parts ?? [];
  if (part === undefined || parts?.length !== 1)
    return new QueryError(`No name matches ${quoted(source)}.`, start, end);
  const first = source.split(" ", 1)[0] as string;
  const stage = first === source ? undefined : closest(first, ["top", "sort"]);
  if (stage) return new QueryError(`Unknown word ${quoted(first)}.`, start, start + [...first].length, stage);
  return new QueryError(`No name contains ${quoted(source)}.`, start, end, closest(part, suggestible(names)));
}

/** The parts of names between dots and slashes, and names, that need no quotes in a query. */
function suggestible(names: readonly string[]): string[] {
  const parts = names.flatMap((name) => name.split(SEPARATORS).filter((part) => part.length < name.length));
  return [...new Set([...parts, ...names])].filter((part) => PLAIN.test(part));
}

const isMissing = (cell: Cell): cell is undefined => cell === undefined || Number.isNaN(cell);

/** Whether a comparison is true. With a missing value it is false. */
function compares(cell: Cell, { operator, value, number, pattern }: Comparison): boolean {
  if (pattern) return typeof cell === "string" && pattern.matches(cell);
  if (number !== undefined && Number.isNaN(number)) return isMissing(cell) === (operator === "=");
  if (isMissing(cell)) return false;
  if (typeof cell === "string") {
    const equal = folded(cell) === folded(value);
    return operator === "=" ? equal : operator === "!=" && !equal;
  }
  if (number === undefined) return operator === "!=";
  switch (operator) {
    case "<":
      return cell < number;
    case "<=":
      return cell <= number;
    case ">":
      return cell > number;
    case ">=":
      return cell >= number;
    case "=":
      return cell === number;
    default:
      return cell !== number;
  }
}

/** Numbers, texts, missing values; ties in model order. */
function ordered(table: Table, rows: readonly number[], cells: ArrayLike<Cell>, { key, descending }: Order): number[] {
  const numbers: number[] = [];
  const texts: number[] = [];
  const missing: number[] = [];
  for (const row of [...rows].sort((a, b) => a - b)) {
    const cell = cells[row];
    (isMissing(cell) ? missing : typeof cell === "string" ? texts : numbers).push(row);
  }
  const sign = (descending ?? table.isDescending(key)) ? -1 : 1;
  numbers.sort((a, b) => {
    const [x, y] = [cells[a] as number, cells[b] as number];
    return x < y ? -sign : x > y ? sign : 0;
  });
  const textSign = descending ? -1 : 1;
  texts.sort((a, b) => textSign * compareNatural(cells[a] as string, cells[b] as string));
  return [...numbers, ...texts, ...missing];
}

/** A table with one cell per row and key, such as a table of runs. */
export class KeyTable implements Table {
  readonly keys: readonly string[];
  readonly statistics: readonly string[] = [];
  readonly views: readonly string[] = [];
  readonly hasSteps = false;
  readonly collections: readonly string[] = [];
  readonly #ascending: ReadonlySet<string>;

  constructor(
    readonly names: readonly string[],
    /** null stands for a missing value, too; true is the text "true" */
    private readonly cellsOf: ReadonlyMap<string, readonly (Cell | boolean | null)[]>,
    /** keys whose smallest numbers come first, such as losses */
    ascending: Iterable<string> = [],
  ) {
    this.keys = [...new Set(["name", ...cellsOf.keys()])];
    this.#ascending = new Set(ascending);
  }

  isText(key: string): boolean {
    const cells = Array.from(this.cells(key));
    return cells.some((cell) => typeof cell === "string") || cells.every(isMissing);
  }

  members(): Iterable<number> {
    return [];
  }

  cells(key: string): ArrayLike<Cell> {
    return (
      this.cellsOf.get(key)?.map((cell) => (typeof cell === "boolean" ? String(cell) : (cell ?? undefined))) ??
      this.names
    );
  }

  isDescending(key: string): boolean {
    return !this.#ascending.has(key);
  }
}
