/** Which tensor and which steps a cell of the Run Map shows. */

import { nearestIndex } from "../../data/frames";
import type { Store } from "../../data/store";
import { FLAG, NOT_FINITE_FLAGS, type Survey } from "../../data/survey";
import { defined } from "../../lib/defined";
import type { MapRow } from "../../lib/map-rows";
import { lowerIndex } from "../../lib/sorted";
import type { Scene } from "../../session/scene";
import type { MapList } from "./list";
import type { CellPosition } from "./text";

/** Steps of the run before a step among which a tensor's last saved one is looked for. */
const MOST_BETWEEN = 512;
/** Most bins that are shown side by side. */
const MOST_BINS = 1024;

export class CellPositions {
  /** saved steps, ascending */
  steps: ArrayLike<number> = [];
  /** the level whose bins are shown side by side */
  level = 0;
  #run = 0;
  #survey: Survey | undefined;

  constructor(
    private readonly store: Store,
    private readonly list: MapList,
  ) {}

  update({ traits, run, axis, stepAxis: { from, to } }: Scene, survey: Survey | undefined): void {
    this.#run = traits.run;
    this.#survey = survey;
    this.steps = traits.mode === "" ? (run?.steps ?? []) : axis.steps;
    this.level = Math.max(0, Math.ceil(Math.log2((to - from) / MOST_BINS)));
  }

  /** The saved step nearest to a step; none was saved: the step itself. */
  saved(step: number): number {
    return this.steps[nearestIndex(this.steps, step)] ?? step;
  }

  /** The cell of a row that has a step. */
  at(row: MapRow, step: number): CellPosition | undefined {
    const { steps } = this;
    if (!steps.length) return undefined;
    const survey = this.#survey;
    let best = defined(row.tensors[0]);
    const saved = this.#shownAt(row, this.saved(step));
    let worst = -2;
    let { level } = this;
    for (const tensor of row.tensors) {
      const cell = survey?.cell(tensor, saved);
      if (!cell?.saved) continue;
      const score = cell.flag & NOT_FINITE_FLAGS ? 1e6 + (cell.flag & FLAG.nan) : cell.score;
      if (score <= worst) continue;
      worst = score;
      best = tensor;
      level = cell.level;
    }
    if (worst < -1) level = Math.max(level, survey?.blocks.find(({ rows }) => rows.has(best))?.level ?? level);
    const bin = Math.floor(saved / 2 ** level);
    const first = defined(steps[lowerIndex(steps, bin * 2 ** level)]);
    const last = defined(steps[lowerIndex(steps, (bin + 1) * 2 ** level) - 1]);
    return { row, tensor: best, name: this.list.model.names[best] ?? "", first, last };
  }

  /**
   * The saved step whose value is drawn at a step: the last one of the row's tensors, or the first one where nothing was
   * saved before; the step itself if there is none near it.
   */
  #shownAt({ tensors }: MapRow, step: number): number {
    const { steps } = this;
    const survey = this.#survey;
    if (!survey) return step;
    const isSaved = (at: number) => tensors.some((tensor) => survey.cell(tensor, at)?.saved);
    const here = lowerIndex(steps, step);
    for (let i = here; i >= Math.max(0, here - MOST_BETWEEN); i--)
      if (isSaved(defined(steps[i]))) return defined(steps[i]);
    for (let i = here + 1; i < Math.min(steps.length, here + MOST_BETWEEN); i++)
      if (isSaved(defined(steps[i]))) return defined(steps[i]);
    return step;
  }

  /** The first step of a cell at which trouble is known to begin, else the saved step nearest to the pointer. */
  stepOf(place: CellPosition, near: number): number {
    const found = this.store.findings
      .get(this.#run)
      ?.findings.find(
        ({ tensors, first }) => tensors.includes(place.tensor) && first >= place.first && first <= place.last,
      );
    return found?.first ?? Math.max(place.first, Math.min(place.last, this.saved(near)));
  }
}
