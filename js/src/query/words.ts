/**
 * Words of a query: case, quoting in messages, and spelling suggestions. Python has the same functions in
 * `smdwidgets/queries/words.py`. They depend on no Unicode table, so that both give equal results.
 */

/** Maximum characters of a word in a message, and of a word that is checked for misspellings. */
const SHOWN = 40;
const MOST_CANDIDATES = 1000;
/** Words of other tools. */
const SYNONYMS: Record<string, string> = {
  norm: "l2",
  rms: "size",
  not_finite: "nonfinite",
  nan: "nonfinite",
  limit: "top",
  head: "top",
  order: "sort",
  "&&": "and",
  "!": "not",
};

/** The text with ASCII letters in lower case. */
export const folded = (text: string): string => text.replace(/[A-Z]+/g, (upper) => upper.toLowerCase());

const HIDDEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is replaced
  /[\0-\x1f\x7f-\x9f\xad\u061c\ufeff\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff]/gu;

/** A word for a message: in quotes, shortened, with invisible characters escaped. */
export function quoted(word: string): string {
  const letters = [...word];
  const short = letters.length <= SHOWN ? word : `${letters.slice(0, SHOWN - 1).join("")}\u2026`;
  return `'${short.replace(HIDDEN, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`)}'`;
}

/** Number of letters to insert, remove, replace or swap. */
function typingErrors(a: readonly string[], b: readonly string[]): number {
  let before: number[] = [];
  let last = [...b.keys(), b.length];
  a.forEach((letter, i) => {
    const row = [i + 1];
    b.forEach((other, j) => {
      let cost = Math.min(
        (last[j + 1] as number) + 1,
        (row[j] as number) + 1,
        (last[j] as number) + (letter === other ? 0 : 1),
      );
      if (i && j && letter === b[j - 1] && a[i - 1] === other) cost = Math.min(cost, (before[j - 1] as number) + 1);
      row.push(cost);
    });
    before = last;
    last = row;
  });
  return last[b.length] as number;
}

/** The candidate that a word probably misspells: at most two errors, and at most one in three characters. */
export function closest(word: string, candidates: Iterable<string>): string | undefined {
  const wrong = folded(word);
  const known = [...candidates].slice(0, MOST_CANDIDATES);
  const synonym = Object.hasOwn(SYNONYMS, wrong) ? SYNONYMS[wrong] : undefined;
  if (synonym !== undefined && known.includes(synonym)) return synonym;
  const letters = [...wrong];
  if (letters.length > SHOWN) return undefined;
  let best: string | undefined;
  let fewest = 3;
  for (const candidate of known) {
    const other = [...folded(candidate)];
    const allowed = Math.min(2, Math.floor(Math.max(letters.length, other.length) / 3), fewest - 1);
    if (Math.abs(letters.length - other.length) > allowed) continue;
    const errors = typingErrors(letters, other);
    if (errors > allowed) continue;
    best = candidate;
    fewest = errors;
  }
  return best;
}
