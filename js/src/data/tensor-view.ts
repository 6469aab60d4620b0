/** The state of one tensor at the step in view. */
import type { Frame, TensorFrames } from "./frames";

export interface TensorView {
  run: number;
  tensor: string;
  worker: string;
  /** requested step */
  step: number;
  /** last saved step at or before `step`; NaN if there is none */
  savedStep: number;
  frames: TensorFrames;
  frame: Frame | undefined;
  /** the frame of `savedStep` has not been loaded yet */
  pending: boolean;
  /** the tensor has no step of the selected mode */
  neverSaved: boolean;
  /** an exported page, which has no other data */
  exported: boolean;
  /** an exported page without the tensor's pictures */
  statisticsOnly: boolean;
}

/** Whether the tensor holds one number per step. smdebug saves a loss as a vector of length 1. */
export function isScalar(view: TensorView | undefined): boolean {
  const plan = view?.frames.plan;
  if (plan?.reduced) return view?.frame?.counts?.[0] === 1; // its shape is unknown
  const shape = view?.frame?.shape ?? plan?.shape;
  return plan?.form !== "text" && shape !== undefined && shape.every((size) => size === 1);
}
