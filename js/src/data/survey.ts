/**
 * The survey of runs: one statistic of many tensors over all steps, as codes in aligned bins. Packets of several levels
 * are kept side by side, and a finer one is preferred where there is one, so that a picture is never blank.
 */
import { defined } from "../lib/defined";
import type { Blocks } from "../protocol/packet";
import { type MapStat, SURVEY_FLAGS, type SurveyHead } from "../protocol/types";

const bit = (name: (typeof SURVEY_FLAGS)[number]) => 1 << SURVEY_FLAGS.indexOf(name);

/** Bits of a bin's flags. */
export const FLAG = {
  nan: bit("nan"),
  infinite: bit("infinite"),
  fired: bit("fired"),
  error: bit("error"),
  sampled: bit("sampled"),
  unread: bit("unread"),
  reductions: bit("reductions"),
  sudden: bit("sudden"),
};
export const NOT_FINITE_FLAGS = FLAG.nan | FLAG.infinite;

/** Values of the first and the last code. Those of growth and sizes are powers of ten. */
const DOMAINS: Record<MapStat, [number, number]> = {
  growth: [-6.4, 6.4],
  size: [-30, 20],
  l2: [-30, 20],
  update: [-30, 20],
  zeros: [0, 1],
  not_finite: [0, 1],
  surprise: [-64, 64],
};
/** 0 is no value. */
const CODES = 65535;
export const isLog = (stat: MapStat) => DOMAINS[stat][0] < -1 && stat !== "surprise";

/** Statistics whose usual value is that of the middle code. */
export const isCentred = (stat: MapStat) => stat === "growth" || stat === "surprise";
/** Code of no growth, and of no surprise. */
export const MIDDLE = (CODES + 1) / 2;

/** The scale of a survey that does not say its own: a factor of 4. */
const GROWTH = Math.log10(4);

/** The code as a position on the statistic's linear or logarithmic scale. */
export function codePosition(stat: MapStat, code: number): number {
  const [lo, hi] = DOMAINS[stat];
  return lo + ((code - 1) / (CODES - 1)) * (hi - lo);
}

/** The value that a code stands for; NaN of no value. */
export function codeValue(stat: MapStat, code: number): number {
  if (code === 0) return Number.NaN;
  if (!isLog(stat)) return codePosition(stat, code);
  return code === 1 ? 0 : 10 ** codePosition(stat, code);
}

/** The code of a value. Used by the demo and the tests. */
export function codeOf(stat: MapStat, value: number): number {
  if (Number.isNaN(value)) return 0;
  const [lo, hi] = DOMAINS[stat];
  const at = isLog(stat) ? Math.log10(value) : value;
  return 1 + Math.round(((Math.max(lo, Math.min(hi, at)) - lo) / (hi - lo)) * (CODES - 1));
}

/** Bytes of all blocks that are kept. */
const MAX_BYTES = 64 << 20;

type Name = "lo" | "mid" | "hi" | "n" | "shown" | "flag";
const NAMES: Name[] = ["lo", "mid", "hi", "n", "shown", "flag"];
type Codes = Uint8Array | Uint16Array;

/** Reads the bins of a row. The fields describe the bin that was read last. */
export class BinReader {
  /** the extreme that is farther from the centre; 0: no value */
  code = 0;
  /** saved steps; 0: unknown, in a poster */
  n = 0;
  flag = 0;
  /** of shares, the larger one is always the worse */
  readonly #isShare: boolean;

  constructor(
    private readonly arrays: Partial<Record<Name, Codes>>,
    /** the cell of the row's first bin */
    private readonly start: number,
    stat: MapStat,
  ) {
    this.#isShare = stat === "zeros" || stat === "not_finite";
  }

