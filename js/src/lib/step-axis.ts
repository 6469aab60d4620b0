/**
 * The horizontal axis that all parts of a widget share, linear in global steps. A part that spans the whole width of
 * the widget draws a step at `x(step)`.
 */
export class StepAxis {
  constructor(
    /** global steps at the left and the right end: those in view and half a step's distance on each side */
    readonly from: number,
    readonly to: number,
    /** pixels from the left edge of the widget */
    readonly left: number,
    readonly right: number,
  ) {}

  /** What decides where steps are, for a `Memo`. */
  get ends(): readonly number[] {
    return [this.from, this.to, this.left, this.right];
  }

  /** Position of a step, in pixels from the left edge of the widget. */
  x(step: number): number {
    return this.left + ((step - this.from) / (this.to - this.from)) * (this.right - this.left);
  }

  /** The step at a position, with a fraction. */
  step(x: number): number {
    return this.from + ((x - this.left) / (this.right - this.left)) * (this.to - this.from);
  }
}

/** Pixels at the right of the axis, where the Run Map has its minimap. */
export const MINIMAP = 64;

/** Pixels at the left of the axis, for names, by the width of the widget. */
export const gutterWidth = (width: number): number =>
  width >= 1000 ? 236 : width >= 700 ? 160 : width >= 500 ? 120 : 96;

/** Both ends of an axis that shows all steps, ascending, each with the same room on both sides. */
export function fullRange(steps: ArrayLike<number>): [number, number] {
  const first = steps[0] ?? 0;
  const last = steps[steps.length - 1] ?? 0;
  const room = Math.max(0.5, Math.min((last - first) / Math.max(1, steps.length - 1) / 2, (last - first) / 12));
  return [first - room, last + room];
}

/** The axis of a widget of this width. An empty `range` shows all steps. */
export function makeStepAxis(range: readonly number[], steps: ArrayLike<number>, width: number): StepAxis {
  const [lo, hi] = range;
  const [from, to] = lo !== undefined && hi !== undefined && hi > lo ? [lo, hi] : fullRange(steps);
  const left = gutterWidth(width);
  return new StepAxis(from, to, left, Math.max(left + 1, width - MINIMAP));
}
