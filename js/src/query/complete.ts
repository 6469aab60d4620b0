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

const MOST = 50;
const NOTES: Record<string, string> = {
  size: "root mean square",
  l2: "L2 norm",
  update: "update ratio",
  zeros: "share of zeros",
  nonfinite: "share of NaN and infinite",
  surprise: "distance from the usual size",
  mean: "mean",
  std: "standard deviation",
  min: "minimum",
  max: "maximum",
  change: "largest / smallest size",
  worst: "farthest from the median",
  first: "first value",
  last: "last value",
  name: "name, in natural order",
  top: "keep the first rows",
  sort: "order the rows",
  steps: "only these steps",
  as: "map, curves, histograms, table",
  map: "colours over steps",
  curves: "one small curve each",
  histograms: "one small histogram each",
  table: "numbers",
};
/** Words after which more is to come. */
const OPEN: Record<string, string> = { top: "top 12 by ", sort: "sort by ", steps: "steps ", as: "as " };

const note = (word: string) => (Object.hasOwn(NOTES, word) ? (NOTES[word] as string) : "");
const plain = (word: string): Option => ({ insert: `${word} `, label: word, note: note(word) });
/** A key as it is written in a query. */
const written = (word: string) => (/[\s|"<>=!]|\.\./.test(word) ? `"${word.replace(/["\\]/g, "\\$&")}"` : word);

/** `counts`: number of rows by collection. */
export function complete(
  text: string,
  caret: number,
  words: Vocabulary,
  names: readonly string[],
  counts: ReadonlyMap<string, { length: number }> = new Map(),
): Completion {
  const before = text.slice(0, caret);
  const bar = lastBar(before);
  const part = before.slice(bar + 1);
  const start = bar + 1 + (part.length - part.trimStart().length);
  const found = bar < 0 ? ofSelect(text, start, caret, words, names, counts) : undefined;
  return found ?? ofStage(text, start, caret, words);
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

function ofSelect(
  text: string,
  start: number,
  caret: number,
  words: Vocabulary,
  names: readonly string[],
  counts: ReadonlyMap<string, { length: number }>,
): Completion | undefined {
  const typed = text.slice(start, caret);
  const end = caret + (/^[^|]*/.exec(text.slice(caret))?.[0] ?? "").trimEnd().length;
  const ofCollection = (name: string): Option => {
    const size = counts.get(name)?.length;
    const quoted = /[\s|"<>=!]|\.\./.test(name) ? written(name) : name;
    return { insert: `@${quoted} `, label: `@${name}`, note: size === undefined ? "" : String(size) };
  };
  const collections = [...words.collections].map(ofCollection);
  if (typed.startsWith("@")) return limited(typed, start, end, collections);
  if (/^["/]/.test(typed)) return { start, end, options: [] };
  if (/[<>=!]/.test(typed)) return undefined;
  // After a space comes a stage.
  if (/\s$/.test(typed))
    return {
      start: caret,
      end: caret,
      options: stages(words).map((each) => ({ ...each, insert: `| ${each.insert}` })),
    };
  // The last part of the names that match what was typed.
  const from = Math.max(...[".", "/", "*"].map((each) => typed.lastIndexOf(each))) + 1;
  const stem = typed.slice(from);
  const matches = makeGlob(typed.split("*"));
  const parts = new Map<string, number>();
  const wanted = folded(stem);
  const head = folded(typed.slice(0, from).split("*").at(-1) as string);
  for (const name of names) {
    if (!matches(name)) continue;
    const lower = folded(name);
    const seen = new Set<string>();
    let at = 0;
    for (const each of lower.split(/[./]/)) {
      const fits = each.startsWith(wanted) && (head === "" || lower.slice(0, at).endsWith(head));
      if (fits && each) seen.add(name.slice(at, at + each.length));
      at += each.length + 1;
    }
    for (const each of seen) parts.set(each, (parts.get(each) ?? 0) + 1);
  }
  const found = [...parts].sort((a, b) => b[1] - a[1]).slice(0, MOST);
  const options = found.map(([each, n]) => ({ insert: escaped(each), label: each, note: String(n) }));
  const keys = typed === "" ? [] : words.statistics.length ? [] : words.keys.map((each) => plain(written(each)));
  return limited(stem, start + from, end, [...options, ...(typed ? keys : collections)]);
}

const escaped = (part: string) => part.replace(/[|*\\"@]/g, "\\$&");

const stages = (words: Vocabulary): Option[] =>
  [...new Set(stageWords(words))].map((word) => ({
    insert: Object.hasOwn(OPEN, word) ? (OPEN[word] as string) : `${written(word)} `,
    label: word,
    note: note(word),
  }));

function ofStage(text: string, start: number, caret: number, words: Vocabulary): Completion {
  const tokens = text.slice(start, caret).match(/"(\\.|[^"\\])*"?|[<>=!]+|\.\.|((?!\.\.)[^\s"<>=!])+|\s+$/g) ?? [];
  const last = tokens.at(-1) ?? "";
  const typed = /^\s*$/.test(last) ? "" : last;
  const done = tokens
    .slice(0, -1)
    .filter((each) => each.trim())
    .map(folded);
  const from = caret - typed.length;
  const end = caret + (typed ? (/^[^\s|"<>=!]*/.exec(text.slice(caret))?.[0].length ?? 0) : 0);
  const list = (options: Option[]) => limited(typed, from, end, options);
  const all = (each: readonly string[]) => list(each.map((word) => ({ ...plain(word), insert: `${written(word)} ` })));
  const [word, ...rest] = done;
  const previous = done.at(-1);
  if (word === undefined) return list(stages(words));
  if (previous === "by") return all(words.keys);
  if (word === "as") return all(rest.length ? [] : words.views);
  if (word === "top" || word === "sort") {
    const by = rest.indexOf("by");
    if (by >= 0) return all(rest.length === by + 2 ? ["asc", "desc"] : []);
    return all(word === "top" && !rest.length ? ["10", "12", "100"] : ["by"]);
  }
  const known = words.keys.some((key) => folded(key) === word);
  return list(known && !rest.length ? OPERATORS.map(plain) : []);
}
