/** Finding tensors by name: fuzzy (every word of the query, letters in order) or by regular expression. */

import { searchFor } from "./regex";

export interface Match {
  index: number;
  score: number;
  /** positions of the letters that matched, for marking them */
  at: number[];
}

/** Names of a megabyte exist; nobody searches beyond this. */
const LOOK_AT = 400;
/** A search that takes longer holds up the page. */
const SECONDS = 2;

/** Score of a word within a name, or undefined. Runs of letters and beginnings of path parts count more. */
export function fuzzyWord(word: string, name: string): { score: number; at: number[] } | undefined {
  const lower = name.toLowerCase();
  const whole = lower.indexOf(word);
  if (whole >= 0) {
    const starts = whole === 0 || /[^a-z0-9]/.test(lower[whole - 1] as string);
    return { score: 100 + word.length * 4 + (starts ? 30 : 0) - whole / 50, at: Array.from(word, (_, i) => whole + i) };
  }
  const at: number[] = [];
  let score = 0;
  let from = 0;
  for (const letter of word) {
    const i = lower.indexOf(letter, from);
    if (i < 0) return undefined;
    const starts = i === 0 || /[^a-z0-9]/.test(lower[i - 1] as string);
    score += i === from && at.length ? 4 : starts ? 3 : 0;
    score -= Math.min(3, (i - from) / 10);
    at.push(i);
    from = i + 1;
  }
  return { score, at };
}

/** Indices of the names that match, best first (regex: in order). Throws SyntaxError for a bad expression. */
export function find(names: readonly string[], query: string, kind: "fuzzy" | "regex"): Match[] {
  const out: Match[] = [];
  if (kind === "regex") {
    const search = searchFor(query);
    const until = performance.now() + SECONDS * 1000;
    names.forEach((name, index) => {
      if (index % 64 === 0 && performance.now() > until) throw new SyntaxError("this expression takes too long");
      const found = search(name.slice(0, LOOK_AT));
      if (found) out.push({ index, score: 0, at: Array.from({ length: found.length }, (_, i) => found.index + i) });
    });
    return out;
  }
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  names.forEach((name, index) => {
    const text = name.slice(0, LOOK_AT);
    let score = -text.length / 100;
    const at: number[] = [];
    for (const word of words) {
      const found = fuzzyWord(word, text);
      if (!found) return;
      score += found.score;
      at.push(...found.at);
    }
    out.push({ index, score, at });
  });
  return out.sort((a, b) => b.score - a.score || a.index - b.index);
}
