/**
 * Patterns of names: globs, and a subset of regular expressions that is matched in time linear in the length of a name: a
 * deterministic automaton whose states are made when a name first needs them. A backtracking RegExp could block the page for
 * years, and in a worker each answer would come later than the text. Python accepts the same patterns in `smdwidgets/_patterns.py`.
 */
import { folded, quoted } from "./words";

/** A regular expression is invalid. The place is in code points. */
export class PatternError extends Error {
  constructor(
    readonly start: number,
    readonly end: number,
    reason: string,
  ) {
    super(reason);
  }
}

export interface Pattern {
  matches(name: string): boolean;
  /** literal parts of a glob; undefined: a regular expression */
  parts?: readonly string[];
}

/** Literal parts that occur in a name in order, anywhere. */
export function makeGlob(literals: readonly string[]): Pattern & { parts: readonly string[] } {
  const parts = literals.map(folded).filter(Boolean);
  const matches = (name: string) => {
    const lower = folded(name);
    let offset = 0;
    for (const part of parts) {
      const index = lower.indexOf(part, offset);
      if (index < 0) return false;
      offset = index + part.length;
    }
    return true;
  };
  return { parts, matches };
}

/** A regular expression, which starts at an offset of a text. Throws PatternError. */
export function makeRegex(pattern: string, offset = 0): Pattern {
  const automaton = new Automaton(new Parser(pattern, offset).parse());
  return { matches: (name) => automaton.test(name) };
}

type Test = (code: number) => boolean;
type Assertion = "^" | "$" | "b" | "B";
/** Adds the nodes of a part before those at `next`, and returns its first one. */
type Build = (nodes: Node[], next: number) => number;
/** A part of an expression, and its number of parts with repetitions expanded. */
interface Item {
  build: Build;
  size: number;
  isAssertion?: boolean;
}

/** Depth of groups, repetitions of one part, and parts with repetitions expanded. */
const MOST_DEPTH = 50;
const MOST_TIMES = 1000;
const MOST_PARTS = 2000;
/** States that are kept; the automaton starts again when there are more. */
const MOST_STATES = 10_000;

const isDigit: Test = (c) => c >= 48 && c <= 57;
const isWord: Test = (c) => isDigit(c) || (c >= 65 && c <= 90) || (c >= 97 && c <= 122) || c === 95;
const isSpace: Test = (c) => c === 32 || (c >= 9 && c <= 13);
const not =
  (test: Test): Test =>
  (c) =>
    !test(c);
const CLASSES: Record<string, Test> = {
  d: isDigit,
  D: not(isDigit),
  w: isWord,
  W: not(isWord),
  s: isSpace,
  S: not(isSpace),
};
const CONTROLS: Record<string, string> = { t: "\t", n: "\n", r: "\r" };

/** Upper and lower case of ASCII letters are the same. */
const ignoringCase =
  (test: Test): Test =>
  (c) =>
    test(c) || (c >= 65 && c <= 90 && test(c + 32)) || (c >= 97 && c <= 122 && test(c - 32));

class Parser {
  #at = 0;
  readonly #text: string[];
  constructor(
    pattern: string,
    private readonly offset: number,
  ) {
    this.#text = [...pattern];
  }

  parse(): Build {
    const { build, size } = this.#alternatives(0);
    if (this.#at < this.#text.length) this.#fail(this.#at, "')' without '('; write \\) for the character");
    if (size > MOST_PARTS) this.#fail(0, "the pattern is too large", this.#text.length);
    return build;
  }

  get #next(): string | undefined {
    return this.#text[this.#at];
  }

