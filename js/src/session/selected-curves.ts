/** The curves of the scalar panel, and the charts that they are in. */

import { scalarNames } from "../data/scalars";
import { SCALARS } from "../lib/tensor-names";
import type { Line } from "../protocol/types";
import { chartGroupsOf } from "./chart-groups";
import type { Scene } from "./scene";
import type { Session } from "./session";

export interface Chart {
  /** "" of the only chart */
  title: string;
  curves: { line: Required<Line>; matched: string }[];
}

/** One chart per group of `charts`, else one chart of the selected curves. The default is losses and metrics. */
export function chartsOf({ traits }: Scene, session: Session): Chart[] {
  const { runs } = session.store;
  const groups = chartGroupsOf(session);
  const names = traits.charts ? [...new Set([...runs.values()].flatMap(scalarNames))] : [];
  groups.update(traits.charts, names, () => session.store.notify());
  const perRun = (line: Line, matched: string) =>
    (line.run === undefined || line.run < 0 ? [...runs.keys()] : [line.run]).map((run) => ({
      line: { tensor: line.tensor, stat: line.stat, run, worker: line.worker ?? "", mode: line.mode ?? ("" as const) },
      matched,
    }));
  if (traits.charts)
    return groups.groups.map(({ title, tensors }) => ({
      title,
      curves: tensors.flatMap(({ name, matched }) => perRun({ tensor: name, stat: "value" }, matched)),
    }));
  let chosen: Line[] = traits.series;
  if (!chosen.length) {
    const names = new Set<string>();
    for (const run of runs.values())
      for (const collection of SCALARS)
        for (const index of run.collections.get(collection) ?? [])
          if (names.size < 6) names.add(run.names[index] ?? "");
    chosen = [...names].map((tensor) => ({ tensor, stat: "value", run: -1 }));
  }
  return [{ title: "", curves: chosen.flatMap((line) => perRun(line, "")) }];
}

export const selectedCurves = (scene: Scene, session: Session): Required<Line>[] =>
  chartsOf(scene, session).flatMap(({ curves }) => curves.map(({ line }) => line));
