/** The curve of a scalar, prepared for a lane: training as a line, other modes as dots. */
import { nearestIndex, statistic, type TensorFrames } from "../data/frames";
import { byMode, type ModePart } from "../data/split-series";
import { type Series, seriesKey } from "../data/store";
import type { LaneCurve } from "../draw/lanes";
import { kindOf, notFiniteRanges } from "../draw/not-finite";
import { MODES, type SeriesLine } from "../protocol/types";
import type { Scene, Session } from "../session/session";

const NOTHING: LaneCurve = { x: [], y: [], dots: [], notFinite: [], logY: false };

export class CurveSource {
  #of: Series | undefined;
  #key = "";
  #curve: LaneCurve = NOTHING;
  #frames: TensorFrames | undefined;
  #framesVersion = -1;
  #series: Series | undefined;

  constructor(private readonly session: Session) {}

  /** The same object while nothing changes. `undefined`: the curve has not arrived. */
  curve(line: SeriesLine, { run, traits }: Scene, filled = false): LaneCurve | undefined {
    const { store } = this.session;
    const name = seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat);
    const data = store.series.get(name) ?? (this.session.exported ? this.#ofFrames(line) : undefined);
    if (!data) return undefined;
    const key = `${run?.version}/${traits.log_y}/${traits.mode}/${filled}`;
    if (data === this.#of && key === this.#key) return this.#curve;
    this.#of = data;
    this.#key = key;
    const only = MODES.indexOf(traits.mode);
    const parts = byMode(data, (step) => store.modeOf(line.run, step)?.mode ?? 4, Math.max(0, only));
    this.#curve = curveOf(parts, traits.log_y, filled);
    return this.#curve;
  }

  /** An exported page has the statistics of all tensors, but not all curves. */
  #ofFrames({ run, tensor, worker }: SeriesLine): Series | undefined {
    const frames = this.session.store.findFrames(run, tensor, worker);
    if (!frames) return undefined;
    if (frames !== this.#frames || frames.version !== this.#framesVersion) {
      this.#frames = frames;
      this.#framesVersion = frames.version;
      const step = frames.loadedSteps();
      this.#series = { step, y: Float64Array.from(step, (at) => statistic(frames.frames.get(at), "value")) };
    }
    return this.#series;
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
    notFinite: notFiniteRanges(x, (i) => kindOf(y[i] as number)),
    logY,
    filled,
  };
}

/** The lowest value and its step. */
export function best({ x, y }: LaneCurve): { step: number; value: number } | undefined {
  let at = -1;
  for (let i = 0; i < y.length; i++)
    if (Number.isFinite(y[i]) && (at < 0 || (y[i] as number) < (y[at] as number))) at = i;
  return at < 0 ? undefined : { step: x[at] as number, value: y[at] as number };
}

/** The value at the saved step nearest to `step`, of all modes. */
export function valueNear(curve: LaneCurve, step: number): { step: number; value: number } | undefined {
  const near = [curve, ...curve.dots].flatMap(({ x, y }) => {
    const i = nearestIndex(x, step);
    return i < 0 ? [] : [{ step: x[i] as number, value: y[i] as number }];
  });
  return near.sort((a, b) => Math.abs(a.step - step) - Math.abs(b.step - step))[0];
}