  /** Reads a bin, numbered from the block's first one: false if nothing was saved in it. */
  read(k: number, centre: number): boolean {
    const { lo, hi, n, shown, flag } = this.arrays;
    const i = this.start + k;
    this.flag = flag?.[i] ?? 0;
    if (shown) {
      const byte = defined(shown[i]);
      // The middle of the codes with this high byte.
      this.code = byte && (byte << 8) | 128;
      this.n = 0;
      return byte > 0 || (this.flag & ~FLAG.sampled) !== 0;
    }
    const a = lo?.[i] ?? 0;
    const b = hi?.[i] ?? 0;
    this.code = this.#isShare || b - centre >= centre - a ? b : a;
    this.n = n?.[i] ?? 0;
    return this.n > 0 || (this.flag & ~FLAG.sampled) !== 0;
  }
}

/** Bins of one level, from `first` on, of some tensors. */
export class SurveyBlock {
  readonly rows = new Map<number, number>();
  /** cells from one row to the next */
  stride: number;
  /** the codes of a poster have one byte, and its bins no extremes */
  readonly poster: boolean;
  lastUse = 0;
  /** changes with the cells */
  version = 0;
  readonly #arrays: Partial<Record<Name, Codes>> = {};
  /** the arrays are not views of a packet, which other views of the widget read too */
  #owned = false;
  #centres: Float32Array | undefined;
  /** how often each high byte of a code is in a row */
  #counts: Uint32Array | undefined;
  #extent: { version: number; lo: number; hi: number } | undefined;

  constructor(
    readonly level: number,
    public first: number,
    public bins: number,
    tensors: ArrayLike<number>,
    arrays: Blocks,
  ) {
    for (let i = 0; i < tensors.length; i++) this.rows.set(defined(tensors[i]), i);
    this.stride = bins;
    for (const name of NAMES) {
      const data = arrays[name]?.data;
      if (data?.length === tensors.length * bins) this.#arrays[name] = data as Codes;
    }
    this.poster = this.#arrays.shown !== undefined;
  }

  get valid(): boolean {
    const { flag, shown, lo, mid, hi, n } = this.#arrays;
    return this.bins > 0 && flag !== undefined && (shown !== undefined || Boolean(lo && mid && hi && n));
  }

