/** Opens an exported page: reads its packets from the page, without a kernel. */

import { Store } from "./data/store";
import { h } from "./lib/dom";
import { count, plural } from "./lib/format";
import { ExportedPageClient } from "./session/client";
import { Session } from "./session/session";
import { LocalModel, State } from "./session/state";
import { mount, startRequesting } from "./view";

function bytes(base64: string): ArrayBuffer {
  const text = atob(base64.trim());
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out.buffer;
}

export function start(root: Document | HTMLElement, el: HTMLElement, signal: AbortSignal): Session {
  const packets = [...root.querySelectorAll("script.smdw-packet")].map((script) => bytes(script.textContent ?? ""));
  const traits = new Store();
  traits.addPackets(packets);
  // An exported page stays at the step it was saved at; a step of -1 is the latest.
  const state = new State(new LocalModel({ ...traits.page, follow: false }), signal);
  const session = new Session(state, signal);
  session.store.addPackets(packets);
  session.connect(new ExportedPageClient());
  startRequesting(session, signal);
  mount(session, el, signal);
  el.prepend(...summary(session.store));
  linkFindings(root, session, el, signal);
  return session;
}

/** One line that says what the page does not contain. */
function summary(store: Store): HTMLElement[] {
  let all = 0;
  let opened = 0;
  for (const [index, run] of store.runs) {
    all += run.names.length;
    opened += store.opened(index);
  }
  if (opened === all) return [];
  const line = `Saved page: ${count(opened)} of ${plural(all, "tensor")} can be opened; of the rest, statistics only.`;
  return [h("p", { class: "smdw-saved" }, line)];
}

/** Makes the names of tensors in the findings above the widget open these tensors. */
function linkFindings(root: Document | HTMLElement, session: Session, el: HTMLElement, signal: AbortSignal) {
  const names = new Set(session.store.runs.get(0)?.names);
  for (const section of root.querySelectorAll<HTMLElement>(".smd-diagnosis section"))
    for (const code of section.querySelectorAll("code")) {
      const tensor = code.textContent ?? "";
      if (!names.has(tensor)) continue;
      const link = h("a", { href: "#", class: "smdw-finding-link" }, tensor);
      link.addEventListener(
        "click",
        (event) => {
          event.preventDefault();
          const step = Number(section.dataset.step ?? Number.NaN);
          session.state.set({ run: 0, tensor, zoom: [], selection: {}, ...(Number.isNaN(step) ? {} : { step }) });
          el.scrollIntoView();
        },
        { signal },
      );
      code.replaceChildren(link);
    }
}
