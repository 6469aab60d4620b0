/** The entry point of notebooks: a widget of anywidget. */
import type { InitializeProps, RenderProps } from "@anywidget/types";
import { missingFeatures, showUnsupported } from "./lib/browser-support";
import { KernelClient } from "./session/client";
import type { Session } from "./session/session";
import { type Model, State } from "./session/state";
import { mount, openSession, startRequesting } from "./view";
import type { WidgetKind } from "./widgets/common/part";
import { loadKind } from "./widgets/kinds";

interface Opened {
  session: Session;
  kind: WidgetKind;
}

async function open(model: Model, signal: AbortSignal): Promise<Opened> {
  const state = new State(model, signal);
  const kind = await loadKind(state);
  const session = openSession(state, kind, signal);
  session.store.addPackets(session.state.get("_boot"));
  const source = new KernelClient(
    model,
    (buffers) => session.store.addPackets(buffers),
    signal,
    () => session.connection.messageReceived(),
    () => session.connection.kernelChanged(),
  );
  session.connection.connect(source);
  startRequesting(session, kind, signal);
  return { session, kind };
}

/** A function, because marimo loads the module once for all widgets. */
export default () => {
  let opening: Promise<Opened> | undefined;
  const opened = (model: unknown, signal: AbortSignal) => {
    opening ??= open(model as Model, signal);
    opening.catch(() => {
      opening = undefined; // the next view retries
    });
    return opening;
  };
  return {
    initialize({ model, signal }: InitializeProps): void {
      if (!missingFeatures().length) void opened(model, signal).catch(() => {});
    },
    async render({ model, el, signal }: RenderProps): Promise<void> {
      const missing = missingFeatures();
      if (missing.length) return showUnsupported(el, missing);
      const { session, kind } = await opened(model, signal);
      if (!signal.aborted) mount(session, kind, el, signal);
    },
  };
};
