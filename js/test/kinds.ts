/** The kinds of widgets, all loaded, so that a test can show one at once. */
import type { State } from "../src/session/state";
import type { WidgetKind } from "../src/widgets/common/part";
import { kind as explorer } from "../src/widgets/kinds/explorer";
import { kind as inspector } from "../src/widgets/kinds/inspector";
import { kind as many } from "../src/widgets/kinds/many";
import { kind as rules } from "../src/widgets/kinds/rules";
import { kind as scalars } from "../src/widgets/kinds/scalars";
import { kind as slider } from "../src/widgets/kinds/slider";

const KINDS = { explorer, inspector, rules, scalars, slider };

export const kindOf = (state: State): WidgetKind => (state.get("_many") ? many : KINDS[state.get("_kind")]);
