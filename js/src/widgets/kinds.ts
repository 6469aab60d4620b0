/** The kinds of widgets, each of which is loaded when it is first shown. */
import type { State } from "../session/state";
import type { WidgetKind } from "./common/part";

const KINDS = {
  slider: () => import("./kinds/slider"),
  inspector: () => import("./kinds/inspector"),
  scalars: () => import("./kinds/scalars"),
  rules: () => import("./kinds/rules"),
  explorer: () => import("./kinds/explorer"),
  many: () => import("./kinds/many"),
};

/** The code of a widget. */
export async function loadKind(state: State): Promise<WidgetKind> {
  return (await KINDS[state.get("_many") ? "many" : state.get("_kind")]()).kind;
}
