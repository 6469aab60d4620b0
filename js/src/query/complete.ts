/** What can be typed next in a query. Places are indices of the text. */

import { OPERATORS, stageWords, type Vocabulary } from "./parse";
import { makeGlob } from "./pattern";
import { folded } from "./words";

export interface Option {
  /** what replaces the text between `start` and `end` */
  insert: string;
  label: string;
  note: string;
}

export interface Completion {
  start: number;
  end: number;
  options: Option[];
}

/** What a query is about. */
export interface Subject {
  words: Vocabulary;
  names: readonly string[];
  /** number of rows by collection */
  counts?: ReadonlyMap<string, { length: number }>;
  /** what a key is, in a few words */
  note(key: string): string;
  /** texts that a key has */
  values?(key: string): readonly string[];
}

const MOST = 50;
const MOST_NAMES = 5000;
const NOTES: Record<string, string> = {
  top: "keep the first rows",
  sort: "order the rows",
  steps: "only these steps",
  as: "map, curves, histograms, table",
  not: "the other rows",
};
const VIEW_NOTES: Record<string, string> = {
  map: "colours over steps",
  curves: "one small curve each",
  histograms: "one small histogram each",
  table: "numbers",
};
/** Words after which more is to come. */
const OPEN: Record<string, string> = { top: "top 12 by ", sort: "sort by ", steps: "steps ", as: "as " };

const JOINTS = ["and", "or"];

