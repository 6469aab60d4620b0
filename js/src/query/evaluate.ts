/**
 * Evaluates queries on tables: rows with names, and keys with one cell per row. It depends on neither tensors nor runs. Python has
 * the same evaluator in `smdwidgets/queries/table.py`.
 */
import { compareNatural } from "../lib/natural-order";
import type { Filter, Order, Query, Vocabulary } from "./parse";
import { folded } from "./words";

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
  let rows = selected(table, query);
  for (const stage of query.stages) {
    const cells = table.cells(stage.key, query);
    if (stage.kind === "filter") rows = rows.filter((row) => compares(cells[row], stage));
    else rows = ordered(table, rows, cells, stage).slice(0, stage.count);
  }
  return rows;
}

function selected(table: Table, { collection, matches }: Query): number[] {
  if (collection !== undefined) return [...new Set(table.members(collection))].sort((a, b) => a - b);
  const { names } = table;
  const rows: number[] = [];
  for (let row = 0; row < names.length; row++) if (!matches || matches(names[row] as string)) rows.push(row);
  return rows;
}

const isMissing = (cell: Cell): cell is undefined => cell === undefined || Number.isNaN(cell);

/** Whether a comparison is true. With a missing value it is false. */
function compares(cell: Cell, { operator, value, number }: Filter): boolean {
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
