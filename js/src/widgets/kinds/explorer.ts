/** `Explorer` of one run or a few. */
import { Store } from "../../data/store";
import { Surveys } from "../../data/survey";
import { DataRequester } from "../../session/data-requester";
import { QueryReader } from "../../session/query-view";
import { Session } from "../../session/session";
import type { WidgetKind } from "../common/part";
import { Explorer } from "../explorer/view";

export const kind: WidgetKind = {
  session: (state, signal) => new Session(state, signal, new Store({ surveys: new Surveys() }), new QueryReader()),
  layout: (context) => new Explorer(context),
  requester: (session, signal) => new DataRequester(session, signal),
};
