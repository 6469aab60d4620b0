/** Which tensors of a run are scalars. */
import { SCALARS } from "../lib/tensor-names";
import type { Run } from "./store";

/** Names of the run's scalars. */
export function scalarNames(run: Run | undefined): string[] {
  const indices = SCALARS.flatMap((each) => run?.collections.get(each) ?? []);
  return [...new Set(indices)].map((index) => run?.names[index] ?? "");
}

/** Whether a run consists of scalars, as most logs do. */
export function scalarsOnly(run: Run | undefined): boolean {
  return run !== undefined && run.names.length > 0 && scalarNames(run).length === run.names.length;
}
