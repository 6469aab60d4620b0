/** `ScalarPanel`: curves below a step slider. */
import { DataRequester } from "../../session/data-requester";
import type { WidgetKind } from "../common/part";
import { Stack } from "../common/stack";
import { ScalarPanel } from "../scalars/panel";
import { StepSlider } from "../steps/slider";

export const kind: WidgetKind = {
  layout: (context) => new Stack("single", [new StepSlider(context), new ScalarPanel(context)]),
  requester: (session, signal) => new DataRequester(session, signal),
};
