/**
 * The grammar of queries: `layers.*.q_proj | l2 | top 12 by change`. docs/query.md describes it. Python has the same parser
 * in `smdwidgets/queries/grammar.py`; both pass tests/vectors/query.json. All places count code points.
 */
import { makeGlob, makeRegex, type Pattern, PatternError } from "./pattern";
import { closest, folded, quoted } from "./words";

/** Maximum characters of a query. */
export const LONGEST = 10_000;
/** Depth of groups and negations. */
const DEEPEST = 50;
/** Characters of a tag such as that of `min(tag)`. */
const LONGEST_TAG = 200;
const SIGNS = "<>=!~";
const QUOTES = "\"'`";
export const OPERATORS = ["<", "<=", ">", ">=", "=", "!=", "~"] as const;
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
const STAGES = ["top", "sort", "steps", "as"];

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
  /** whether a column has strings, in which patterns can be found */
  isText(key: string): boolean;
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

/** The rows in whose names a pattern is found. Places are in the query. */
export interface Names extends Place {
  kind: "names";
  pattern: Pattern;
}

/** The rows of a collection. */
export interface Members {
  kind: "members";
  collection: string;
}

/** The rows whose key compares. The place is that of the value. */
export interface Comparison extends Place {
  kind: "comparison";
  key: string;
  operator: Operator;
  /** what to compare with, and its number if it is one; NaN stands for a missing value */
  value: string;
  number: number | undefined;
  /** what the operator `~` looks for */
  pattern: Pattern | undefined;
}

/** "not" has a single part. */
export interface Combination {
  kind: "and" | "or" | "not";
  parts: Condition[];
}

export type Condition = Names | Members | Comparison | Combination;

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
  stages: (Condition | Order)[];
  statistic: string | undefined;
  steps: { from: number; to: number | undefined } | undefined;
  view: string | undefined;
  /** places of the parts between bars */
  parts: (Place & { kind: "select" | "filter" | "order" | "statistic" | "steps" | "view" })[];
}

/** The stages of a query, with the parts of combinations, in the order of the text. */
export function conditionsOf({ stages }: Query): (Names | Members | Comparison | Order)[] {
  const flat = (part: Condition | Order): (Names | Members | Comparison | Order)[] =>
    "parts" in part ? part.parts.flatMap(flat) : [part];
  return stages.flatMap(flat);
}

interface Token extends Place {
  kind: "word" | "text" | "sign" | "dots" | "parenthesis";
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
  /** open groups */
  #groups = 0;
  readonly #text: readonly string[];
  readonly #query: Query = {
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
      this.#part(() => (this.#startsStage() ? this.#stage() : this.#filter(true)));
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

