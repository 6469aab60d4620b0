/** Opens an exported page: reads its packets from the page, without a kernel. */

import { Store } from "./data/store";
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
  return session;
}