  #fail(start: number, reason: string, end = start + 1): never {
    throw new PatternError(this.offset + start, this.offset + end, reason);
  }

  #alternatives(depth: number): Item {
    const items = [this.#sequence(depth)];
    while (this.#next === "|") {
      this.#at++;
      items.push(this.#sequence(depth));
    }
    if (items.length === 1) return items[0] as Item;
    const build: Build = (nodes, next) =>
      items
        .map((item) => item.build(nodes, next))
        .reduceRight((other, start) => add(nodes, { kind: "split", next: start, other }));
    return { build, size: sizeOf(items) };
  }

  #sequence(depth: number): Item {
    const items: Item[] = [];
    while (this.#next !== undefined && this.#next !== "|" && this.#next !== ")")
      items.push(this.#repeated(this.#atom(depth)));
    const build: Build = (nodes, next) => items.reduceRight((after, item) => item.build(nodes, after), next);
    return { build, size: sizeOf(items) };
  }

  get #repeats(): boolean {
    return this.#next !== undefined && "*+?{".includes(this.#next);
  }

  #repeated(item: Item): Item {
    if (!this.#repeats) return item;
    const start = this.#at;
    if (item.isAssertion) this.#fail(start, "nothing to repeat");
    const c = this.#text[this.#at++] as string;
    const [min, max] = c === "{" ? this.#times(start) : [c === "+" ? 1 : 0, c === "?" ? 1 : Number.POSITIVE_INFINITY];
    if (this.#next === "?") this.#at++; // whether the shortest or the longest match is found makes no difference
    if (this.#repeats) this.#fail(this.#at, "nothing to repeat");
    const endless = max === Number.POSITIVE_INFINITY;
    const build: Build = (nodes, next) => {
      let start = next;
      if (endless) {
        start = add(nodes, { kind: "split", next, other: next });
        (nodes[start] as { other: number }).other = item.build(nodes, start);
      } else
        for (let i = min; i < max; i++) start = add(nodes, { kind: "split", next, other: item.build(nodes, start) });
      for (let i = 0; i < min; i++) start = item.build(nodes, start);
      return start;
    };
    return { build, size: 1 + item.size * (endless ? min + 1 : max) };
  }

  #times(start: number): [number, number] {
    const low = this.#digits();
    const comma = this.#next === ",";
    if (comma) this.#at++;
    const high = comma ? this.#digits() : low;
    if (!low || this.#next !== "}") this.#fail(start, "invalid repetition; write \\{ for the character");
    this.#at++;
    const [min, max] = [Number(low.slice(0, 8)), high ? Number(high.slice(0, 8)) : Number.POSITIVE_INFINITY];
    if (min > MOST_TIMES || (high && max > MOST_TIMES))
      this.#fail(start, `more than ${MOST_TIMES} repetitions`, this.#at);
    if (min > max) this.#fail(start, "minimum of a repetition exceeds its maximum", this.#at);
    return [min, max];
  }

  /** Digits without leading zeros. */
  #digits(): string {
    const begin = this.#at;
    while (this.#next !== undefined && this.#next >= "0" && this.#next <= "9") this.#at++;
    const digits = this.#text.slice(begin, this.#at).join("");
    return digits.replace(/^0+/, "") || digits.slice(0, 1);
  }

  #atom(depth: number): Item {
    const start = this.#at;
    const c = this.#text[this.#at++] as string;
    if (c === "(") return this.#group(start, depth);
    if (c === "[") return character(this.#set(start));
    if (c === "\\") return this.#escape(start);
    if (c === ".") return character(() => true);
    if (c === "^" || c === "$") return assertion(c);
    if ("*+?".includes(c)) this.#fail(start, "nothing to repeat");
    if ("{}]".includes(c)) this.#fail(start, `write \\${c} for the character`);
    return character(isChar(c));
  }

  #group(start: number, depth: number): Item {
    if (depth >= MOST_DEPTH) this.#fail(start, "groups are nested too deeply");
    if (this.#next === "?") {
      if (this.#text[this.#at + 1] !== ":")
        this.#fail(start, "look-around, flags and named groups are not supported", this.#at + 1);
      this.#at += 2;
    }
    const item = this.#alternatives(depth + 1);
    if (this.#next !== ")") this.#fail(start, "'(' without ')'; write \\( for the character");
    this.#at++;
    return item;
  }

  #escape(start: number): Item {
    const escaped = this.#escaped(start, false);
    if (typeof escaped === "function") return character(escaped);
    return typeof escaped === "string" ? character(isChar(escaped)) : escaped;
  }

  /** The character, class or assertion of an escape, whose backslash was read. */
  #escaped(start: number, inside: boolean): Test | string | Item {
    const c = this.#text[this.#at++];
    if (c === undefined) return this.#fail(start, "nothing after the backslash");
    if (Object.hasOwn(CLASSES, c)) return CLASSES[c] as Test;
    if (Object.hasOwn(CONTROLS, c)) return CONTROLS[c] as string;
    if (!inside && (c === "b" || c === "B")) return assertion(c);
    if (/^[0-9A-Za-z]$/.test(c)) return this.#fail(start, `escape ${quoted(`\\${c}`)} is not supported`, this.#at);
    return c;
  }

  #set(start: number): Test {
    const tests: Test[] = [];
    const negated = this.#next === "^";
    if (negated) this.#at++;
    if (this.#next === "]") this.#fail(start, "empty set; write \\] for the character", this.#at + 1);
    while (this.#next !== "]") {
      const begin = this.#at;
      const first = this.#member(start);
      if (typeof first === "function") {
        tests.push(first);
        continue;
      }
      let last = first;
      const after = this.#text[this.#at + 1];
      if (this.#next === "-" && after !== undefined && after !== "]") {
        this.#at++;
        const found = this.#member(start);
        if (typeof found === "function" || code(found) < code(first))
          return this.#fail(begin, "invalid range", this.#at);
        last = found;
      }
      const [low, high] = [code(first), code(last)];
      tests.push((each) => each >= low && each <= high);
    }
    this.#at++;
    const test = ignoringCase((each) => tests.some((one) => one(each)));
    return negated ? not(test) : test;
  }

  #member(start: number): Test | string {
    const at = this.#at;
    const c = this.#text[this.#at++];
    if (c === undefined) return this.#fail(start, "'[' without ']'; write \\[ for the character");
    return c === "\\" ? (this.#escaped(at, true) as Test | string) : c;
  }
}

const code = (c: string) => c.codePointAt(0) as number;
const isChar = (c: string): Test => {
  const expected = code(c);
  return ignoringCase((each) => each === expected);
};
const sizeOf = (items: readonly Item[]) => items.reduce((sum, { size }) => sum + size, 1);

type Node =
  | { kind: "char"; test: Test; next: number }
  | { kind: "assert"; what: Assertion; next: number }
  | { kind: "split"; next: number; other: number };

const MATCH = -1;
const add = (nodes: Node[], node: Node) => nodes.push(node) - 1;
const character = (test: Test): Item => ({ size: 1, build: (nodes, next) => add(nodes, { kind: "char", test, next }) });
const assertion = (what: Assertion): Item => ({
  size: 1,
  isAssertion: true,
  build: (nodes, next) => add(nodes, { kind: "assert", what, next }),
});

interface State {
  /** nodes to continue from, and whether the last character was one of a word; undefined: there was none */
  nodes: readonly number[];
  before: boolean | undefined;
  /** by character; the last one is the end of the text */
  ascii: (State | undefined)[];
  others: Map<number, State>;
}

const END = 128;
const newState = (nodes: readonly number[], before: boolean | undefined): State => ({
  nodes,
  before,
  ascii: [],
  others: new Map(),
});

class Automaton {
  readonly #nodes: Node[] = [];
  readonly #start: number;
  readonly #found = newState([], undefined);
  #states = new Map<string, State>();

  constructor(build: Build) {
    this.#start = build(this.#nodes, MATCH);
  }

  test(text: string): boolean {
    let state = this.#state([], undefined);
    for (let i = 0; i < text.length; i++) {
      const code = text.codePointAt(i) as number;
      if (code > 0xffff) i++;
      state = this.#step(state, code);
      if (state === this.#found) return true;
    }
    return this.#step(state, END, true) === this.#found;
  }

  #step(state: State, code: number, end = false): State {
    const known = end || code < END ? state.ascii[code] : state.others.get(code);
    if (known) return known;
    const next = this.#make(state, end ? undefined : code);
    if (end || code < END) state.ascii[code] = next;
    else state.others.set(code, next);
    return next;
  }

  #state(nodes: readonly number[], before: boolean | undefined): State {
    const key = `${before}/${nodes.join()}`;
    let state = this.#states.get(key);
    if (!state) {
      if (this.#states.size > MOST_STATES) this.#states = new Map();
      state = newState(nodes, before);
      this.#states.set(key, state);
    }
    return state;
  }

  /** `code` undefined: the end of the text. A match can begin at every character. */
  #make({ nodes, before }: State, code: number | undefined): State {
    const after = code === undefined ? undefined : isWord(code);
    const boundary = (before ?? false) !== (after ?? false);
    const holds = { "^": before === undefined, $: after === undefined, b: boundary, B: !boundary };
    const seen = new Set<number>();
    const next = new Set<number>();
    const todo = [...nodes, this.#start];
    while (todo.length) {
      const at = todo.pop() as number;
      if (at === MATCH) return this.#found;
      if (seen.has(at)) continue;
      seen.add(at);
      const node = this.#nodes[at] as Node;
      if (node.kind === "split") todo.push(node.next, node.other);
      else if (node.kind === "assert") {
        if (holds[node.what]) todo.push(node.next);
      } else if (code !== undefined && node.test(code)) next.add(node.next);
    }
    return this.#state(
      [...next].sort((a, b) => a - b),
      after,
    );
  }
}
