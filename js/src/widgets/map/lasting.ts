/** States that tensors stay in, such as dead or frozen, as findings name them. */

import type { Store } from "../../data/store";
import { type Line, STATE } from "../../data/survey-lines";
import type { LastingMark } from "../../draw/map";
import { defined } from "../../lib/defined";
import type { MapModel, MapRow } from "../../lib/map-rows";
import type { DiagnosisHead } from "../../protocol/types";

interface Lasting {
  word: string;
  first: number;
  /** null: to the end of the run */
  last: number | null;
}

export class LastingStates {
  #of: DiagnosisHead | undefined;
  #size = 0;
  #states = new Map<number, Lasting>();

  /** Returns whether the states have changed. */
  update(store: Store, run: number, model: MapModel): boolean {
    const diagnosis = store.diagnoses.get(run);
    if (diagnosis === this.#of && model.size === this.#size) return false;
    this.#of = diagnosis;
    this.#size = model.size;
    const before = this.#states.size;
    this.#states = new Map();
    for (const { lasting, first } of [...(diagnosis?.findings ?? []), ...(diagnosis?.notes ?? [])])
      for (const name of lasting?.tensors ?? []) {
        const tensor = model.indexOf(name);
        // The most important finding comes first.
        if (lasting && tensor >= 0 && first !== null && !this.#states.has(tensor))
          this.#states.set(tensor, { word: lasting.word, first, last: lasting.last });
      }
    return before > 0 || this.#states.size > 0;
  }

  /** Where the first state of a row's tensors is in its line. `pixel`: of a step. */
  mark({ tensors }: MapRow, line: Line, pixel: (step: number) => number): LastingMark | undefined {
    for (const tensor of tensors) {
      const state = this.#states.get(tensor);
      if (!state) continue;
      const width = line.state.length;
      const from = Math.max(0, Math.floor(pixel(state.first)));
      let to = state.last === null ? width : Math.max(0, Math.ceil(pixel(state.last)));
      // A value stands until the next one is due; a state does, too, and where no other value follows, to the end.
      const value = line.value[Math.min(width - 1, Math.max(0, to - 1))];
      while (to < width && (line.state[to] !== STATE.value || line.value[to] === value)) to++;
      if (to > 0 && from < width) return { from, to: Math.min(to, width), word: state.word };
    }
    return undefined;
  }
}

/** The pixel before `end` of the last value of a line, or of the last one that is not finite; -1: there is none. */
export function lastPixel({ state, flag }: Line, end: number, notFinite: number): number {
  let p = Math.min(end, state.length) - 1;
  while (p >= 0 && state[p] !== STATE.value && !(defined(flag[p]) & notFinite)) p--;
  return p;
}
