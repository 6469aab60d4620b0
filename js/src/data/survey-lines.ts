/** The survey as rows of pixels: of all values and tensors that share a pixel, the one farthest from what is usual. */
import { defined } from "../lib/defined";
import { Memo } from "../lib/memo";
import { lowerIndex } from "../lib/sorted";
import { FLAG, type Survey, type SurveyBlock, type Surveys } from "./survey";

/** The bins of a level in which the run saved a step, from left to right. */
export interface BinList {
  bin: Float64Array;
  /** number of steps that the run saved in each bin; the first and the last of them */
  steps: Float64Array;
  first: Float64Array;
  last: Float64Array;
  /** pixels that each bin covers, the end exclusive */
  x0: Int32Array;
  x1: Int32Array;
}

/** The bins of all levels over a range of steps. A step reaches half way to its neighbours. */
export class StepBins {
  readonly #lists = new Map<number, BinList>();
  /** steps without a successor within this distance end before it */
  readonly #reach: number;

  constructor(
    /** saved steps, ascending */
    readonly steps: ArrayLike<number>,
    readonly from: number,
    readonly to: number,
    readonly pixels: number,
  ) {
    this.#reach = usualGap(steps);
  }

  at(level: number): BinList {
    let list = this.#lists.get(level);
    if (!list) {
      list = this.#make(2 ** level);
      this.#lists.set(level, list);
    }
    return list;
  }

  #make(width: number): BinList {
    const { steps, from, to, pixels } = this;
    const bin: number[] = [];
    const counts: number[] = [];
    const first: number[] = [];
    const last: number[] = [];
    const n = steps.length;
    // One step outside of the view on each side, because its bin can reach into it.
    let start = Math.max(0, lowerIndex(steps, from) - 1);
    while (start > 0 && Math.floor(defined(steps[start - 1]) / width) === Math.floor(defined(steps[start]) / width))
      start--;
    let after = 0;
    for (let i = start; i < n; i++) {
      const step = defined(steps[i]);
      const k = Math.floor(step / width);
      if (bin.at(-1) !== k) {
        if (step > to && after++) break;
        bin.push(k);
        counts.push(0);
        first.push(step);
        last.push(step);
      }
      const at = bin.length - 1;
      counts[at] = defined(counts[at]) + 1;
      last[at] = step;
    }
    const x = (step: number) => ((step - from) / (to - from)) * pixels;
    const inside = (pixel: number) => Math.max(0, Math.min(pixels, pixel));
    const size = bin.length;
    const [x0, x1] = [new Int32Array(size), new Int32Array(size)];
    for (let i = 0; i < size; i++) {
      const [a, b] = [defined(first[i]), defined(last[i])];
      const before = i > 0 ? a - defined(last[i - 1]) : this.#before(a);
      const behind = i + 1 < size ? defined(first[i + 1]) - b : this.#behind(b);
      const [left, right] = [x(a - Math.min(before / 2, this.#reach)), x(b + Math.min(behind / 2, this.#reach))];
      x0[i] = inside(Math.round(left));
      x1[i] = inside(Math.round(right));
      // Every bin in view has a pixel: that of its middle.
      if (x1[i] === x0[i] && right > 0 && left < pixels) {
        x0[i] = Math.min(pixels - 1, inside(Math.floor((left + right) / 2)));
        x1[i] = defined(x0[i]) + 1;
      }
    }
    const f8 = (list: number[]) => Float64Array.from(list);
    return { bin: f8(bin), steps: f8(counts), first: f8(first), last: f8(last), x0, x1 };
  }

  /** Distance to the neighbour of a step at either end of the list; the usual one if it has none. */
  #before(step: number): number {
    const i = lowerIndex(this.steps, step);
    return i > 0 ? step - defined(this.steps[i - 1]) : this.#reach;
  }
  #behind(step: number): number {
    const i = lowerIndex(this.steps, step);
    return i + 1 < this.steps.length ? defined(this.steps[i + 1]) - step : this.#reach;
  }
}

/** The median distance of neighbours, of at most 999 of them. */
export function usualGap(steps: ArrayLike<number>): number {
  const n = steps.length;
  if (n < 2) return 1;
  const every = Math.max(1, Math.floor((n - 1) / 999));
  const gaps: number[] = [];
  for (let i = 1; i < n; i += every) gaps.push(defined(steps[i]) - defined(steps[i - 1]));
  gaps.sort((a, b) => a - b);
  return gaps[gaps.length >> 1] || 1;
}

/** What a pixel shows, by rank: a value hides what was not saved. */
export const STATE = { notSaved: 0, blank: 1, unread: 2, value: 3 } as const;

