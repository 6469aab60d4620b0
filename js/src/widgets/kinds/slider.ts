/** `StepSlider`: it needs nothing but the steps, which the kernel pushes. */
import type { WidgetKind } from "../common/part";
import { StepSlider } from "../steps/slider";

export const kind: WidgetKind = { layout: (context) => new StepSlider(context) };
