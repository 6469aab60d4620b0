/** The rows of the Run Map: tensors in model order, grouped by module, as the model's author would list them. */

import { path } from "./name-path";
import { compareNatural } from "./natural-order";
import { type KindLetter, kindLetters, stem } from "./tensor-names";

const KINDS: readonly KindLetter[] = ["W", "G", "A", "S"];

export interface MapModule {
  id: string;
  /** indices of tensors, in model order */
  tensors: number[];
}

export interface MapRow {
  /** unique among all rows, and stable */
  key: string;
  /** of a module: its id; of a tensor: its name */
  id: string;
  label: string;
  letter: KindLetter | "";
  level: 0 | 1;
  /** of a module: whether its tensors have separate rows */
  open?: boolean;
  tensors: readonly number[];
}

/** A module with more tensors is split at the next number in their names: an expert, a block of a stage. */
const LARGE = 64;
const SCALAR_MODULE = "scalars";

const isNumber = (part: string) => /^\d+$/.test(part);

/** The index after the numbered part of a path that is number `nth`; that of its last part if it has fewer numbers. */
function moduleEnd(parts: readonly string[], nth: number): number {
  let seen = 0;
  for (let i = 0; i < parts.length - 1; i++) if (isNumber(parts[i] as string) && ++seen === nth) return i + 1;
  return seen ? moduleEnd(parts, seen) : parts.length - 1;
}

/** The first parts of a name, with its own separators. */
function head(name: string, parts: readonly string[], end: number): string {
  let at = 0;
  for (const part of parts.slice(0, end)) at = name.indexOf(part, at) + part.length;
  return name.slice(0, at);
}

export class MapModel {
  readonly letters: KindLetter[];
  /** in model order; a tensor without a module is a separate module with its name */
  readonly modules: MapModule[];
  /** all tensors in model order */
  readonly order: number[];
  readonly #labels: string[];
  readonly #moduleOf: MapModule[] = [];
  /** the start that most names share, which is left out of the labels of rows without a module above them */
  readonly #common: string;

  constructor(
    readonly names: readonly string[],
    collections: ReadonlyMap<string, readonly number[]>,
  ) {
    this.letters = kindLetters(names, collections);
    const paths = names.map((name) => path(stem(name)));
    const moduleOf = (index: number, nth: number) => {
      if (this.letters[index] === "S") return SCALAR_MODULE;
      const parts = paths[index] as string[];
      const name = stem(names[index] as string);
      return head(name, parts, moduleEnd(parts, nth)) || name;
    };
    const groups = new Map<string, number[]>();
    const put = (id: string, index: number) => {
      const list = groups.get(id);
      if (list) list.push(index);
      else groups.set(id, [index]);
    };
    names.forEach((_, index) => {
      put(moduleOf(index, 1), index);
    });
    for (const [id, list] of [...groups])
      if (list.length > LARGE && id !== SCALAR_MODULE) {
        groups.delete(id);
        for (const index of list) put(moduleOf(index, 2), index);
      }
    const inModule = (a: number, b: number) =>
      KINDS.indexOf(this.letters[a] as KindLetter) - KINDS.indexOf(this.letters[b] as KindLetter) ||
      compareNatural(stem(names[a] as string), stem(names[b] as string));
    this.modules = [...groups].map(([id, tensors]) => ({ id, tensors: tensors.sort(inModule) }));
    // Scalars have no place in the model: they are its last rows.
    const last = (module: MapModule) => (module.id === SCALAR_MODULE ? 1 : 0);
    this.#common = commonStart(
      this.modules.map(({ id }) => id),
      (id) => path(id),
    );
    this.modules.sort((a, b) => last(a) - last(b) || compareNatural(this.#rest(a.id), this.#rest(b.id)));
    for (const module of this.modules) for (const tensor of module.tensors) this.#moduleOf[tensor] = module;
    this.order = this.modules.flatMap(({ tensors }) => tensors);
    this.#labels = this.#shortNames(paths);
  }

  #rest(name: string): string {
    return name.startsWith(this.#common) ? name.slice(this.#common.length) : name;
  }

  /** A name without the start that most share. */
  short(name: string): string {
    const rest = this.#rest(name);
    return path(rest).length > 1 ? rest : name;
  }

  /** The last two parts of each name after its module, or all of them where two tensors of a module would read alike. */
  #shortNames(paths: string[][]): string[] {
    const labels: string[] = [];
    for (const { id, tensors } of this.modules) {
      const short = new Map<number, string>();
      const uses = new Map<string, number>();
      for (const index of tensors) {
        const name = stem(this.names[index] as string);
        const inside = name.startsWith(id) ? name.slice(id.length).replace(/^[/.]+/, "") || name : name;
        const parts = paths[index] as string[];
        const two = head(name, parts, parts.length - 2);
        const text = name.slice(two.length).replace(/^[/.]+/, "");
        const label = inside.length > text.length ? text : inside;
        short.set(index, label);
        const use = `${this.letters[index]}${label}`;
        uses.set(use, (uses.get(use) ?? 0) + 1);
        labels[index] = inside;
      }
      for (const [index, label] of short) if (uses.get(`${this.letters[index]}${label}`) === 1) labels[index] = label;
    }
    return labels;
  }

