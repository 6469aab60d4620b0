/** Python code that returns what a panel shows. */

import type { TensorView } from "../data/tensor-view";
import { defined } from "../lib/defined";
import { pyString } from "../lib/save";
import { MODES } from "../protocol/types";
import type { Scene } from "./scene";
import type { Session } from "./session";

/** An index expression for a slice, such as `[0, :, 3:10, 0:64]`; empty for the whole tensor. */
export function sliceText(
  rank: number,
  axes: readonly number[],
  fixed: readonly number[],
  window?: readonly number[],
): string {
  if (rank === 0) return "";
  const [rows, cols] = axes.length === 2 ? axes : [undefined, axes[0]];
  const part = (axis: number) => {
    const range = axis === rows ? window?.slice(0, 2) : axis === cols ? window?.slice(2, 4) : undefined;
    if (axis !== rows && axis !== cols) return String(fixed[axis] ?? 0);
    return range ? `${range[0]}:${range[1]}` : ":";
  };
  const parts = Array.from({ length: rank }, (_, axis) => part(axis));
  while (parts.length && parts.at(-1) === ":") parts.pop();
  const turned = axes.length === 2 && defined(axes[0]) > defined(axes[1]) ? ".T" : "";
  return (parts.length ? `[${parts.join(", ")}]` : "") + turned;
}

/** `smdwidgets.create_trial("runs/mlp").tensor("fc1.weight").value(290, mode=smdwidgets.modes.TRAIN)`. */
export function pythonValue(session: Session, shown: TensorView | undefined, method = "value"): string {
  const path = session.store.runs.get(shown?.run ?? 0)?.head.path ?? "";
  const trial = `smdwidgets.create_trial(${pyString(path)})`;
  if (!shown) return trial;
  const at = session.store.modeOf(shown.run, shown.savedStep);
  const step =
    at && at.mode !== 4 ? `${at.modeStep}, mode=smdwidgets.modes.${MODES[at.mode]}` : String(shown.savedStep);
  const worker = shown.worker ? `, worker=${pyString(shown.worker)}` : "";
  const kept = method === "value" && shown.frame?.sampled ? "sample" : method;
  return `${trial}.tensor(${pyString(shown.tensor)}).${kept}(${step}${worker})`;
}

export function pythonSteps(session: Session, scene: Scene): string {
  const path = scene.run?.head.path ?? session.store.runs.get(0)?.head.path ?? "";
  const mode = scene.traits.mode ? `mode=smdwidgets.modes.${scene.traits.mode}` : "";
  return `smdwidgets.create_trial(${pyString(path)}).steps(${mode})`;
}
