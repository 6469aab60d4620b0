/**
 * The one entry. Notebooks import it: from anywidget's model to a session and its views. An exported page holds its text as an
 * inline module, which then finds its data in that page.
 */
import type { InitializeProps, RenderProps } from "@anywidget/types";
import { lacking, refuse } from "./lib/support";
import { start } from "./page";
import { KernelSource } from "./request";
import { Session } from "./session";
import { type Model, State } from "./state";
import { attend, mount } from "./view";

function open(model: Model, signal: AbortSignal): Session {
  const session = new Session(new State(model, signal), signal);
  session.store.file(session.state.get("_boot"));
  const source = new KernelSource(
    model,
    (buffers) => session.store.file(buffers),
    signal,
    () => session.heard(),
    () => session.cut(),
  );
  session.connect(source);
  attend(session, signal);
  return session;
}

/** A function, so that two widgets of one module share nothing (marimo loads the module once for all of them). */
export default () => {
  let session: Session | undefined;
  return {
    initialize({ model, signal }: InitializeProps): void {
      if (!lacking().length) session = open(model as unknown as Model, signal);
    },
    render({ model, el, signal }: RenderProps): void {
      const missing = lacking();
      if (missing.length) refuse(el, missing);
      else mount(session ?? open(model as unknown as Model, signal), el, signal);
    },
  };
};

// An inline module has the page's own address; one that a notebook loads never has.
if (import.meta.url.split("#")[0] === document.baseURI.split("#")[0]) {
  const el = document.querySelector<HTMLElement>(".smdw-page");
  const missing = lacking();
  if (el && missing.length) refuse(el, missing);
  else if (el) start(document, el, new AbortController().signal);
}