  label(tensor: number): string {
    return this.#labels[tensor] ?? "";
  }

  /** Rows by module; a module with one tensor is the tensor's row. `shown`: only these tensors, their modules open. */
  rows(unfolded: ReadonlySet<string>, shown?: ReadonlySet<number>): MapRow[] {
    const rows: MapRow[] = [];
    for (const { id, tensors: all } of this.modules) {
      const tensors = shown ? all.filter((index) => shown.has(index)) : all;
      if (!tensors.length) continue;
      if (all.length === 1) {
        rows.push(...this.flatRows(all));
        continue;
      }
      const open = shown !== undefined || unfolded.has(id);
      rows.push({ key: `m/${id}`, id, label: this.short(id), letter: "", level: 0, open, tensors });
      if (open) for (const index of tensors) rows.push(this.#row(index, 1));
    }
    return rows;
  }

  /** A row for each tensor in the given order, with the last part of its module. */
  flatRows(order: readonly number[]): MapRow[] {
    return order.map((index) => {
      const row = this.#row(index, 0);
      return { ...row, label: this.short(stem(row.id)) };
    });
  }

  #row(index: number, level: 0 | 1): MapRow {
    const id = this.names[index] as string;
    return {
      key: `t/${id}`,
      id,
      label: this.label(index),
      letter: this.letters[index] ?? "A",
      level,
      tensors: [index],
    };
  }

  moduleOf(tensor: number): MapModule | undefined {
    return this.#moduleOf[tensor];
  }

  /** Number of rows when all modules are unfolded. */
  get mostRows(): number {
    return this.modules.reduce((sum, { tensors }) => sum + tensors.length + (tensors.length > 1 ? 1 : 0), 0);
  }
}

/** The start, such as "model.", that half of the names have, and leaves them a word and a number at least. */
function commonStart(names: readonly string[], parts: (name: string) => string[]): string {
  let start = "";
  for (;;) {
    const counts = new Map<string, number>();
    for (const name of names) {
      const rest = name.startsWith(start) ? parts(name.slice(start.length)) : [];
      if (rest.length < 3 || isNumber(rest[0] as string) || isNumber(rest[1] as string)) continue;
      const next =
        start + head(name.slice(start.length), rest, 1) + (name[start.length + (rest[0] as string).length] ?? "");
      counts.set(next, (counts.get(next) ?? 0) + 1);
    }
    const found = [...counts].find(([, n]) => n * 2 >= names.length);
    if (!found) return start;
    start = found[0];
  }
}

/** Ids of the modules that can be unfolded. */
export function modulesOf(names: readonly string[], collections: ReadonlyMap<string, readonly number[]>): string[] {
  return new MapModel(names, collections).modules.filter(({ tensors }) => tensors.length > 1).map(({ id }) => id);
}

/** What is known of a tensor's trouble. */
export interface Trouble {
  /** 4 not finite, 3 loss jump, 2 rule, 1 surprise, 0 none */
  severity: number;
  /** first step that shows it; Infinity if none does */
  onset: number;
  /** how far the value farthest from its usual one is away */
  amount: number;
}

/** Compares by severity, then by onset, then by amount: the most suspicious first. */
export function compareTrouble(a: Trouble, b: Trouble): number {
  return b.severity - a.severity || a.onset - b.onset || b.amount - a.amount;
}
