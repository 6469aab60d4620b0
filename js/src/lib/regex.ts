/**
 * Searching names by regular expressions in time that is linear in the name. The browser's own engine goes back and tries anew,
 * for years where repetitions lie within repetitions, and can't be stopped; so it is asked only where at most one thing repeats.
 * All else runs as a set of places in the pattern, each letter once. Look-around and back references can't run so, and are an
 * error where anything else repeats, too.
 */

export interface Found {
  index: number;
  length: number;
}

export type Search = (name: string) => Found | undefined;

type Step =
  | { kind: "one"; fits: (letter: string) => boolean }
  | { kind: "either"; next: number[] }
  | { kind: "edge"; holds: (name: string, at: number) => boolean }
  | { kind: "done" };

/** Repetitions are written out: more steps than this are refused. */
const MOST_STEPS = 2000;

/** A search for a pattern, letters of both cases alike. Throws SyntaxError for what is no pattern, or can't be used. */
export function searchFor(pattern: string): Search {
  const own = new RegExp(pattern, "i");
  if ((pattern.match(/[*+?{|]/g) ?? []).length <= 1) {
    return (name) => {
      const found = own.exec(name);
      return found ? { index: found.index, length: found[0].length } : undefined;
    };
  }
  const steps = new Program(pattern).steps;
  return (name) => run(steps, name);
}

function run(steps: readonly Step[], name: string): Found | undefined {
  // Where each place was begun from: the earliest, since what is leftmost is wanted.
  let here = new Map<number, number>();
  let best: Found | undefined;
  const enter = (into: Map<number, number>, place: number, start: number, at: number) => {
    const ahead = [place];
    for (let next = ahead.pop(); next !== undefined; next = ahead.pop()) {
      const known = into.get(next);
      if (known !== undefined && known <= start) continue;
      into.set(next, start);
      const step = steps[next] as Step;
      if (step.kind === "either") ahead.push(...step.next);
      else if (step.kind === "edge" && step.holds(name, at)) ahead.push(next + 1);
      else if (
        step.kind === "done" &&
        (!best || start < best.index || (start === best.index && at - start > best.length))
      )
        best = { index: start, length: at - start };
    }
  };
  for (let at = 0; at <= name.length; at++) {
    if (!best) enter(here, 0, at, at);
    if (here.size === 0) break;
    const there = new Map<number, number>();
    const letter = name[at];
    if (letter !== undefined)
      for (const [place, start] of here) {
        const step = steps[place] as Step;
        if (step.kind === "one" && (!best || start <= best.index) && step.fits(letter))
          enter(there, place + 1, start, at + 1);
      }
    here = there;
  }
  return best;
}

const isWord = (letter: string | undefined) => letter !== undefined && /\w/.test(letter);
const betweenWords = (name: string, at: number) => isWord(name[at - 1]) !== isWord(name[at]);

/** A pattern that the browser has found sound, as steps. */
class Program {
  readonly steps: Step[] = [];
  #at = 0;

  constructor(private readonly pattern: string) {
    this.#either();
    this.#add({ kind: "done" });
  }

  #add(step: Step): number {
    if (this.steps.length >= MOST_STEPS) throw new SyntaxError("this expression repeats too much");
    return this.steps.push(step) - 1;
  }

  /** Alternatives, up to the end or a closing parenthesis. */
  #either(): void {
    const start = this.steps.length;
    this.#sequence();
    while (this.pattern[this.#at] === "|") {
      this.#at++;
      const first = this.#cut(start);
      const fork = this.#add({ kind: "either", next: [] });
      this.#paste(first, start);
      const over = this.#add({ kind: "either", next: [] });
      this.steps[fork] = { kind: "either", next: [fork + 1, over + 1] };
      this.#sequence();
      this.steps[over] = { kind: "either", next: [this.steps.length] };
    }
  }

  #sequence(): void {
    while (this.#at < this.pattern.length && !"|)".includes(this.pattern[this.#at] as string)) this.#repeated();
  }

  #repeated(): void {
    const start = this.steps.length;
    this.#atom();
    const found = /^(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})\??/.exec(this.pattern.slice(this.#at));
    if (!found) return;
    this.#at += found[0].length;
    const least = found[1] ? (found[1] === "+" ? 1 : 0) : Number(found[2]);
    const most = found[1] ? (found[1] === "?" ? 1 : Infinity) : found[3] ? Number(found[4] || Infinity) : least;
    const body = this.#cut(start);
    for (let i = 0; i < least; i++) this.#paste(body, start);
    if (most === Infinity) {
      const fork = this.#add({ kind: "either", next: [] });
      this.#paste(body, start);
      this.#add({ kind: "either", next: [fork] });
      this.steps[fork] = { kind: "either", next: [fork + 1, this.steps.length] };
    } else {
      const forks = [];
      for (let i = least; i < most; i++) {
        forks.push(this.#add({ kind: "either", next: [] }));
        this.#paste(body, start);
      }
      for (const fork of forks) this.steps[fork] = { kind: "either", next: [fork + 1, this.steps.length] };
    }
  }

  #cut(start: number): Step[] {
    return this.steps.splice(start);
  }

  /** Adds steps that once began at `start`, wherever the end is now. */
  #paste(body: readonly Step[], start: number): void {
    const by = this.steps.length - start;
    for (const step of body)
      this.#add(step.kind === "either" ? { kind: "either", next: step.next.map((place) => place + by) } : step);
  }

  #atom(): void {
    const rest = this.pattern.slice(this.#at);
    if (rest.startsWith("(")) {
      const special = /^\((\?:|\?)?/.exec(rest)?.[1];
      if (special === "?")
        throw new SyntaxError("look-around and named groups can't be searched for here where several things repeat");
      this.#at += special ? 3 : 1;
      this.#either();
      this.#at++;
      return;
    }
    const text =
      /^(?:\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|c[a-z]|[\s\S])|\[(?:\\[\s\S]|[^\]\\])*\]|[\s\S])/i.exec(rest)?.[0] ?? "";
    this.#at += text.length;
    if (/^\\[1-9k]/.test(text))
      throw new SyntaxError("back references can't be searched for here where several things repeat");
    if (text === "^") this.#add({ kind: "edge", holds: (_, at) => at === 0 });
    else if (text === "$") this.#add({ kind: "edge", holds: (name, at) => at === name.length });
    else if (text === "\\b") this.#add({ kind: "edge", holds: betweenWords });
    else if (text === "\\B") this.#add({ kind: "edge", holds: (name, at) => !betweenWords(name, at) });
    else {
      const single = new RegExp(`^(?:${"{}]".includes(text) ? `\\${text}` : text})$`, "i");
      const known = new Map<string, boolean>();
      this.#add({
        kind: "one",
        fits: (letter) => {
          let fits = known.get(letter);
          if (fits === undefined) {
            fits = single.test(letter);
            known.set(letter, fits);
          }
          return fits;
        },
      });
    }
  }
}
