/** The place of a value: run, tensor and worker. */
import type { Traits } from "../protocol/types";

export interface Place {
  run: number;
  tensor: string;
  worker: string;
}

export const isComparing = (traits: Traits): boolean => Object.keys(traits.compare).length > 0;

/** Run, tensor and worker of B. */
export function placeOfB({ run, tensor, worker, compare }: Traits): Place {
  return {
    run: compare.run ?? run,
    tensor: compare.tensor ?? tensor,
    worker: compare.worker ?? worker,
  };
}

export const samePlace = (a: Place, b: Place): boolean =>
  a.run === b.run && a.tensor === b.tensor && a.worker === b.worker;
