/** The rows of a table of runs, and their columns. */

import type { Blocks } from "../protocol/packet";
import type { ParamValue, RunNumbers, RunsHead } from "../protocol/types";
import { NO_CURVE, type RunCurve } from "./run-curves";

export interface RunRow {
  run: number;
  name: string;
  state: string;
  /** NaN: none */
  best: number;
  last: number;
  notFinite: number;
  steps: number;
  duration: number;
  findings: number;
  /** the curve has a last value, which may be NaN */
  known: boolean;
  hparams: ReadonlyMap<string, ParamValue>;
  /** why the run could not be read, or titles of its findings */
  notes: readonly string[];
  curve: RunCurve;
}

type Value = number | string | null | undefined;

/** One item of a column stands for all if they are equal. */
const item = <T>(values: readonly T[], i: number): T | undefined => (values.length === 1 ? values[0] : values[i]);

/** A number of a packet; NaN and infinities are strings. */
function number(values: RunNumbers, i: number): number {
  const value = item(values, i);
  if (typeof value !== "string") return value ?? Number.NaN;
  return value === "inf" ? Number.POSITIVE_INFINITY : value === "-inf" ? Number.NEGATIVE_INFINITY : Number.NaN;
}

/** Values of a column, in the order of the rows. */
export interface Column {
  title: string;
  /** whether small numbers are more interesting */
  numeric: boolean;
  value(row: RunRow): Value;
}

export class Runs {
  readonly rows = new Map<number, RunRow>();
  head: RunsHead | undefined;
  tags: readonly string[] = [];
  version = 0;
  #made = -1;
  #hparams: string[] = [];
  #differing: string[] = [];
  #groups = new Map<number, string>();

  add(head: RunsHead, arrays: Blocks): void {
    if (!head.append) this.rows.clear();
    this.head = head;
    this.tags = head.tags ?? this.tags;
    const [level, first, ends, lo, hi] = ["level", "first", "ends", "lo", "hi"].map((name) => arrays[name]?.data);
    const bins = arrays.lo?.shape[1] ?? 0;
    const hparams = Object.entries(head.hparams);
    head.numbers.forEach((run, i) => {
      const codes = (of: ArrayLike<number> | undefined) =>
        of instanceof Uint16Array ? of.subarray(i * bins, (i + 1) * bins) : NO_CURVE.lo;
      const given = hparams.flatMap(([name, values]): [string, ParamValue][] => {
        const value = item(values, i);
        return value === null || value === undefined ? [] : [[name, value]];
      });
      this.rows.set(run, {
        run,
        name: head.name[i] ?? "",
        state: item(head.state, i) ?? "",
        best: number(head.best, i),
        last: number(head.last, i),
        known: item(head.last, i) !== null,
        notFinite: number(head.not_finite, i),
        steps: number(head.steps, i),
        duration: number(head.duration, i),
        findings: number(head.findings, i),
        hparams: new Map(given),
        notes: head.notes[String(run)] ?? [],
        curve: {
          level: level?.[i] ?? 0,
          first: first?.[i] ?? 0,
          low: ends?.[2 * i] ?? 0,
          high: ends?.[2 * i + 1] ?? 0,
          lo: codes(lo),
          hi: codes(hi),
        },
      });
    });
    this.version++;
  }

  /** Names of hyperparameters, those that differ first. */
  get hparams(): readonly string[] {
    this.#derive();
    return this.#hparams;
  }

  /** Hyperparameters that differ between runs. */
  get differing(): readonly string[] {
    this.#derive();
    return this.#differing;
  }

  /** The hyperparameters of a run that differ between runs, but the seed; runs without any are grouped by name. */
  group(run: number): string {
    this.#derive();
    return this.#groups.get(run) ?? "";
  }

  #derive() {
    if (this.#made === this.version) return;
    this.#made = this.version;
    const values = new Map<string, Set<string>>();
    const counts = new Map<string, number>();
    for (const row of this.rows.values())
      for (const [name, value] of row.hparams) {
        values.set(name, (values.get(name) ?? new Set()).add(JSON.stringify(value)));
        counts.set(name, (counts.get(name) ?? 0) + 1);
      }
    // Runs without any hyperparameters do not make all of them differ.
    const described = [...this.rows.values()].filter((row) => row.hparams.size > 0).length;
    const differs = (name: string) => (values.get(name)?.size ?? 0) > 1 || (counts.get(name) ?? 0) < described;
    const names = [...values.keys()].sort((a, b) => Number(isSeed(a)) - Number(isSeed(b)));
    this.#differing = names.filter(differs);
    this.#hparams = [...this.#differing, ...names.filter((name) => !differs(name))];
    const keys = this.#differing.filter((name) => !isSeed(name));
    this.#groups = new Map();
    for (const row of this.rows.values()) this.#groups.set(row.run, groupOf(row, keys));
  }
}

export const isSeed = (name: string): boolean => /(^|[._/])(random_?)?seed$/i.test(name);

function groupOf(row: RunRow, keys: readonly string[]): string {
  if (keys.length) return keys.map((name) => String(row.hparams.get(name) ?? "\u2013")).join(" \u00b7 ");
  return row.name.replace(/seed[_=-]?\d+/gi, "seed *");
}
