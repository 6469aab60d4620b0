/**
 * Patterns of names: globs, and a subset of regular expressions that is matched in time linear in the length of a name: a
 * deterministic automaton whose states are made when a name first needs them. A backtracking RegExp could block the page for
 * years, and would differ from Python's. Python has the same patterns in `smdwidgets/queries/pattern.py`.
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

/** Returns whether literal parts occur in a name in order, anywhere. */
export function makeGlob(parts: readonly string[]): (name: string) => boolean {
  const wanted = parts.map(folded).filter(Boolean);
  return (name) => {
    const lower = folded(name);
    let at = 0;
    for (const part of wanted) {
      const found = lower.indexOf(part, at);
      if (found < 0) return false;
      at = found + part.length;
    }
    return true;
  };
}

type Test = (code: number) => boolean;
type Assertion = "^" | "$" | "b" | "B";
type Item =
  | { kind: "char"; test: Test }
  | { kind: "assert"; what: Assertion }
  | { kind: "all"; items: Item[] }
  | { kind: "any"; items: Item[] }
  | { kind: "repeat"; item: Item; min: number; max: number };

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

  parse(): Item {
    const item = this.#alternatives(0);
    if (this.#at < this.#text.length) this.#fail(this.#at, "')' without '('; write \\) for the character");
    return item;
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
    return items.length === 1 ? (items[0] as Item) : { kind: "any", items };
  }

  #sequence(depth: number): Item {
    const items: Item[] = [];
    while (this.#next !== undefined && this.#next !== "|" && this.#next !== ")")
      items.push(this.#repeated(this.#one(depth)));
    return { kind: "all", items };
  }

  get #repeats(): boolean {
    return this.#next !== undefined && "*+?{".includes(this.#next);
  }

  #repeated(item: Item): Item {
    if (!this.#repeats) return item;
    const start = this.#at;
    if (item.kind === "assert") this.#fail(start, "nothing to repeat");
    const c = this.#text[this.#at++] as string;
    const [min, max] = c === "{" ? this.#times(start) : [c === "+" ? 1 : 0, c === "?" ? 1 : Number.POSITIVE_INFINITY];
    if (this.#next === "?") this.#at++; // whether the shortest or the longest match is found makes no difference
    if (this.#repeats) this.#fail(this.#at, "nothing to repeat");
    return { kind: "repeat", item, min, max };
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

  #one(depth: number): Item {
    const start = this.#at;
    const c = this.#text[this.#at++] as string;
    if (c === "(") return this.#group(start, depth);
    if (c === "[") return { kind: "char", test: this.#set(start) };
    if (c === "\\") return this.#escape(start);
    if (c === ".") return { kind: "char", test: () => true };
    if (c === "^" || c === "$") return { kind: "assert", what: c };
    if ("*+?".includes(c)) this.#fail(start, "nothing to repeat");
    if ("{}]".includes(c)) this.#fail(start, `write \\${c} for the character`);
    return character(c);
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
    const found = this.#escaped(start, false);
    return typeof found === "string"
      ? character(found)
      : typeof found === "function"
        ? { kind: "char", test: found }
        : found;
  }

  /** The character, class or assertion of an escape, whose backslash was read. */
  #escaped(start: number, inside: boolean): Test | string | { kind: "assert"; what: Assertion } {
    const c = this.#text[this.#at++];
    if (c === undefined) return this.#fail(start, "nothing after the backslash");
    if (Object.hasOwn(CLASSES, c)) return CLASSES[c] as Test;
    if (Object.hasOwn(CONTROLS, c)) return CONTROLS[c] as string;
    if (!inside && (c === "b" || c === "B")) return { kind: "assert", what: c };
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

function character(c: string): Item {
  const wanted = code(c);
  return { kind: "char", test: ignoringCase((each) => each === wanted) };
}

type Node =
  | { kind: "char"; test: Test; next: number }
  | { kind: "assert"; what: Assertion; next: number }
  | { kind: "split"; next: number; other: number };

const MATCH = -1;

class TooLarge extends Error {}

/** Builds the nodes of an item from its end to its start, so that each knows what follows. */
function build(nodes: Node[], left: { parts: number }, item: Item, next: number): number {
  if (--left.parts < 0) throw new TooLarge();
  const add = (node: Node) => nodes.push(node) - 1;
  switch (item.kind) {
    case "char":
      return add({ kind: "char", test: item.test, next });
    case "assert":
      return add({ kind: "assert", what: item.what, next });
    case "all":
      return item.items.reduceRight((after, each) => build(nodes, left, each, after), next);
    case "any":
      return item.items
        .map((each) => build(nodes, left, each, next))
        .reduceRight((other, start) => add({ kind: "split", next: start, other }));
    case "repeat": {
      let start = next;
      if (item.max === Number.POSITIVE_INFINITY) {
        start = add({ kind: "split", next, other: next });
        (nodes[start] as { other: number }).other = build(nodes, left, item.item, start);
      } else
        for (let i = item.min; i < item.max; i++)
          start = add({ kind: "split", next, other: build(nodes, left, item.item, start) });
      for (let i = 0; i < item.min; i++) start = build(nodes, left, item.item, start);
      return start;
    }
  }
}

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

  constructor(item: Item) {
    this.#start = build(this.#nodes, { parts: MOST_PARTS }, item, MATCH);
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

/** Returns whether a regular expression, which starts at a place of a text, is found in a name. Throws PatternError. */
export function makeRegex(pattern: string, offset = 0): (name: string) => boolean {
  const item = new Parser(pattern, offset).parse();
  try {
    const automaton = new Automaton(item);
    return (name) => automaton.test(name);
  } catch (error) {
    if (!(error instanceof TooLarge)) throw error;
    throw new PatternError(offset, offset + [...pattern].length, "the pattern is too large");
  }
}
