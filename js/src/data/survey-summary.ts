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

/** Summaries of surveys. A block that has not changed is not read again. */
export class Summaries {
  readonly #blocks = new WeakMap<SurveyBlock, { version: number; part: Summary }>();

  of(survey: Survey | undefined, tensors: number): Summary {
    const out = empty(tensors);
    for (const block of survey?.blocks ?? []) {
      const part = this.#part(block, survey?.stat ?? "surprise");
      for (const [tensor, row] of block.rows) {
        if (tensor >= tensors) continue;
        out.flag[tensor] = defined(out.flag[tensor]) | defined(part.flag[row]);
        out.n[tensor] = Math.max(defined(out.n[tensor]), defined(part.n[row]));
        for (const name of ["notFinite", "sudden"] as const)
          out[name][tensor] = Math.min(defined(out[name][tensor]), defined(part[name][row]));
        if (defined(part.score[row]) <= defined(out.score[tensor])) continue;
        out.score[tensor] = defined(part.score[row]);
        out.code[tensor] = defined(part.code[row]);
      }
    }
    return out;
  }

  #part(block: SurveyBlock, stat: MapStat): Summary {
    const known = this.#blocks.get(block);
    if (known?.version === block.version) return known.part;
    const part = empty(block.rows.size);
    for (const row of block.rows.values()) summariseRow(block, row, stat, part);
    this.#blocks.set(block, { version: block.version, part });
    return part;
  }
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
