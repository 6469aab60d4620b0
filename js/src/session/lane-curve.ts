/** The scalar above the step axis. */
import type { Run } from "../data/store";
import { SCALARS } from "../lib/tensor-names";
import type { SeriesLine } from "../protocol/types";
import type { Scene } from "./scene";

/** Names of the run's scalars. */
export function scalarNames(run: Run | undefined): string[] {
  const indices = SCALARS.flatMap((each) => run?.collections.get(each) ?? []);
  return [...new Set(indices)].map((index) => run?.names[index] ?? "");
}

/** Whether a run consists of scalars, as most logs do. */
export function scalarsOnly(run: Run | undefined): boolean {
  return run !== undefined && run.names.length > 0 && scalarNames(run).length === run.names.length;
}

/** The curve above the axis: the selected scalar, else the first loss. */
export function laneCurve({ traits, run }: Scene): SeriesLine | undefined {
  const names = scalarNames(run);
  const tensor = names.includes(traits.lane) ? traits.lane : names[0];
  return tensor === undefined ? undefined : { tensor, stat: "value", run: traits.run, worker: "", mode: "" };
}