const plain = (word: string): Option => ({ insert: `${word} `, label: word, note: "" });
/** A word as it is written in a query. */
const written = (word: string) => (/[\s|"'`()<>=!~]|\.\./.test(word) ? `"${word.replace(/["\\]/g, "\\$&")}"` : word);
const keyOptions = (subject: Subject, keys: readonly string[]): Option[] =>
  keys.map((key) => ({ insert: `${written(key)} `, label: key, note: subject.note(key) }));

export function complete(text: string, caret: number, subject: Subject): Completion {
  const before = text.slice(0, caret);
  const bar = lastBar(before);
  const part = before.slice(bar + 1);
  const operand = lastOperand(part);
  const start = bar + 1 + operand;
  const isWhole = !part.slice(0, operand).trim();
  const completion = bar < 0 ? ofSelect(text, start, caret, subject) : undefined;
  return completion ?? ofStage(text, start, caret, subject, isWhole);
}

/** Where the last condition begins that `and`, `or`, `not` and parentheses combine with others. */
function lastOperand(part: string): number {
  let start = 0;
  for (;;) {
    const rest = part.slice(start);
    const [head, opens] = /^\s*(not(?=[\s(])|\()?/i.exec(rest) as RegExpExecArray;
    const joint = /^(?:"(?:\\.|[^"\\])*"|(?!\s(?:and|or)[\s(])[^"])*\s(?:and|or)(?=[\s(])/i.exec(rest);
    if (!opens && !joint) return start + (head as string).length;
    start += opens ? (head as string).length : (joint?.[0].length ?? 0);
  }
}

/** The last bar that ends a part; -1: none. */
function lastBar(text: string): number {
  let last = -1;
  let inside = "";
  for (let i = 0; i < text.length; i++) {
    const c = text[i] as string;
    if (c === "\\") i++;
    else if (inside) inside = c === inside ? "" : inside;
    else if (c === '"') inside = c;
    else if (c === "/" && !text.slice(last + 1, i).trim()) inside = c;
    else if (c === "|") last = i;
  }
  return last;
}

function limited(typed: string, start: number, end: number, options: Option[]): Completion {
  const wanted = folded(typed);
  const fits = options.filter(({ label }) => folded(label).startsWith(wanted) && folded(label) !== wanted);
  return { start, end, options: fits.slice(0, MOST) };
}

function ofSelect(text: string, start: number, caret: number, subject: Subject): Completion | undefined {
  const { words, names, counts } = subject;
  const typed = text.slice(start, caret);
  const end = caret + (/^((?!\s(?:and|or)[\s(])[^|])*/i.exec(text.slice(caret))?.[0] ?? "").trimEnd().length;
  const ofCollection = (name: string): Option => {
    const size = counts?.get(name)?.length;
    return { insert: `@${written(name)} `, label: `@${name}`, note: size === undefined ? "" : String(size) };
  };
  const collections = [...words.collections].map(ofCollection);
  if (typed.startsWith("@")) return limited(typed, start, end, collections);
  // Inside of quotes, and of a regular expression.
  if (/^(\/|"(\\.|[^"\\])*$)/.test(typed)) return { start, end, options: [] };
  if (/[<>=!~]/.test(typed.replace(/^"(\\.|[^"\\])*"/, ""))) return undefined;
  // After a space comes a stage; what is before it can be the key of one.
  if (/\s$/.test(typed)) {
    const next = stages(subject).map((each) => ({ ...each, insert: `| ${each.insert}` }));
    return {
      start: caret,
      end: caret,
      options: [...(keyOf(typed.trim(), words) ? OPERATORS.map(plain) : []), ...next, ...JOINTS.map(plain)],
    };
  }
  // The last part of the names that match what was typed.
  const from = Math.max(...[".", "/", "*"].map((each) => typed.lastIndexOf(each))) + 1;
  const stem = typed.slice(from);
  const glob = makeGlob(typed.split("*"));
  const parts = new Map<string, { n: number; last: string }>();
  const wanted = folded(stem);
  const head = folded(typed.slice(0, from).split("*").at(-1) as string);
  const matching = typed ? names.filter((name) => glob.matches(name)) : names;
  // Some of very many names stand for all.
  const step = Math.ceil(matching.length / MOST_NAMES);
  for (let i = 0; i < matching.length; i += step) {
    const name = matching[i] as string;
    const lower = folded(name);
    let at = 0;
    for (const each of lower.split(/[./]/)) {
      const fits = each.startsWith(wanted) && (head === "" || lower.slice(0, at).endsWith(head));
      if (fits && each) {
        const part = name.slice(at, at + each.length);
        const count = parts.get(part);
        if (!count) parts.set(part, { n: 1, last: name });
        else if (count.last !== name) Object.assign(count, { n: count.n + 1, last: name });
      }
      at += each.length + 1;
    }
  }
  const found = [...parts].sort((a, b) => b[1].n - a[1].n).slice(0, MOST);
  const options = found.map(([each, { n }]) => ({
    insert: escaped(each),
    label: each,
    note: step > 1 ? `\u2248 ${n * step}` : String(n),
  }));
  if (words.statistics.length) return limited(stem, start + from, end, [...options, ...(typed ? [] : collections)]);
  // A table without statistics is asked for its columns more often than for names.
  const keys = keyOptions(subject, words.keys);
  const dotted = limited(typed, start, end, keys);
  return from && dotted.options.length
    ? dotted
    : limited(stem, start + from, end, from ? options : [...keys, ...options]);
}

const escaped = (part: string) => part.replace(/[|*\\"@]/g, "\\$&");

/** The key that is written as a word. */
const keyOf = (word: string, { keys }: Vocabulary) => keys.find((key) => folded(written(key)) === folded(word));

const stages = (subject: Subject): Option[] =>
  [...new Set(stageWords(subject.words))].map((word) => {
    const key = subject.words.keys.includes(word);
    const insert = !key && Object.hasOwn(OPEN, word) ? (OPEN[word] as string) : `${written(word)} `;
    return { insert, label: word, note: key ? subject.note(word) : (NOTES[word] ?? "") };
  });

function ofStage(text: string, start: number, caret: number, subject: Subject, isWhole: boolean): Completion {
  const { words } = subject;
  const tokens = text.slice(start, caret).match(/"(\\.|[^"\\])*"?|[<>=!~]+|\.\.|((?!\.\.)[^\s"<>=!~])+|\s+$/g) ?? [];
  const last = tokens.at(-1) ?? "";
  const typed = /^\s*$/.test(last) ? "" : last;
  const done = tokens
    .slice(0, -1)
    .filter((each) => each.trim())
    .map(folded);
  const from = caret - typed.length;
  const end = caret + (typed ? (/^[^\s|"<>=!~)]*/.exec(text.slice(caret))?.[0].length ?? 0) : 0);
  const list = (options: Option[]) => limited(typed, from, end, options);
  const [word, ...rest] = done;
  if (word === undefined) return list(isWhole ? stages(subject) : [...keyOptions(subject, words.keys), plain("not")]);
  if (done.at(-1) === "by") return list(keyOptions(subject, words.keys));
  if (word === "as" && words.views.length) {
    const views = rest.length ? [] : words.views;
    return list(views.map((view) => ({ ...plain(view), note: VIEW_NOTES[view] ?? "" })));
  }
  const by = rest.indexOf("by");
  if (word === "top" || word === "sort") {
    if (by >= 0) return list(rest.length === by + 2 ? ["asc", "desc"].map(plain) : []);
    return list((word === "top" && !rest.length ? ["10", "12", "100"] : ["by"]).map(plain));
  }
  const key = keyOf(word, words);
  if (key === undefined) return list([]);
  if (!rest.length) return list(OPERATORS.map(plain));
  if (rest.length === 2) return list(JOINTS.map(plain));
  // Texts can only be equal.
  const values = rest.length === 1 && /^!?=$/.test(rest[0] as string) ? (subject.values?.(key) ?? []) : [];
  return list(values.map((value) => ({ insert: `${written(value)} `, label: value, note: "" })));
}
