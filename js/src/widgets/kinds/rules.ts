/** `RulePanel`: rules below a step slider. */
import { DataRequester } from "../../session/data-requester";
import type { WidgetKind } from "../common/part";
import { Stack } from "../common/stack";
import { RulePanel } from "../rules/panel";
import { StepSlider } from "../steps/slider";

export const kind: WidgetKind = {
  layout: (context) => new Stack("single", [new StepSlider(context), new RulePanel(context)]),
  requester: (session, signal) => new DataRequester(session, signal),
};
