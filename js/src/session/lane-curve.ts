/** The scalar above the step axis. */
import { scalarNames } from "../data/scalars";
import type { SeriesLine } from "../protocol/types";
import type { Scene } from "./scene";

/** The curve above the axis: the selected scalar, else the first loss. */
export function laneCurve({ traits, run }: Scene): SeriesLine | undefined {
  const names = scalarNames(run);
  const tensor = names.includes(traits.lane) ? traits.lane : names[0];
  return tensor === undefined ? undefined : { tensor, stat: "value", run: traits.run, worker: "", mode: "" };
}
