/** The tensor that is compared with the one in view. */
import type { TensorRef, Traits } from "../protocol/types";

export const isComparing = (traits: Traits): boolean => Object.keys(traits.compare).length > 0;

/** Run, tensor and worker of B. */
export function tensorOfB({ run, tensor, worker, compare }: Traits): TensorRef {
  return {
    run: compare.run ?? run,
    tensor: compare.tensor ?? tensor,
    worker: compare.worker ?? worker,
  };
}

/** The numbers of A and B if they are of different runs. */
export const comparedRuns = ({ run, compare }: Traits): [number, number] | undefined =>
  compare.run === undefined || compare.run === run ? undefined : [run, compare.run];

export const sameTensor = (a: TensorRef, b: TensorRef): boolean =>
  a.run === b.run && a.tensor === b.tensor && a.worker === b.worker;
