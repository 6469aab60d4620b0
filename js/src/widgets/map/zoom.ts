/** Which steps the Run Map shows: zoom and pan. */
import { fullRange } from "../../lib/step-axis";
import type { Scene } from "../../session/scene";
import type { Session } from "../../session/session";

export class MapZoom {
  #scene: Scene | undefined;

  constructor(private readonly session: Session) {}

  update(scene: Scene): void {
    this.#scene = scene;
  }

  /** Shows steps from `from` to `to`; all of them where they reach beyond both ends. */
  #show(from: number, to: number) {
    const run = this.#scene?.run;
    if (!run?.steps.length) return;
    const [first, last] = fullRange(run.steps);
    const span = Math.min(last - first, Math.max(to - from, Math.min(last - first, 3)));
    let start = from + (to - from - span) / 2;
    start = Math.max(first, Math.min(last - span, start));
    const all = span >= last - first - 1e-9;
    this.session.state.set({ range: all ? [] : [start, start + span] }, true);
  }

  /** Zooms by a factor around a step. */
  at(step: number, factor: number): void {
    const axis = this.#scene?.stepAxis;
    if (axis) this.#show(step - (step - axis.from) * factor, step + (axis.to - step) * factor);
  }

  /** Pans by a share of the steps in view. */
  pan(share: number): void {
    const axis = this.#scene?.stepAxis;
    if (!axis) return;
    const by = (axis.to - axis.from) * share;
    this.#show(axis.from + by, axis.to + by);
  }

  /** Pans as far as brings a step into view, with some room behind it. */
  toStep(step: number): void {
    const axis = this.#scene?.stepAxis;
    if (axis && step < axis.from) this.pan((step - axis.from) / (axis.to - axis.from) - 0.1);
    if (axis && step > axis.to) this.pan((step - axis.to) / (axis.to - axis.from) + 0.1);
  }

  key(key: string): boolean {
    const scene = this.#scene;
    if (!scene) return false;
    const { stepAxis: axis, traits } = scene;
    const middle = scene.step >= axis.from && scene.step <= axis.to ? scene.step : (axis.from + axis.to) / 2;
    if (key === "w") this.at(middle, 0.5);
    else if (key === "s") this.at(middle, 2);
    else if (key === "a") this.pan(-0.25);
    else if (key === "d") this.pan(0.25);
    else if (key === "f" && traits.selection.kind === "steps") {
      const [from, to] = traits.selection.range;
      this.#show(Math.min(from, to), Math.max(from, to));
    } else if (key === "f") this.#show(middle - (axis.to - axis.from) / 2, middle + (axis.to - axis.from) / 2);
    else if (key === "0") {
      // A second press shows all rows too.
      const { state } = this.session;
      if (traits.range.length) state.set({ range: [] });
      else state.set({ map_fit: !traits.map_fit });
    } else return false;
    return true;
  }
}
