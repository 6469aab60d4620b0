/**
 * The entry point. A notebook imports it as a module. An exported page contains its text as an inline module, which
 * reads its data from the page.
 */
import type { InitializeProps, RenderProps } from "@anywidget/types";
import { start } from "./exported-page";
import { missingFeatures, showUnsupported } from "./lib/browser-support";
import { KernelClient } from "./session/client";
import { Session } from "./session/session";
import { type Model, State } from "./session/state";
import { mount, startRequesting } from "./view";

function open(model: Model, signal: AbortSignal): Session {
  const session = new Session(new State(model, signal), signal);
  session.store.addPackets(session.state.get("_boot"));
  const source = new KernelClient(
    model,
    (buffers) => session.store.addPackets(buffers),
    signal,
    () => session.messageReceived(),
    () => session.kernelChanged(),
  );
  session.connect(source);
  startRequesting(session, signal);
  return session;
}

/** A function, because marimo loads the module once for all widgets. */
export default () => {
  let session: Session | undefined;
  return {
    initialize({ model, signal }: InitializeProps): void {
      if (!missingFeatures().length) session = open(model as unknown as Model, signal);
    },
    render({ model, el, signal }: RenderProps): void {
      const missing = missingFeatures();
      if (missing.length) showUnsupported(el, missing);
      else mount(session ?? open(model as unknown as Model, signal), el, signal);
    },
  };
};

// Only an inline module has the URL of the page.
if (import.meta.url.split("#")[0] === document.baseURI.split("#")[0]) {
  const el = document.querySelector<HTMLElement>(".smdw-page");
  const missing = missingFeatures();
  if (el && missing.length) showUnsupported(el, missing);
  else if (el) start(document, el, new AbortController().signal);
}
