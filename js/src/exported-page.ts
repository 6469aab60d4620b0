/** The entry point of exported pages: reads packets from the page, without a kernel. */

import { Store } from "./data/store";
import { missingFeatures, showUnsupported } from "./lib/browser-support";
import { h, setText, setVisible } from "./lib/dom";
import { count, plural } from "./lib/format";
import { DEFAULTS, type Kind } from "./protocol/types";
import { ExportedPageClient } from "./session/client";
import type { Session } from "./session/session";
import { LocalModel, State } from "./session/state";
import { decodeState, encodeState, type Restored, STATE_NAMES } from "./session/state-string";
import { mount, openSession, startRequesting } from "./view";
import { loadKind } from "./widgets/kinds";

/** Widgets in which a tensor can be opened. */
const WITH_PICTURES: readonly Kind[] = ["explorer", "inspector"];
/** Before the state string in the page's address. */
const LINK = "#v=";
/** Rest after a change of the view before the address changes, in milliseconds. Browsers limit how often it may. */
const REST = 400;

function bytes(base64: string): ArrayBuffer {
  const text = atob(base64.trim());
  const out = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) out[i] = text.charCodeAt(i);
  return out.buffer;
}

/** Opens the page that contains this text. */
export function open(): void {
  const el = document.querySelector<HTMLElement>(".smdw-page");
  const missing = missingFeatures();
  if (el && missing.length) showUnsupported(el, missing);
  else if (el) void start(document, el, new AbortController().signal);
}

export async function start(root: Document | HTMLElement, el: HTMLElement, signal: AbortSignal): Promise<Session> {
  const packets = [...root.querySelectorAll("script.smdw-packet")].map((script) => bytes(script.textContent ?? ""));
  const traits = new Store();
  traits.addPackets(packets);
  // An exported page stays at the step it was saved at; a step of -1 is the latest.
  const state = new State(new LocalModel({ ...traits.page, follow: false }), signal);
  const kind = await loadKind(state);
  const session = openSession(state, kind, signal);
  session.store.addPackets(packets);
  session.connection.connect(new ExportedPageClient());
  const missing = root === document ? link(session, signal) : undefined;
  startRequesting(session, kind, signal);
  mount(session, kind, el, signal);
  el.prepend(...summary(session.store), ...(missing ? [missing] : []));
  linkFindings(root, session, el, signal);
  return session;
}

/**
 * Opens the view in the page's address, and writes the view there as it changes. Returns a line that says what the
 * address names and the page lacks.
 */
function link(session: Session, signal: AbortSignal): HTMLElement {
  const { store, state } = session;
  const missing = h("p", { class: "smdw-missing", role: "status", hidden: true });
  const runs = [...store.runs.values()];
  const names = runs.map((run) => run.head.name);
  const written = () => `${LINK}${encodeState(state.all(), names)}`;
  const read = () => {
    if (!location.hash.startsWith(LINK) || location.hash === written()) return;
    const found: Restored = decodeState(location.hash.slice(LINK.length), {
      runs: names,
      hasTensor: (name) => runs.some((run) => run.names.includes(name)),
      hasStep: (run, step) => runs[run]?.steps.includes(step) === true,
    });
    setText(missing, found.missing);
    setVisible(missing, found.missing !== "");
    const defaults = Object.fromEntries(STATE_NAMES.map((name) => [name, DEFAULTS[name]]));
    if (found.traits) state.set({ ...defaults, ...found.traits });
  };
  read();
  let last = written();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const write = () => {
    const now = written();
    // Replaced: moving a slider must not fill the browser's history.
    if (now !== last) history.replaceState(history.state, "", now);
    last = now;
  };
  const changed = () => {
    clearTimeout(timer);
    timer = setTimeout(write, REST);
  };
  state.onChange(changed, signal);
  window.addEventListener("hashchange", read, { signal });
  signal.addEventListener("abort", () => clearTimeout(timer));
  return missing;
}

/** One line that says what the page does not contain. */
function summary(store: Store): HTMLElement[] {
  let all = 0;
  let opened = 0;
  for (const [index, run] of store.runs) {
    all += run.names.length;
    opened += store.opened(index);
  }
  if (opened === all || !WITH_PICTURES.includes(store.page?._kind ?? "explorer")) return [];
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
