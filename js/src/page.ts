/** An exported page: its packets stand in the page, and nobody is asked. */
import { PageSource } from "./request";
import { Session } from "./session";
import { PlainModel, State } from "./state";
import { Store } from "./store";
import { attend, mount } from "./view";

function bytes(base64: string): ArrayBuffer {
  const text = atob(base64.trim());
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out.buffer;
}

export function start(root: Document | HTMLElement, el: HTMLElement, signal: AbortSignal): Session {
  const packets = [...root.querySelectorAll("script.smdw-packet")].map((script) => bytes(script.textContent ?? ""));
  const traits = new Store();
  traits.file(packets);
  // A page is not live: what it shows is the step it was saved at, unless that was "the latest".
  const state = new State(new PlainModel({ ...traits.page, follow: false }), signal);
  const session = new Session(state, signal);
  session.store.file(packets);
  session.connect(new PageSource());
  attend(session, signal);
  mount(session, el, signal);
  return session;
}
