/** What the survey says of each tensor over the whole run, for the minimap, the badges and the order of suspicion. */
import { defined } from "../lib/defined";
import type { MapStat } from "../protocol/types";
import { FLAG, NOT_FINITE_FLAGS, type Survey, type SurveyBlock } from "./survey";

/** By index of the tensor. */
export interface Summary {
  /** the shown value farthest from the usual one; 0: none */
  code: Float32Array;
  /** its distance from the usual one, in codes */
  score: Float32Array;
  /** all flags */
  flag: Uint8Array;
  /** number of values */
  n: Float32Array;
  /** first step of the first bin that is not finite, and of the first sudden change of size; Infinity if none */
  notFinite: Float64Array;
  sudden: Float64Array;
}

const empty = (size: number): Summary => ({
  code: new Float32Array(size),
  score: new Float32Array(size).fill(-1),
  flag: new Uint8Array(size),
  n: new Float32Array(size),
  notFinite: new Float64Array(size).fill(Number.POSITIVE_INFINITY),
  sudden: new Float64Array(size).fill(Number.POSITIVE_INFINITY),
});

/** The summary of a survey. Only tensors of blocks that have changed are read again. */
export class Summaries {
  #survey: Survey | undefined;
  /** by block, the version that was read, and the summary of its rows */
  #parts = new Map<SurveyBlock, { version: number; part: Summary }>();
  #summary = empty(0);

  /** Another object if it has changed. */
  of(survey: Survey | undefined, tensors: number): Summary {
    const again = survey !== this.#survey || tensors !== this.#summary.code.length;
    const before = this.#parts;
    this.#parts = new Map();
    const changed = new Set<SurveyBlock>();
    for (const block of survey?.blocks ?? []) {
      const part = before.get(block);
      const same = part?.version === block.version;
      this.#parts.set(block, same ? part : read(block, (survey as Survey).stat));
      before.delete(block);
      if (!same || again) changed.add(block);
    }
    for (const block of before.keys()) changed.add(block);
    if (!again && !changed.size) return this.#summary;
    this.#survey = survey;
    this.#summary = again ? empty(tensors) : { ...this.#summary };
    for (const block of changed) for (const tensor of block.rows.keys()) if (tensor < tensors) this.#join(tensor);
    return this.#summary;
  }

  /** The summary of a tensor, of its rows in all blocks. */
  #join(tensor: number) {
    const out = this.#summary;
    let [flag, n, worst, code] = [0, 0, -1, 0];
    let [notFinite, sudden] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    for (const [block, { part }] of this.#parts) {
      const row = block.rows.get(tensor);
      if (row === undefined) continue;
      flag |= defined(part.flag[row]);
      n = Math.max(n, defined(part.n[row]));
      notFinite = Math.min(notFinite, defined(part.notFinite[row]));
      sudden = Math.min(sudden, defined(part.sudden[row]));
      if (defined(part.score[row]) <= worst) continue;
      worst = defined(part.score[row]);
      code = defined(part.code[row]);
    }
    out.flag[tensor] = flag;
    out.n[tensor] = n;
    out.score[tensor] = worst;
    out.code[tensor] = code;
    out.notFinite[tensor] = notFinite;
    out.sudden[tensor] = sudden;
  }
}

/** The summary of the rows of a block. */
function read(block: SurveyBlock, stat: MapStat): { version: number; part: Summary } {
  const part = empty(block.rows.size);
  for (const row of block.rows.values()) summariseRow(block, row, stat, part);
  return { version: block.version, part };
}

function summariseRow(block: SurveyBlock, row: number, stat: MapStat, out: Summary): void {
  const width = 2 ** block.level;
  const bin = block.reader(row, stat);
  const centre = block.usual(row, stat);
  let flag = 0;
  let n = 0;
  let worst = -1;
  let code = 0;
  let notFinite = Number.POSITIVE_INFINITY;
  let sudden = Number.POSITIVE_INFINITY;
  for (let k = 0; k < block.bins; k++) {
    if (!bin.read(k, centre)) continue;
    flag |= bin.flag;
    if (bin.flag & NOT_FINITE_FLAGS) notFinite = Math.min(notFinite, (block.first + k) * width);
    if (bin.flag & FLAG.sudden) sudden = Math.min(sudden, (block.first + k) * width);
    if (!bin.code) continue;
    n += bin.n || 1;
    const score = Math.abs(bin.code - centre);
    if (score > worst) {
      worst = score;
      code = bin.code;
    }
  }
  out.flag[row] = flag;
  out.n[row] = n;
  out.score[row] = worst;
  out.code[row] = code;
  out.notFinite[row] = notFinite;
  out.sudden[row] = sudden;
}

export const hasNotFinite = (flag: number) => (flag & NOT_FINITE_FLAGS) !== 0;
export const notFiniteLabel = (flag: number) => (flag & FLAG.nan ? "NaN" : flag & FLAG.infinite ? "Inf" : "");