/** One row of pixels. */
export interface Line {
  /** code; meaningful where the state is `value` */
  value: Float32Array;
  /** number of values merged */
  n: Float32Array;
  flag: Uint8Array;
  state: Uint8Array;
  /** all flags of its pixels, and of states `1 << state` */
  flags: number;
  states: number;
}

export const newLine = (pixels: number): Line => ({
  value: new Float32Array(pixels),
  n: new Float32Array(pixels),
  flag: new Uint8Array(pixels),
  state: new Uint8Array(pixels),
  flags: 0,
  states: 0,
});

/** The gaps of one tensor longer than this share of the view are marked as not saved; shorter ones stay empty. */
const LONG_GAP = 0.03;

/** Bins of a level, merged from those of several tensors; the value with the highest score is kept. */
type Level = Line & { score: Float32Array };
type Levels = ReadonlyMap<number, Level>;

/** A row of more tensors is merged once for the whole run, so that a zoom costs what its pixels cost. */
const MANY = 64;

/** The merged bins of rows of many tensors, which all parts of the axis share. */
export class WholeRows {
  readonly #inputs = new Memo();
  #levels = new WeakMap<readonly number[], Levels>();
  #merger: BinMerger | undefined;

  update(surveys: Surveys, survey: Survey | undefined, steps: ArrayLike<number>, none: number): void {
    if (!this.#inputs.changed([survey, survey?.version, steps, none])) return;
    this.#levels = new WeakMap();
    const bins = new StepBins(steps, steps[0] ?? 0, steps[steps.length - 1] ?? 0, 1);
    this.#merger = new BinMerger(surveys, survey, bins, none);
  }

  of(tensors: readonly number[]): Levels {
    const levels = this.#levels.get(tensors) ?? (this.#merger as BinMerger).merge(tensors);
    this.#levels.set(tensors, levels);
    return levels;
  }

  /** The index of a bin in those of a level. */
  place(level: number, bin: number): number {
    return lowerIndex((this.#merger as BinMerger).bins.at(level).bin, bin);
  }
}

/** Draws lines of rows, with buffers that all rows share. */
export class LineMaker {
  readonly #score: Float32Array;
  readonly #merger: BinMerger;

  constructor(
    surveys: Surveys,
    survey: Survey | undefined,
    private readonly bins: StepBins,
    /** pixels that a step in a sparse row has at least */
    private readonly least = 1,
    /** what a tensor without bins is: text, for example, is never read */
    none: number = STATE.unread,
    private readonly whole?: WholeRows,
  ) {
    this.#score = new Float32Array(bins.pixels);
    this.#merger = new BinMerger(surveys, survey, bins, none, new Map());
  }

  /** The line of a row: of its tensors together. */
  make(tensors: readonly number[], line = newLine(this.bins.pixels)): Line {
    const { bins } = this;
    for (const list of [line.value, line.n, line.flag, line.state, this.#score]) list.fill(0);
    const whole = tensors.length > MANY ? this.whole : undefined;
    for (const [level, from] of whole?.of(tensors) ?? this.#merger.merge(tensors)) {
      const { x0, x1, bin } = bins.at(level);
      const first = whole?.place(level, bin[0] ?? 0) ?? 0;
      for (let k = 0; k < x0.length; k++) {
        const i = first + k;
        const state = defined(from.state[i]);
        for (let p = defined(x0[k]); p < defined(x1[k]); p++) {
          line.flag[p] = defined(line.flag[p]) | defined(from.flag[i]);
          if (state > defined(line.state[p])) line.state[p] = state;
          if (state !== STATE.value) continue;
          line.n[p] = defined(line.n[p]) + defined(from.n[i]);
          if (defined(from.score[i]) < defined(this.#score[p])) continue;
          this.#score[p] = defined(from.score[i]);
          line.value[p] = defined(from.value[i]);
        }
      }
    }
    this.#widen(line);
    return line;
  }

  /** Single steps in a row that is otherwise empty would be hard to see. */
  #widen(line: Line) {
    const { state } = line;
    let wide = 0;
    line.flags = line.states = 0;
    for (let p = 0; p < state.length; p++) {
      const before = state[p - 1];
      if (state[p] === STATE.notSaved && before === STATE.value && wide < this.least) {
        for (const list of [line.value, line.n, line.flag, state]) list[p] = defined(list[p - 1]);
      }
      wide = state[p] === STATE.value ? wide + 1 : 0;
      line.flags |= defined(line.flag[p]);
      line.states |= 1 << defined(state[p]);
    }
  }
}

/** Merges the bins of tensors. */
class BinMerger {
  #levels = new Map<number, Level>();

  constructor(
    private readonly surveys: Surveys,
    private readonly survey: Survey | undefined,
    readonly bins: StepBins,
    private readonly none: number,
    /** levels to use again for each row; undefined: rows keep theirs */
    private readonly used?: Map<number, Level>,
  ) {}

  merge(tensors: readonly number[]): Levels {
    this.#levels = new Map();
    let none = false;
    for (const tensor of tensors) none = !(this.survey && this.#add(this.survey, tensor)) || none;
    if (none) this.#addNone();
    return this.#levels;
  }

  #level(level: number): Level {
    let found = this.#levels.get(level);
    if (!found) {
      const size = this.bins.at(level).bin.length;
      const used = this.used?.get(level);
      found = used ?? { ...newLine(size), score: new Float32Array(size) };
      if (used) for (const list of [used.value, used.n, used.flag, used.state, used.score]) list.fill(0);
      this.used?.set(level, found);
      this.#levels.set(level, found);
    }
    return found;
  }

  #addNone() {
    const { state } = this.#level(0);
    for (let i = 0; i < state.length; i++) state[i] = Math.max(defined(state[i]), this.none);
  }

  /** Adds a tensor's bins, each of the finest block that has it. False if there is none. */
  #add(survey: Survey, tensor: number): boolean {
    // Steps that finer blocks have shown.
    let from = Number.POSITIVE_INFINITY;
    let to = Number.NEGATIVE_INFINITY;
    let any = false;
    for (let b = survey.blocks.length - 1; b >= 0; b--) {
      const block = survey.blocks[b] as SurveyBlock;
      const row = block.rows.get(tensor);
      if (row === undefined) continue;
      const start = block.first * 2 ** block.level;
      const end = (block.first + block.bins) * 2 ** block.level;
      if (start >= from && end <= to) continue;
      if (end < this.bins.from || start > this.bins.to) continue;
      this.surveys.use(block);
      this.#addRow(survey, block, row, from, to);
      any = true;
      from = Math.min(from, start);
      to = Math.max(to, end);
    }
    return any;
  }

  #addRow(survey: Survey, block: SurveyBlock, row: number, from: number, to: number) {
    const list = this.bins.at(block.level);
    const out = this.#level(block.level);
    const bin = block.reader(row, survey.stat);
    const centre = block.usual(row, survey.stat);
    const size = list.bin.length;
    let missing = false;
    for (let i = 0; i < size; i++) {
      const k = defined(list.bin[i]) - block.first;
      if (k < 0 || k >= block.bins || (defined(list.first[i]) >= from && defined(list.last[i]) < to)) continue;
      if (bin.read(k, centre)) this.#put(out, i, bin.code, centre, bin.n || defined(list.steps[i]), bin.flag);
      else missing = true;
    }
    if (missing) this.#fill(block, row, survey, list, out, centre, from, to);
  }

  #put(out: Level, i: number, code: number, centre: number, n: number, flag: number) {
    out.flag[i] = defined(out.flag[i]) | flag;
    if (code === 0) {
      const state = flag & FLAG.unread ? STATE.unread : STATE.blank;
      if (state > defined(out.state[i])) out.state[i] = state;
      return;
    }
    const score = Math.abs(code - centre);
    out.n[i] = defined(out.n[i]) + n;
    if (out.state[i] === STATE.value && score <= defined(out.score[i])) return;
    out.state[i] = STATE.value;
    out.score[i] = score;
    out.value[i] = code;
  }

  /**
   * Between the steps at which a tensor was saved, its last value stands until the next one would be due. After it a
   * short gap stays empty: the evaluation steps of a gradient, for example.
   */
  #fill(
    block: SurveyBlock,
    row: number,
    survey: Survey,
    list: BinList,
    out: Level,
    centre: number,
    from: number,
    to: number,
  ) {
    const bin = block.reader(row, survey.stat);
    const size = list.bin.length;
    const saved: number[] = [];
    for (let i = 0; i < size; i++) {
      const k = defined(list.bin[i]) - block.first;
      if (k >= 0 && k < block.bins && bin.read(k, centre)) saved.push(i);
    }
    const due = usualGap(saved);
    const short = Math.max(2 * due, LONG_GAP * size);
    let next = 0;
    for (let i = 0; i < size; i++) {
      const k = defined(list.bin[i]) - block.first;
      if (k < 0 || k >= block.bins) continue;
      while (next < saved.length && defined(saved[next]) <= i) next++;
      const before = saved[next - 1];
      if (before === i || before === undefined) continue;
      if (defined(list.first[i]) >= from && defined(list.last[i]) < to) continue;
      const isShort = (saved[next] ?? size) - before <= short;
      // A map of sizes has no stripes where evaluation saves fewer tensors.
      if (i - before < due || (isShort && survey.stat === "growth")) {
        bin.read(defined(list.bin[before]) - block.first, centre);
        this.#put(out, i, bin.code, centre, 0, bin.flag);
      } else if (isShort) out.state[i] = Math.max(defined(out.state[i]), STATE.blank);
    }
  }
}
