/** The curve of a scalar, prepared for a lane: training as a line, other modes as dots. */

import { nearestIndex, statistic } from "../../data/frames";
import { byMode, type ModePart } from "../../data/split-series";
import { type Series, seriesKey } from "../../data/store";
import type { LaneCurve } from "../../draw/lanes";
import { kindOf, notFiniteRanges } from "../../draw/not-finite";
import { defined } from "../../lib/defined";
import { Memo } from "../../lib/memo";
import { MODES, type SeriesLine } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import type { Session } from "../../session/session";

export class CurveSource {
  readonly #curve = new Memo<LaneCurve>();
  readonly #series = new Memo<Series>();

  constructor(private readonly session: Session) {}

  /** The same object while nothing changes. `undefined`: the curve has not arrived. */
  curve(line: SeriesLine, { run, traits }: Scene, filled = false): LaneCurve | undefined {
    const { store } = this.session;
    const name = seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat);
    const data = store.series.get(name) ?? (this.session.exported ? this.#ofFrames(line) : undefined);
    if (!data) return undefined;
    return this.#curve.of([data.step, data.y, run?.version, traits.log_y, traits.mode, filled], () => {
      const only = MODES.indexOf(traits.mode);
      const parts = byMode(data, (step) => store.modeOf(line.run, step)?.mode ?? 4, Math.max(0, only));
      return curveOf(parts, traits.log_y, filled);
    });
  }

  /** An exported page has the statistics of all tensors, but not all curves. */
  #ofFrames({ run, tensor, worker }: SeriesLine): Series | undefined {
    const frames = this.session.store.findFrames(run, tensor, worker);
    if (!frames) return undefined;
    return this.#series.of([frames, frames.version], () => {
      const steps = frames.loadedSteps();
      return { step: steps, y: Float64Array.from(steps, (step) => statistic(frames.frames.get(step), "value")) };
    });
  }
}

/** The first mode is the line, the others are dots. */
export function curveOf([main, ...others]: readonly ModePart[], logY: boolean, filled = false): LaneCurve {
  const x = main?.x ?? new Float64Array(0);
  const y = main?.y ?? new Float64Array(0);
  return {
    x,
    y,
    dots: others.map((each) => ({ ...each, name: MODES[each.mode] ?? "" })),
    notFinite: notFiniteRanges(x, (i) => kindOf(defined(y[i]))),
    logY,
    filled,
  };
}

/** The lowest value and its step. */
export function best({ x, y }: LaneCurve): { step: number; value: number } | undefined {
  let at = -1;
  for (let i = 0; i < y.length; i++) if (Number.isFinite(y[i]) && (at < 0 || defined(y[i]) < defined(y[at]))) at = i;
  return at < 0 ? undefined : { step: defined(x[at]), value: defined(y[at]) };
}

/** The value at the saved step nearest to `step`, of all modes. */
export function valueNear(curve: LaneCurve, step: number): { step: number; value: number } | undefined {
  const near = [curve, ...curve.dots].flatMap(({ x, y }) => {
    const i = nearestIndex(x, step);
    return i < 0 ? [] : [{ step: defined(x[i]), value: defined(y[i]) }];
  });
  return near.sort((a, b) => Math.abs(a.step - step) - Math.abs(b.step - step))[0];
}
