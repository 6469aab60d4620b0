/** Find tensor names: fuzzy (every word of the query, letters in order) or by substring. */

export interface NameMatch {
  /** index into the list of names */
  index: number;
  /** positions of the matching characters */
  positions: number[];
}

/** Only this many characters of a name are searched. */
const SEARCHED_CHARACTERS = 400;

/** Score of a word within a name, or undefined. Consecutive letters and starts of path parts score higher. */
export function fuzzyWord(word: string, name: string): { score: number; positions: number[] } | undefined {
  const lower = name.toLowerCase();
  const whole = lower.indexOf(word);
  const startsPart = (i: number) => i === 0 || /[^a-z0-9]/.test(lower[i - 1] as string);
  if (whole >= 0)
    return {
      score: 100 + word.length * 4 + (startsPart(whole) ? 30 : 0) - whole / 50,
      positions: Array.from(word, (_, i) => whole + i),
    };
  const positions: number[] = [];
  let score = 0;
  let from = 0;
  for (const letter of word) {
    const i = lower.indexOf(letter, from);
    if (i < 0) return undefined;
    score += i === from && positions.length ? 4 : startsPart(i) ? 3 : 0;
    score -= Math.min(3, (i - from) / 10);
    positions.push(i);
    from = i + 1;
  }
  return { score, positions };
}

/** Matching names, best first. */
export function fuzzyMatches(names: readonly string[], query: string): NameMatch[] {
  const out: (NameMatch & { score: number })[] = [];
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  names.forEach((name, index) => {
    const text = name.slice(0, SEARCHED_CHARACTERS);
    let score = -text.length / 100;
    const positions: number[] = [];
    for (const word of words) {
      const found = fuzzyWord(word, text);
      if (!found) return;
      score += found.score;
      positions.push(...found.positions);
    }
    out.push({ index, score, positions });
  });
  return out.sort((a, b) => b.score - a.score || a.index - b.index);
}

/** First match of a pattern in a name, as `[index, start, end]`. */
export type Span = readonly [index: number, start: number, end: number];

/** Names that contain a text, in order, ignoring case. */
export function substringSpans(names: readonly string[], text: string): Span[] {
  const wanted = text.toLowerCase();
  return names.flatMap((name, index): Span[] => {
    const start = name.slice(0, SEARCHED_CHARACTERS).toLowerCase().indexOf(wanted);
    return start < 0 ? [] : [[index, start, start + text.length]];
  });
}

export const spanMatch = ([index, start, end]: Span): NameMatch => ({
  index,
  positions: Array.from({ length: end - start }, (_, i) => start + i),
});
