/** `Explorer` of many runs, which begins with their table. */
import { Runs } from "../../data/runs";
import { Store } from "../../data/store";
import { Surveys } from "../../data/survey";
import { QueryReader } from "../../session/query-view";
import { Session } from "../../session/session";
import type { WidgetKind } from "../common/part";
import { ManyRuns } from "../explorer/many-runs";
import { kind as explorer } from "./explorer";

export const kind: WidgetKind = {
  ...explorer,
  session: (state, signal) =>
    new Session(state, signal, new Store({ surveys: new Surveys(), table: new Runs() }), new QueryReader()),
  layout: (context) => new ManyRuns(context),
};
