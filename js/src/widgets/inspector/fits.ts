/** Which panels apply to a tensor. */
import { isScalar } from "../../data/tensor-view";
import type { PanelName } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { differenceFault, shownView } from "../../session/slots";

/** A panel, or the cells that changed, which A − B opens by itself. */
export type PictureName = PanelName | "changed";

/** Whether A − B is shown. */
export const showsChanges = (scene: Scene): boolean =>
  shownView(scene.traits) === "diff" && scene.compared !== undefined && !differenceFault(scene.main, scene.compared);

/** Whether a panel applies to the tensor in view. */
export function fits(name: PictureName, scene: Scene): boolean {
  const { main } = scene;
  if (name === "changed") return showsChanges(scene);
  const prCurve = main?.frames.plan?.collections.includes("pr_curves") === true && main.frames.plan.shape.length === 2;
  if (name === "pr_curve") return prCurve;
  // The statistics of counts, precisions and recalls together mean nothing.
  if (prCurve && ["histogram", "history", "heatmap", "statistics"].includes(name)) return false;
  // Exact values come from a kernel; an exported page has those of texts.
  if (main?.exported && name === "values") return main.frames.plan?.form === "text";
  if (main?.statisticsOnly) return ["statistics", "scalars", "rules"].includes(name);
  if (main?.frames.plan?.form === "text") return !["histogram", "history", "heatmap", "statistics"].includes(name);
  // A logged histogram is not a matrix.
  if (main?.frames.plan?.form === "histogram" && name === "heatmap") return false;
  return !isScalar(main) || !["histogram", "history", "heatmap"].includes(name);
}