  get bytes(): number {
    return Object.values(this.#arrays).reduce((sum, each) => sum + each.byteLength, 0);
  }

  /** The codes of all cells; those of row r start at r * stride. */
  array(name: Name): Codes | undefined {
    return this.#arrays[name];
  }

  /** A reader of the bins of a row. */
  reader(row: number, stat: MapStat): BinReader {
    return new BinReader(this.#arrays, row * this.stride, stat);
  }

  /** The code of a row's usual value. */
  usual(row: number, stat: MapStat): number {
    return isCentred(stat) ? MIDDLE : this.centre(row);
  }

  /** The median code of a row, to one part in 256 of the domain. */
  centre(row: number): number {
    this.#centres ??= new Float32Array(this.rows.size);
    const known = this.#centres[row];
    if (known) return known;
    const codes = this.#arrays.shown ?? this.#arrays.mid;
    const shift = this.#arrays.shown ? 0 : 8;
    this.#counts ??= new Uint32Array(256);
    const counts = this.#counts.fill(0);
    let total = 0;
    for (let i = row * this.stride; i < row * this.stride + this.bins; i++) {
      const code = codes?.[i] ?? 0;
      if (code === 0) continue;
      const bucket = code >> shift;
      counts[bucket] = defined(counts[bucket]) + 1;
      total++;
    }
    let bucket = 0;
    for (let seen = defined(counts[0]); seen * 2 < total; seen += defined(counts[bucket])) bucket++;
    const centre = (bucket << 8) | 128;
    this.#centres[row] = centre;
    return centre;
  }

  /** The smallest and largest code of values other than 0. */
  get extent(): { lo: number; hi: number } {
    if (this.#extent?.version === this.version) return this.#extent;
    let [lo, hi] = [65535, 0];
    const shift = this.poster ? 8 : 0;
    for (const name of this.poster ? (["shown"] as const) : (["lo", "hi"] as const))
      for (const each of this.#arrays[name] ?? []) {
        if (each <= 1) continue;
        const code = each << shift;
        if (code < lo) lo = code;
        if (code > hi) hi = code;
      }
    this.#extent = { version: this.version, lo, hi };
    return this.#extent;
  }

  /** Whether the bins of another block of the level overlap or adjoin, and all its tensors have a row. */
  #takes(other: SurveyBlock): boolean {
    if (other.level !== this.level || other.poster !== this.poster) return false;
    if (other.first > this.first + this.bins || this.first > other.first + other.bins) return false;
    for (const tensor of other.rows.keys()) if (!this.rows.has(tensor)) return false;
    return true;
  }

  /** Whether this block has every cell of another one. */
  contains(other: SurveyBlock): boolean {
    return this.#takes(other) && other.first >= this.first && other.first + other.bins <= this.first + this.bins;
  }

  /** Replaces the cells that the other block has, and grows. False if the blocks do not fit together. */
  merge(other: SurveyBlock): boolean {
    if (!this.#takes(other)) return false;
    const first = Math.min(this.first, other.first);
    const bins = Math.max(this.first + this.bins, other.first + other.bins) - first;
    if (!this.#owned || first !== this.first || bins > this.stride) this.#grow(first, bins);
    this.bins = bins;
    this.#centres = undefined;
    this.version++;
    for (const name of NAMES) {
      const [to, from] = [this.#arrays[name], other.#arrays[name]];
      if (!to || !from) continue;
      for (const [tensor, row] of other.rows) {
        const start = row * other.stride;
        const at = (this.rows.get(tensor) as number) * this.stride + other.first - this.first;
        to.set(from.subarray(start, start + other.bins), at);
      }
    }
    return true;
  }

  #grow(first: number, bins: number): void {
    // Half as much again, so that a run that grows step by step is rarely copied.
    const stride = Math.ceil(bins * 1.5);
    for (const name of NAMES) {
      const from = this.#arrays[name];
      if (!from) continue;
      const to =
        from instanceof Uint8Array ? new Uint8Array(stride * this.rows.size) : new Uint16Array(stride * this.rows.size);
      for (let row = 0; row < this.rows.size; row++)
        to.set(from.subarray(row * this.stride, row * this.stride + this.bins), row * stride + this.first - first);
      this.#arrays[name] = to;
    }
    this.first = first;
    this.stride = stride;
    this.#owned = true;
  }
}

export interface SurveyCell {
  level: number;
  /** number of the bin */
  k: number;
  /** whether anything was saved in it */
  saved: boolean;
  /** the shown value and the extremes; 0: no value */
  code: number;
  lo: number;
  hi: number;
  flag: number;
  /** distance of the shown value from the usual one; -1 without a value */
  score: number;
}

/** What is known of one statistic in one mode of one worker. */
export class Survey {
  /** from coarse to fine; of one level, posters first and later packets last */
  blocks: SurveyBlock[] = [];
  version = 0;
  /** of growth: the decimal logarithm of the factor at the end of the colour scale */
  limit = GROWTH;
  constructor(
    readonly stat: MapStat,
    public edition: number,
  ) {}

  add(block: SurveyBlock): void {
    this.version++;
    if (this.blocks.some((each) => each.merge(block))) return;
    this.blocks = [...this.blocks.filter((each) => !block.contains(each)), block];
    this.blocks.sort((a, b) => b.level - a.level || Number(b.poster) - Number(a.poster));
  }

  /** The finest bin that has a step of a tensor. */
  cell(tensor: number, step: number): SurveyCell | undefined {
    for (let b = this.blocks.length - 1; b >= 0; b--) {
      const block = this.blocks[b] as SurveyBlock;
      const row = block.rows.get(tensor);
      const k = Math.floor(step / 2 ** block.level) - block.first;
      if (row === undefined || k < 0 || k >= block.bins) continue;
      const bin = block.reader(row, this.stat);
      const centre = block.usual(row, this.stat);
      const saved = bin.read(k, centre);
      const at = row * block.stride + k;
      const ends = block.poster ? [bin.code, bin.code] : [block.array("lo")?.[at] ?? 0, block.array("hi")?.[at] ?? 0];
      return {
        level: block.level,
        k: k + block.first,
        saved,
        code: bin.code,
        lo: defined(ends[0]),
        hi: defined(ends[1]),
        flag: bin.flag,
        score: bin.code ? Math.abs(bin.code - centre) : -1,
      };
    }
    return undefined;
  }

  /** Codes at both ends of the colour scale: whole decades, so that it rarely changes while a run grows. */
  get domain(): [number, number] {
    if (this.stat === "growth") {
      const half = (this.limit / DOMAINS.growth[1]) * (MIDDLE - 1);
      return [MIDDLE - half, MIDDLE + half];
    }
    const [lo, hi] = (isLog(this.stat) && this.extent()) || [1, CODES];
    if (!isLog(this.stat)) return [lo, hi];
    const decade = (CODES - 1) / 50;
    return [Math.floor((lo - 1) / decade) * decade + 1, Math.ceil((hi - 1) / decade) * decade + 1];
  }

  /** The smallest and largest code of values other than 0; undefined if there is none. */
  extent(): [number, number] | undefined {
    let lo = 65535;
    let hi = 0;
    for (const block of this.blocks) {
      lo = Math.min(lo, block.extent.lo);
      hi = Math.max(hi, block.extent.hi);
    }
    return lo <= hi ? [lo, hi] : undefined;
  }

  /** Whether a tensor has all bins of a level or finer between two steps, with extremes. */
  covers(tensor: number, level: number, from: number, to: number): boolean {
    return this.blocks.some((block) => {
      const width = 2 ** block.level;
      return (
        block.level <= level &&
        !block.poster &&
        block.rows.has(tensor) &&
        block.first * width <= from &&
        (block.first + block.bins) * width >= to
      );
    });
  }
}

const surveyKey = (run: number, worker: string, mode: string, stat: string) => `${run}\n${worker}\n${mode}\n${stat}`;

export class Surveys {
  readonly #surveys = new Map<string, Survey>();
  #uses = 0;

  find(run: number, worker: string, mode: string, stat: MapStat): Survey | undefined {
    return this.#surveys.get(surveyKey(run, worker, mode, stat));
  }

  add(head: SurveyHead, arrays: Blocks): void {
    const tensors = arrays.tensor?.data;
    const bins = arrays.flag?.shape[1] ?? 0;
    if (!tensors) return;
    const block = new SurveyBlock(head.level, head.first, bins, tensors, arrays);
    if (!block.valid) return;
    const key = surveyKey(head.run, head.worker, head.mode, head.stat);
    let survey = this.#surveys.get(key);
    if (survey && survey.edition > head.edition) return;
    const version = survey?.version ?? 0;
    if (!survey || survey.edition < head.edition || !head.append) {
      survey = new Survey(head.stat, head.edition);
      survey.version = version;
      for (const [other, each] of [...this.#surveys])
        if (other.startsWith(`${head.run}\n`) && each.edition < head.edition) this.#surveys.delete(other);
      this.#surveys.set(key, survey);
    }
    survey.limit = head.limit ?? survey.limit;
    this.use(block);
    survey.add(block);
    this.#evict();
  }

  /** Marks a block as used, so that others are dropped before it. */
  use(block: SurveyBlock): void {
    block.lastUse = ++this.#uses;
  }

  drop(run: number): void {
    for (const key of [...this.#surveys.keys()]) if (key.startsWith(`${run}\n`)) this.#surveys.delete(key);
  }

  #evict(): void {
    const all = [...this.#surveys.values()].flatMap((survey) => survey.blocks.map((block) => ({ survey, block })));
    let bytes = all.reduce((sum, { block }) => sum + block.bytes, 0);
    // A poster is what remains to be drawn when all else is dropped.
    const droppable = all.filter(({ block }) => !block.poster).sort((a, b) => a.block.lastUse - b.block.lastUse);
    for (const { survey, block } of droppable.slice(0, -1)) {
      if (bytes <= MAX_BYTES) break;
      bytes -= block.bytes;
      survey.blocks = survey.blocks.filter((each) => each !== block);
      survey.version++;
    }
  }
}
