/** The curves of the scalar panel. */
import type { Line } from "../protocol/types";
import type { Scene, Session } from "./session";

/** Collections of scalars. */
const SCALARS = ["losses", "scalars", "metrics", "sm_metrics", "searchable_scalars"];

/** One curve per selected line and run. The default is losses and metrics. */
export function selectedCurves({ traits }: Scene, session: Session): Required<Line>[] {
  const { runs } = session.store;
  let chosen: Line[] = traits.series;
  if (!chosen.length) {
    const names = new Set<string>();
    for (const run of runs.values())
      for (const collection of SCALARS)
        for (const index of run.collections.get(collection) ?? [])
          if (names.size < 6) names.add(run.names[index] ?? "");
    chosen = [...names].map((tensor) => ({ tensor, stat: "value", run: -1 }));
  }
  return chosen.flatMap((line) =>
    (line.run === undefined || line.run < 0 ? [...runs.keys()] : [line.run]).map((run) => ({
      tensor: line.tensor,
      stat: line.stat,
      run,
      worker: line.worker ?? "",
      mode: line.mode ?? ("" as const),
    })),
  );
}
