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
  if (!run?.names.length) return false;
  // Usually one collection has all or few of them; looking at each name would take long at every update.
  const sizes = SCALARS.map((each) => run.collections.get(each)?.length ?? 0);
  if (sizes.includes(run.names.length)) return true;
  const most = sizes.reduce((sum, size) => sum + size, 0);
  return most >= run.names.length && scalarNames(run).length === run.names.length;
}