  /** Reads one of these words, which ends at a space, a parenthesis or a bar. */
  #keyword(...words: string[]): string | undefined {
    this.#skip();
    for (const word of words) {
      const end = this.#at + word.length;
      const next = this.#text[end] ?? " ";
      if (folded(this.#slice(this.#at, end)) !== word || !(SPACE.test(next) || "()|".includes(next))) continue;
      this.#at = end;
      return word;
    }
    return undefined;
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
    if (QUOTES.includes(first)) return this.#quoted();
    if (first === "(" || first === ")") {
      this.#at++;
      return { kind: "parenthesis", value: first, start, end: this.#at };
    }
    let value: string | undefined;
    let kind: Token["kind"] = "word";
    if (SIGNS.includes(first)) {
      kind = "sign";
      while (this.#next !== undefined && SIGNS.includes(this.#next)) this.#at++;
    } else if (this.#atDots) {
      kind = "dots";
      this.#at += 2;
    } else {
      value = "";
      while (this.#next !== undefined && !this.#atSpace && !`|")${SIGNS}`.includes(this.#next) && !this.#atDots) {
        value += (this.#next === "(" ? this.#tag() : undefined) ?? this.#next;
        this.#at++;
      }
    }
    return { kind, value: value ?? this.#slice(start), start, end: this.#at };
  }

  /** Reads the parenthesis of `min(tag)` up to the closing one, without quotes; undefined if it is not closed. */
  #tag(): string | undefined {
    const last = Math.min(this.#text.length, this.#at + LONGEST_TAG);
    let letters = "";
    let depth = 0;
    for (let index = this.#at; index < last; index++) {
      const c = this.#text[index] as string;
      if (c === "|") return undefined;
      if (QUOTES.includes(c)) {
        const end = this.#text.indexOf(c, index + 1);
        if (end < 0 || end >= this.#at + LONGEST_TAG) return undefined;
        letters += this.#slice(index + 1, end);
        index = end;
      } else {
        letters += c;
        depth += Number(c === "(") - Number(c === ")");
      }
      if (depth === 0) {
        this.#at = index;
        return letters;
      }
    }
    return undefined;
  }

  #quoted(): Token {
    const start = this.#at++;
    const quote = this.#text[start];
    let value = "";
    while (this.#next !== quote) {
      if (this.#next === undefined) this.#fail(`Missing closing '${quote}'.`, { start, end: this.#text.length });
      const after = this.#text[this.#at + 1];
      if (this.#next === "\\" && (after === quote || after === "\\")) this.#at++;
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

  // ---- conditions

  #filter(names: boolean): "select" | "filter" {
    this.#query.stages.push(this.#condition(0, names));
    this.#ends("and", "or");
    return names ? "select" : "filter";
  }

  /** `depth` is that of groups and negations, `names` whether a pattern of names can be a part. */
  #condition(depth: number, names: boolean): Condition {
    return this.#combined("or", () => this.#combined("and", () => this.#operand(depth, names)));
  }

  #combined(word: "and" | "or", read: () => Condition): Condition {
    const parts = [read()];
    while (this.#keyword(word)) {
      this.#expectOperand(word);
      parts.push(read());
    }
    return parts.length === 1 ? (parts[0] as Condition) : { kind: word, parts };
  }

  /** Fails if no part of a condition follows a word. */
  #expectOperand(before: string) {
    const start = this.#at;
    this.#skip();
    if (this.#next === undefined || this.#next === "|" || this.#next === ")")
      this.#fail(`Expected a condition after '${before}'.`, { start, end: start });
  }

  #operand(depth: number, names: boolean): Condition {
    this.#skip();
    const start = this.#at;
    const negated = this.#keyword("not");
    if (!negated && this.#next !== "(") return !names || this.#startsComparison() ? this.#comparison() : this.#names();
    if (depth === DEEPEST) this.#fail("Conditions are nested too deeply.", { start, end: start + 1 });
    if (negated) {
      this.#expectOperand("not");
      return { kind: "not", parts: [this.#operand(depth + 1, names)] };
    }
    this.#at++;
    this.#expectOperand("(");
    this.#groups++;
    const inner = this.#condition(depth + 1, names);
    this.#groups--;
    this.#skip();
    if (this.#next !== ")") {
      if (this.#next !== undefined && this.#next !== "|") this.#ends("and", "or");
      this.#fail("Missing closing ')'.", { start, end: start + 1 });
    }
    this.#at++;
    return inner;
  }

  /** The next word or text, whether a space follows it, and whether an operator does. Nothing is read. */
  #lookahead(): { first: Token; spaced: boolean; signed: boolean } | undefined {
    const begin = this.#at;
    if (this.#next === "/" || this.#next === "@") return undefined;
    const first = this.#token();
    const spaced = this.#atSpace;
    this.#skip();
    const signed = this.#next !== undefined && SIGNS.includes(this.#next);
    this.#at = begin;
    return first?.kind === "word" || first?.kind === "text" ? { first, spaced, signed } : undefined;
  }

  /** Whether the first part is a stage other than a condition. */
  #startsStage(): boolean {
    const { first, spaced, signed } = this.#lookahead() ?? {};
    return first?.kind === "word" && Boolean(spaced) && !signed && STAGES.includes(folded(first.value));
  }

  #startsComparison(): boolean {
    const { first, spaced, signed } = this.#lookahead() ?? {};
    if (!first || !signed) return false;
    return spaced || first.kind === "text" || knownName(first.value, this.vocabulary.keys) !== undefined;
  }

  #names(): Condition {
    if (this.#next === "@") return this.#collection();
    const start = this.#at;
    const pattern = `/${QUOTES}`.includes(this.#next as string) ? this.#pattern() : this.#glob();
    return { kind: "names", pattern, start, end: this.#at };
  }

  /** A regular expression, a text in quotes, or a word. */
  #pattern(): Pattern {
    if (this.#next === "/") return this.#regex();
    const token = this.#token() as Token;
    if (token.kind !== "word" && token.kind !== "text")
      return this.#fail(`Expected a pattern, got ${quoted(token.value)}.`, token);
    return makeGlob(token.kind === "text" ? [token.value] : token.value.split("*"));
  }

  /** Text up to a bar, `and`, `or`, or the parenthesis that closes a group. */
  #glob(): Pattern {
    const parts: string[][] = [[]];
    let start = this.#at;
    let depth = 0;
    for (; this.#next !== undefined && this.#next !== "|"; this.#at++) {
      const after = this.#text[this.#at + 1];
      if (this.#next === "\\" && after !== undefined && ESCAPED.includes(after)) {
        this.#at++;
        parts.at(-1)?.push(after);
        start = this.#at + 1;
      } else if (this.#next === "*") parts.push([]);
      else {
        if (this.#atSpace && !SPACE.test(this.#text[this.#at - 1] ?? "") && this.#endsGlob()) break;
        if (this.#next === ")" && this.#groups && !depth) break;
        if (this.#next === "(") depth++;
        else if (this.#next === ")" && depth) depth--;
        parts.at(-1)?.push(this.#next);
      }
    }
    // Spaces at the end are not a part of it.
    for (; this.#at > start && SPACE.test(this.#text[this.#at - 1] as string); this.#at--) parts.at(-1)?.pop();
    return makeGlob(parts.map((letters) => letters.join("")));
  }

  #endsGlob(): boolean {
    const begin = this.#at;
    const word = this.#keyword("and", "or");
    this.#at = begin;
    return word !== undefined;
  }

  #regex(): Pattern {
    const start = this.#at++;
    while (this.#next !== "/") {
      if (this.#next === undefined) this.#fail("Missing closing '/'.", { start, end: this.#text.length });
      this.#at += this.#next === "\\" ? 2 : 1;
    }
    const pattern = this.#slice(start + 1);
    this.#at++;
    if (!pattern) this.#fail("Invalid regular expression: it is empty.", { start, end: this.#at });
    try {
      return makeRegex(pattern, start + 1);
    } catch (error) {
      if (!(error instanceof PatternError)) throw error;
      return this.#fail(`Invalid regular expression: ${error.message}.`, error);
    }
  }

  #collection(): Members {
    const start = ++this.#at;
    const token = this.#atSpace ? undefined : this.#token();
    if (token?.kind !== "word" && token?.kind !== "text")
      return this.#fail("Expected the name of a collection after '@'.", { start, end: start });
    const names = [...this.vocabulary.collections];
    const collection = knownName(token.value, names);
    if (collection === undefined) return this.#failAt(token, `Unknown collection ${quoted(token.value)}.`, names);
    return { kind: "members", collection };
  }

  #comparison(): Comparison {
    const first = this.#token() as Token;
    const key = this.#key(first);
    const sign = this.#expect("an operator such as '<'", first);
    if (sign.kind !== "sign") this.#fail(`Expected an operator such as '<', got ${this.#source(sign)}.`, sign);
    const operator = OPERATORS.find((each) => each === (sign.value === "==" ? "=" : sign.value));
    if (!operator) {
      const meant = Object.hasOwn(MEANT, sign.value) ? MEANT[sign.value] : undefined;
      return this.#fail(`Unknown operator ${quoted(sign.value)}.`, sign, meant);
    }
    const begin = this.#at;
    const token = this.#expect(operator === "~" ? "a pattern" : "a value", sign);
    const { value, start } = token;
    if (operator === "~") {
      if (!this.vocabulary.isText(key)) this.#fail(`'~' needs strings, and ${quoted(key)} has numbers.`, sign, "=");
      this.#at = begin;
      this.#skip();
      const pattern = this.#pattern();
      return { kind: "comparison", key, operator, value, number: undefined, pattern, start, end: this.#at };
    }
    if (token.kind !== "word" && token.kind !== "text") this.#fail(`Expected a value, got ${quoted(value)}.`, token);
    const number = token.kind === "word" ? toNumber(value) : undefined;
    if (operator !== "=" && operator !== "!=") {
      if (number === undefined) this.#fail(`'${operator}' needs a number, got ${this.#source(token)}.`, token);
      if (Number.isNaN(number)) this.#fail(`'${operator}' cannot compare with nan; use = or !=.`, token);
    }
    return { kind: "comparison", key, operator, value, number, pattern: undefined, start, end: token.end };
  }

  // ---- stages

  #stage(): Query["parts"][number]["kind"] {
    const { vocabulary } = this;
    const start = this.#at;
    const negated = this.#keyword("not");
    if (negated || this.#next === "(" || this.#lookahead()?.signed) {
      this.#at = start;
      return this.#filter(false);
    }
    const first = this.#token() as Token;
    if (first.kind !== "word" && first.kind !== "text")
      return this.#fail(`Expected a stage, got ${quoted(first.value)}.`, first);
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
  return [
    ...["top", "sort", ...(hasSteps ? ["steps"] : []), ...(views.length ? ["as"] : []), "not"],
    ...statistics,
    ...keys,
  ];
}

function toNumber(word: string): number | undefined {
  const lower = folded(word);
  const infinite = INFINITE.exec(lower);
  if (infinite) return infinite[1] === "-" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  if (lower === "nan" || lower === "none") return Number.NaN;
  return NUMBER.test(lower) ? Number(lower) : undefined;
}

/** A whole number that is exact, or undefined. */
function toWhole({ kind, value }: Token): number | undefined {
  if (kind !== "word" || !/^[0-9]+$/.test(value)) return undefined;
  const number = Number(value);
  return number <= Number.MAX_SAFE_INTEGER ? number : undefined;
}
