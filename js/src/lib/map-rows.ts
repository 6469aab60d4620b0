/** The rows of the Run Map: tensors in model order, grouped by module, as the model's author would list them. */

import { LONGEST, path } from "./name-path";
import { compareNatural } from "./natural-order";
import { addKindLetters, type KindLetter, stem } from "./tensor-names";

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
  open?: boolean | undefined;
  tensors: readonly number[];
}

/** A module with more tensors is split at the next number in their names: an expert, a block of a stage. */
const LARGE = 64;
const SCALAR_MODULE = "scalars";

const isDigit = (code: number) => code >= 48 && code <= 57;
const isSeparator = (code: number) => code === 46 || code === 47;

/**
 * The start of a name up to its numbered part that is number `nth`; up to its last one if it has fewer numbers; without
 * numbers, all but its last part; "" if it has one part. The parts are those of `path`.
 */
function moduleStart(name: string, nth: number): string {
  if (name.length > LONGEST) return "";
  let [seen, numbered, last, start] = [0, 0, 0, 0];
  let digits = true;
  for (let i = 0; i + 1 < name.length; i++) {
    const code = name.charCodeAt(i);
    if (!isSeparator(code) || isSeparator(name.charCodeAt(i + 1))) {
      digits &&= isDigit(code);
      continue;
    }
    if (i > start) {
      last = i;
      if (digits) numbered = i;
      if (digits && ++seen === nth) break;
    }
    start = i + 1;
    digits = true;
  }
  return name.slice(0, numbered || last);
}

/**
 * The model's author would list tensors so. Names that are appended to the list are added by `extend`, which does not read
 * those again that it has.
 */
export class MapModel {
  readonly letters: KindLetter[] = [];
  /** in model order; a tensor without a module is a separate module with its name */
  modules: MapModule[] = [];
  #order: number[] | undefined;
  readonly #groups = new Map<string, MapModule>();
  /** ids of modules that were split because they are large */
  readonly #split = new Set<string>();
  readonly #stems: string[] = [];
  readonly #moduleOf: MapModule[] = [];
  /** some names are not scalars, which then are one module */
  #hasTensors = false;
  readonly #index = new Map<string, number>();
  /** by module, the labels of its tensors that were asked for */
  #labels = new WeakMap<MapModule, Map<number, string>>();
  /** the start that most names share, which is left out of the labels of rows without a module above them */
  #common = "";

  constructor(
    readonly names: readonly string[],
    private readonly collections: ReadonlyMap<string, readonly number[]>,
  ) {
    this.extend();
  }

