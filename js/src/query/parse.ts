/**
 * The grammar of queries: `layers.*.q_proj | l2 | top 12 by change`. docs/query.md describes it. Python has the same parser
 * in `smdwidgets/queries/grammar.py`; both pass tests/vectors/query.json. All places count code points.
 */
import { makeGlob, makeRegex, PatternError } from "./pattern";
import { closest, folded, quoted } from "./words";

/** Maximum characters of a query. */
export const LONGEST = 10_000;
const SIGNS = "<>=!";
export const OPERATORS = ["<", "<=", ">", ">=", "=", "!="] as const;
type Operator = (typeof OPERATORS)[number];
const MEANT: Record<string, string> = {
  "=>": ">=",
  "=<": "<=",
  "<>": "!=",
  "=!": "!=",
  "!": "!=",
  "===": "=",
  "!==": "!=",
};
/** What a backslash makes literal in a glob. */
const ESCAPED = '|*\\"/@';
const NUMBER = /^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?$/;
const INFINITE = /^([+-]?)inf(inity)?$/;
const SPACE = /^\s$/u;
const END = "'|' or the end";

/** The words of a table that a query can use. */
export interface Vocabulary {
  /** columns that can be compared and sorted by */
  keys: readonly string[];
  /** statistics that can be chosen */
  statistics: readonly string[];
  /** what `as` can choose */
  views: readonly string[];
  /** whether `steps` can choose a range */
  hasSteps: boolean;
  /** names of collections */
  collections: Iterable<string>;
}

interface Place {
  start: number;
  end: number;
}

export class QueryError extends Error implements Place {
  constructor(
    message: string,
    readonly start: number,
    readonly end: number,
    readonly suggestion?: string,
  ) {
    super(message);
  }

  /** The message with the suggestion. */
  get text(): string {
    return this.suggestion === undefined ? this.message : `${this.message} Did you mean '${this.suggestion}'?`;
  }
}

export interface Filter {
  kind: "filter";
  key: string;
  operator: Operator;
  /** what to compare with, and its number if it is one; NaN stands for a missing value */
  value: string;
  number: number | undefined;
}

/** Sorts the rows, and keeps the first ones. */
export interface Order {
  kind: "order";
  key: string;
  /** undefined: the usual direction of the key */
  descending: boolean | undefined;
  /** undefined: all */
  count: number | undefined;
}

export interface Query {
  /** undefined: all names */
  matches: ((name: string) => boolean) | undefined;
  collection: string | undefined;
  stages: (Filter | Order)[];
  statistic: string | undefined;
  steps: { from: number; to: number | undefined } | undefined;
  view: string | undefined;
  /** places of the parts between bars */
  parts: (Place & { kind: "select" | "filter" | "order" | "statistic" | "steps" | "view" })[];
}

interface Token extends Place {
  kind: "word" | "text" | "sign" | "dots";
  value: string;
}

/** Throws QueryError. */
export function parse(text: string, vocabulary: Vocabulary): Query {
  return new Parser(text, vocabulary).parse();
}

/** The name that a word means: the same one, or one of another case. */
function knownName(word: string, names: readonly string[]): string | undefined {
  if (names.includes(word)) return word;
  const lower = folded(word);
  return names.find((name) => folded(name) === lower);
}

