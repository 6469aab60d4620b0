/** All widgets on a plain page, with recorded data. Options: `?kind=explorer&theme=dark&runs=2&many=1`. */
import type { Kind, Traits } from "../src/protocol/types";
import { LocalModel, State } from "../src/session/state";
import { mount, openSession, startRequesting } from "../src/view";
import { loadKind } from "../src/widgets/kinds";
import { recorded } from "./recorded";

const query = new URLSearchParams(location.search);
const dark = query.get("theme") === "dark";
document.documentElement.style.background = dark ? "#14171b" : "#ffffff";
document.documentElement.style.colorScheme = dark ? "dark" : "light";

const signal = new AbortController().signal;
const kinds = (query.get("kind")?.split(",") ?? ["explorer"]) as Kind[];
for (const kind of kinds) {
  const el = document.createElement("div");
  document.body.append(el);
  const traits: Partial<Traits> = {
    _kind: kind,
    tensor: "fc1.weight",
    panels:
      kind === "explorer"
        ? ["histogram", "heatmap", "history", "statistics", "scalars", "values", "rules"]
        : ["histogram", "heatmap", "history", "statistics", "values"],
    ...(JSON.parse(query.get("traits") ?? "{}") as Partial<Traits>),
  };
  const state = new State(new LocalModel(traits), signal);
  const widget = await loadKind(state);
  const session = openSession(state, widget, signal);
  const source = recorded(session.store, {
    delay: Number(query.get("delay") ?? 5),
    runs: Number(query.get("runs") ?? 1),
    many: query.has("many"),
  });
  session.connection.connect(source, false);
  startRequesting(session, widget, signal);
  mount(session, widget, el, signal);
}