  /** Adds the names that were appended to `names`. */
  extend(): void {
    const { names, letters } = this;
    const [known, splits] = [letters.length, this.#split.size];
    if (known === names.length) return;
    addKindLetters(letters, names, this.collections);
    this.#order = undefined;
    for (let tensor = known; tensor < names.length; tensor++) {
      const name = names[tensor] as string;
      this.#stems.push(stem(name));
      // Of equal names, the first one counts.
      if (!this.#index.has(name)) this.#index.set(name, tensor);
    }
    const regroups = !this.#hasTensors && letters.some((letter) => letter !== "S");
    if (regroups) {
      this.#hasTensors = true;
      this.#groups.clear();
      this.#split.clear();
    }
    const changed = new Set<MapModule>();
    for (let tensor = regroups ? 0 : known; tensor < names.length; tensor++) {
      const id = this.#moduleId(tensor, 1);
      changed.add(this.#put(this.#split.has(id) ? this.#moduleId(tensor, 2) : id, tensor));
    }
    for (const module of [...changed]) {
      const { id, tensors } = module;
      if (
        tensors.length <= LARGE ||
        id === SCALAR_MODULE ||
        this.#split.has(id) ||
        id !== this.#moduleId(tensors[0] as number, 1)
      )
        continue;
      this.#split.add(id);
      this.#groups.delete(id);
      changed.delete(module);
      for (const tensor of tensors) changed.add(this.#put(this.#moduleId(tensor, 2), tensor));
    }
    const inModule = (a: number, b: number) =>
      KINDS.indexOf(letters[a] as KindLetter) - KINDS.indexOf(letters[b] as KindLetter) ||
      compareNatural(this.#stems[a] as string, this.#stems[b] as string);
    for (const module of changed) {
      module.tensors.sort(inModule);
      this.#labels.delete(module);
    }
    if (regroups || this.modules.length !== this.#groups.size || this.#split.size > splits) this.#sort();
  }

  /** All tensors in model order. */
  get order(): readonly number[] {
    this.#order ??= this.modules.flatMap(({ tensors }) => tensors);
    return this.#order;
  }

  /** Number of tensors, which increases when names are added. */
  get size(): number {
    return this.letters.length;
  }

  #moduleId(tensor: number, nth: number): string {
    if (this.#hasTensors && this.letters[tensor] === "S") return SCALAR_MODULE;
    const name = this.#stems[tensor] as string;
    return moduleStart(name, nth) || name;
  }

  #put(id: string, tensor: number): MapModule {
    const module = this.#groups.get(id) ?? { id, tensors: [] };
    this.#groups.set(id, module);
    module.tensors.push(tensor);
    this.#moduleOf[tensor] = module;
    return module;
  }

  /** Orders the modules. Scalars have no place in the model: they are its last rows. */
  #sort() {
    this.modules = [...this.#groups.values()];
    this.#common = commonStart(this.modules.map(({ id }) => id));
    const last = (module: MapModule) => (module.id === SCALAR_MODULE ? 1 : 0);
    const rests = new Map(this.modules.map((module) => [module, this.#rest(module.id)]));
    this.modules.sort((a, b) => last(a) - last(b) || compareNatural(rests.get(a) as string, rests.get(b) as string));
  }

  /** The index of a name; -1 if there is none. */
  indexOf(name: string): number {
    return this.#index.get(name) ?? -1;
  }

  #rest(name: string): string {
    return name.startsWith(this.#common) ? name.slice(this.#common.length) : name;
  }

  /** A name without the start that most share. */
  short(name: string): string {
    const rest = this.#rest(name);
    return path(rest).length > 1 ? rest : name;
  }

  /** The last two parts of a name after its module, or all of them where two tensors of the module would read alike. */
  label(tensor: number): string {
    const module = this.#moduleOf[tensor];
    if (!module) return "";
    const labels = this.#labels.get(module) ?? this.#makeLabels(module);
    this.#labels.set(module, labels);
    return labels.get(tensor) ?? "";
  }

  #makeLabels({ id, tensors }: MapModule): Map<number, string> {
    const labels = new Map<number, string>();
    const short = new Map<number, string>();
    const uses = new Map<string, number>();
    for (const index of tensors) {
      const name = this.#stems[index] as string;
      const inside = name.startsWith(id) ? name.slice(id.length).replace(/^[/.]+/, "") || name : name;
      const text = path(name).slice(-2).join("/");
      const label = inside.length > text.length ? name.slice(-text.length) : inside;
      short.set(index, label);
      const use = `${this.letters[index]}${label}`;
      uses.set(use, (uses.get(use) ?? 0) + 1);
      labels.set(index, inside);
    }
    for (const [index, label] of short) if (uses.get(`${this.letters[index]}${label}`) === 1) labels.set(index, label);
    return labels;
  }

  /** Rows by module; a module with one tensor is the tensor's row. `shown`: only these tensors, their modules open. */
  rows(unfolded: ReadonlySet<string>, shown?: ReadonlySet<number>): MapRow[] {
    const rows: MapRow[] = [];
    for (const module of this.modules) {
      const { id, tensors: all } = module;
      const tensors = shown ? all.filter((index) => shown.has(index)) : all;
      if (!tensors.length) continue;
      if (all.length === 1) {
        rows.push(new Row(this, all));
        continue;
      }
      const open = shown !== undefined || unfolded.has(id);
      rows.push(new Row(this, tensors, 0, module, open));
      if (open) for (const index of tensors) rows.push(new Row(this, [index], 1));
    }
    return rows;
  }

  /** A row for each `each` tensors in the given order, with the last part of the module of the first of them. */
  flatRows(order: readonly number[], each = 1): MapRow[] {
    const rows: MapRow[] = [];
    for (let i = 0; i < order.length; i += each) rows.push(new Row(this, order.slice(i, i + each)));
    return rows;
  }

  moduleOf(tensor: number): MapModule | undefined {
    return this.#moduleOf[tensor];
  }

  /** Ids of the modules that can be unfolded. */
  get foldable(): string[] {
    return this.modules.filter(({ tensors }) => tensors.length > 1).map(({ id }) => id);
  }

  /** Number of rows when all modules are unfolded. */
  get mostRows(): number {
    return this.modules.reduce((sum, { tensors }) => sum + tensors.length + (tensors.length > 1 ? 1 : 0), 0);
  }
}

/** What a row is called is found when it is in sight. */
class Row implements MapRow {
  constructor(
    private readonly model: MapModel,
    readonly tensors: readonly number[],
    readonly level: 0 | 1 = 0,
    private readonly module?: MapModule,
    readonly open?: boolean,
  ) {}

  get #first(): number {
    return this.tensors[0] as number;
  }

  get id(): string {
    return this.module?.id ?? (this.model.names[this.#first] as string);
  }

  get key(): string {
    return `${this.module ? "m" : "t"}/${this.id}`;
  }

  get letter(): KindLetter | "" {
    return this.module ? "" : (this.model.letters[this.#first] as KindLetter);
  }

  get label(): string {
    return this.level ? this.model.label(this.#first) : this.model.short(stem(this.id));
  }
}

/** A first part of a name and its separator, before two other parts; neither is a number, nor is the next one. */
const WORD = /^(?!\d+[/.][^/.])((?:[^/.]|[/.](?![^/.]))+[/.])(?!\d+[/.][^/.])(?:[^/.]|[/.](?![^/.]))+[/.][^/.]/;

/** The start, such as "model.", that half of the names have, and leaves them a word and a number at least. */
function commonStart(names: readonly string[]): string {
  let start = "";
  for (;;) {
    const counts = new Map<string, number>();
    for (const name of names) {
      const word = name.startsWith(start) && name.length < LONGEST && WORD.exec(name.slice(start.length))?.[1];
      if (word) counts.set(word, (counts.get(word) ?? 0) + 1);
    }
    const found = [...counts].find(([, n]) => n * 2 >= names.length);
    if (!found) return start;
    start += found[0];
  }
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