class Parser {
  #at = 0;
  readonly #text: readonly string[];
  readonly #query: Query = {
    matches: undefined,
    collection: undefined,
    stages: [],
    statistic: undefined,
    steps: undefined,
    view: undefined,
    parts: [],
  };

  constructor(
    text: string,
    private readonly vocabulary: Vocabulary,
  ) {
    this.#text = [...text];
  }

  parse(): Query {
    const { length } = this.#text;
    if (length > LONGEST) this.#fail(`Query is longer than ${LONGEST} characters.`, { start: LONGEST, end: length });
    this.#skip();
    if (this.#at < length && this.#next !== "|")
      this.#part(() => (this.#startsStage() ? this.#stage() : this.#select()));
    while (this.#at < length) {
      const bar = this.#at++;
      this.#skip();
      if (this.#at === length || this.#next === "|")
        this.#fail("Expected a stage after '|'.", { start: bar, end: bar + 1 });
      this.#part(() => this.#stage());
    }
    return this.#query;
  }

  #part(read: () => Query["parts"][number]["kind"]) {
    const start = this.#at;
    const kind = read();
    let end = this.#at;
    while (end > start && SPACE.test(this.#text[end - 1] as string)) end--;
    this.#query.parts.push({ kind, start, end });
  }

  // ---- tokens

  #fail(message: string, { start, end }: Place, suggestion?: string): never {
    throw new QueryError(message, start, end, suggestion);
  }

  get #next(): string | undefined {
    return this.#text[this.#at];
  }

  get #atSpace(): boolean {
    return this.#next !== undefined && SPACE.test(this.#next);
  }

  get #atDots(): boolean {
    return this.#next === "." && this.#text[this.#at + 1] === ".";
  }

  #skip() {
    while (this.#atSpace) this.#at++;
  }

  #slice(start: number, end = this.#at): string {
    return this.#text.slice(start, end).join("");
  }

  /** The next token of a stage; undefined at its end. */
  #token(): Token | undefined {
    this.#skip();
    const start = this.#at;
    const first = this.#next;
    if (first === undefined || first === "|") return undefined;
    if (first === '"') return this.#quoted();
    let kind: Token["kind"] = "word";
    if (SIGNS.includes(first)) {
      kind = "sign";
      while (this.#next !== undefined && SIGNS.includes(this.#next)) this.#at++;
    } else if (this.#atDots) {
      kind = "dots";
      this.#at += 2;
    } else
      while (this.#next !== undefined && !this.#atSpace && !`|"${SIGNS}`.includes(this.#next) && !this.#atDots)
        this.#at++;
    return { kind, value: this.#slice(start), start, end: this.#at };
  }

  #quoted(): Token {
    const start = this.#at++;
    let value = "";
    while (this.#next !== '"') {
      if (this.#next === undefined) this.#fail("Missing closing '\"'.", { start, end: this.#text.length });
      const after = this.#text[this.#at + 1];
      if (this.#next === "\\" && (after === '"' || after === "\\")) this.#at++;
      value += this.#next;
      this.#at++;
    }
    this.#at++;
    return { kind: "text", value, start, end: this.#at };
  }

  /** Fails unless the stage ends here. */
  #ends(...candidates: string[]) {
    const token = this.#token();
    if (token) this.#failAt(token, `Expected ${END}, got ${this.#source(token)}.`, candidates);
  }

  #source({ start, end }: Token): string {
    return quoted(this.#slice(start, end));
  }

  #failAt(token: Token, message: string, candidates: Iterable<string> = []): never {
    this.#fail(message, token, token.kind === "word" ? closest(token.value, candidates) : undefined);
  }

  #expect(what: string, before: Token): Token {
    const token = this.#token();
    const { end } = before;
    return token ?? this.#fail(`Expected ${what} after ${this.#source(before)}.`, { start: end, end });
  }

  // ---- select

  /** Whether the first part is a stage. */
  #startsStage(): boolean {
    const begin = this.#at;
    if (this.#next === "/" || this.#next === "@") return false;
    const first = this.#token();
    const spaced = this.#atSpace;
    this.#skip();
    const signed = this.#next !== undefined && SIGNS.includes(this.#next);
    this.#at = begin;
    if (first?.kind !== "word" && first?.kind !== "text") return false;
    if (signed) return spaced || first.kind === "text" || knownName(first.value, this.vocabulary.keys) !== undefined;
    return first.kind === "word" && spaced && ["top", "sort", "steps", "as"].includes(folded(first.value));
  }

  #select(): "select" {
    if (this.#next === "/") this.#regex();
    else if (this.#next === "@") this.#collection();
    else if (this.#next === '"') this.#query.matches = makeGlob([this.#quoted().value]);
    else this.#glob();
    this.#ends();
    return "select";
  }

  #glob() {
    const parts = [""];
    const add = (letter: string) => {
      parts[parts.length - 1] += letter;
    };
    let start = this.#at;
    for (; this.#next !== undefined && this.#next !== "|"; this.#at++) {
      const after = this.#text[this.#at + 1];
      if (this.#next === "\\" && after !== undefined && ESCAPED.includes(after)) {
        this.#at++;
        add(after);
        start = this.#at + 1;
      } else if (this.#next === "*") parts.push("");
      else add(this.#next);
    }
    // Spaces at the end are not a part of it.
    let last = parts.pop() as string;
    for (let at = this.#at; at > start && SPACE.test(this.#text[at - 1] as string); at--) last = last.slice(0, -1);
    this.#query.matches = makeGlob([...parts, last]);
  }

  #regex() {
    const start = this.#at++;
    while (this.#next !== "/") {
      if (this.#next === undefined) this.#fail("Missing closing '/'.", { start, end: this.#text.length });
      this.#at += this.#next === "\\" ? 2 : 1;
    }
    const pattern = this.#slice(start + 1);
    this.#at++;
    if (!pattern) this.#fail("Invalid regular expression: it is empty.", { start, end: this.#at });
    try {
      this.#query.matches = makeRegex(pattern, start + 1);
    } catch (error) {
      if (!(error instanceof PatternError)) throw error;
      this.#fail(`Invalid regular expression: ${error.message}.`, error);
    }
  }

  #collection() {
    const at = ++this.#at;
    const token = this.#atSpace ? undefined : this.#token();
    if (token?.kind !== "word" && token?.kind !== "text")
      return this.#fail("Expected the name of a collection after '@'.", { start: at, end: at });
    const names = [...this.vocabulary.collections];
    const known = knownName(token.value, names);
    if (known === undefined) this.#failAt(token, `Unknown collection ${quoted(token.value)}.`, names);
    this.#query.collection = known;
  }

  // ---- stages

  #stage(): Query["parts"][number]["kind"] {
    const { vocabulary } = this;
    const first = this.#token() as Token;
    if (first.kind !== "word" && first.kind !== "text")
      return this.#fail(`Expected a stage, got ${quoted(first.value)}.`, first);
    const begin = this.#at;
    const second = this.#token();
    if (second?.kind === "sign") return this.#filter(first, second);
    this.#at = begin;
    const word = first.kind === "word" ? folded(first.value) : "";
    if (word === "top") return this.#top(first);
    if (word === "sort") return this.#sort(first);
    if (word === "steps" && vocabulary.hasSteps) return this.#steps(first);
    if (word === "as" && vocabulary.views.length) return this.#as(first);
    const statistic = word && knownName(first.value, vocabulary.statistics);
    if (statistic) {
      const before = this.#query.statistic;
      if (before !== undefined) this.#failAt(first, `Two statistics: '${before}' and '${statistic}'.`);
      this.#query.statistic = statistic;
      this.#ends();
      return "statistic";
    }
    if (knownName(first.value, vocabulary.keys) !== undefined) {
      const found = this.#expect("an operator such as '<'", first);
      return this.#fail(`Expected an operator such as '<', got ${this.#source(found)}.`, found);
    }
    return this.#failAt(first, `Unknown word ${quoted(first.value)}.`, stageWords(vocabulary));
  }

  #key(token: Token): string {
    const { keys } = this.vocabulary;
    const known = token.kind === "word" || token.kind === "text" ? knownName(token.value, keys) : undefined;
    return known ?? this.#failAt(token, `Unknown key ${this.#source(token)}.`, keys);
  }

  #filter(first: Token, sign: Token): "filter" {
    const key = this.#key(first);
    const operator = OPERATORS.find((each) => each === (sign.value === "==" ? "=" : sign.value));
    if (!operator) {
      const meant = Object.hasOwn(MEANT, sign.value) ? MEANT[sign.value] : undefined;
      return this.#fail(`Unknown operator ${quoted(sign.value)}.`, sign, meant);
    }
    const token = this.#expect("a value", sign);
    if (token.kind !== "word" && token.kind !== "text")
      this.#fail(`Expected a value, got ${quoted(token.value)}.`, token);
    const number = token.kind === "word" ? toNumber(token.value) : undefined;
    if (operator !== "=" && operator !== "!=") {
      if (number === undefined) this.#fail(`'${operator}' needs a number, got ${this.#source(token)}.`, token);
      if (Number.isNaN(number)) this.#fail(`'${operator}' cannot compare with nan; use = or !=.`, token);
    }
    this.#query.stages.push({ kind: "filter", key, operator, value: token.value, number });
    this.#ends();
    return "filter";
  }

  #top(first: Token): "order" {
    const token = this.#expect("a number", first);
    const count = toWhole(token);
    if (!count) return this.#fail(`'top' needs a whole number from 1, got ${this.#source(token)}.`, token);
    return this.#sort(token, count);
  }

  #sort(before: Token, count?: number): "order" {
    const by = this.#expect("'by'", before);
    if (by.kind !== "word" || folded(by.value) !== "by")
      this.#failAt(by, `Expected 'by', got ${this.#source(by)}.`, ["by"]);
    const key = this.#key(this.#expect("a key", by));
    const begin = this.#at;
    const token = this.#token();
    const direction = token?.kind === "word" ? folded(token.value) : "";
    const given = direction === "asc" || direction === "desc";
    if (!given) this.#at = begin;
    this.#query.stages.push({ kind: "order", key, descending: given ? direction === "desc" : undefined, count });
    this.#ends("asc", "desc");
    return "order";
  }

  #steps(first: Token): "steps" {
    if (this.#query.steps) this.#failAt(first, "'steps' is given twice.");
    const token = this.#expect("a range such as '10 .. 20'", first);
    const low = token.kind === "dots" ? undefined : this.#step(token);
    const dots = low === undefined ? token : this.#expect("'..'", token);
    if (dots.kind !== "dots") this.#fail(`Expected '..', got ${this.#source(dots)}.`, dots);
    const begin = this.#at;
    const last = this.#token();
    if (!last) {
      if (low === undefined) this.#fail("Expected a step after '..'.", { start: dots.end, end: dots.end });
      this.#at = begin;
    }
    const high = last && this.#step(last);
    if (low !== undefined && last && high !== undefined && high < low)
      this.#fail(`Empty range: ${low} is after ${high}.`, { start: token.start, end: last.end });
    this.#query.steps = { from: low ?? 0, to: high };
    this.#ends();
    return "steps";
  }

  #step(token: Token): number {
    return toWhole(token) ?? this.#fail(`'steps' needs whole numbers from 0, got ${this.#source(token)}.`, token);
  }

  #as(first: Token): "view" {
    if (this.#query.view !== undefined) this.#failAt(first, "'as' is given twice.");
    const { views } = this.vocabulary;
    const list = views.join(", ");
    const token = this.#expect(`one of ${list}`, first);
    const known = token.kind === "word" ? knownName(token.value, views) : undefined;
    if (known === undefined) this.#failAt(token, `Unknown view ${this.#source(token)}; choose from ${list}.`, views);
    this.#query.view = known;
    this.#ends();
    return "view";
  }
}

/** The words that a stage can begin with. */
export function stageWords({ keys, statistics, views, hasSteps }: Vocabulary): string[] {
  return ["top", "sort", ...(hasSteps ? ["steps"] : []), ...(views.length ? ["as"] : []), ...statistics, ...keys];
}

function toNumber(word: string): number | undefined {
  const lower = folded(word);
  const infinite = INFINITE.exec(lower);
  if (infinite) return infinite[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (lower === "nan") return Number.NaN;
  return NUMBER.test(lower) ? Number(lower) : undefined;
}

/** A whole number that is exact, or undefined. */
function toWhole({ kind, value }: Token): number | undefined {
  if (kind !== "word" || !/^[0-9]+$/.test(value)) return undefined;
  const number = Number(value);
  return number <= Number.MAX_SAFE_INTEGER ? number : undefined;
}
