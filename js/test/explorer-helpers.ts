/** Opens an explorer over packets, with a kernel that answers nothing unless the test says what. */

import type { KernelCommand, KernelRequest, KernelResponse, Traits } from "../src/protocol/types";
import type { Client } from "../src/session/client";
import type { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { mount, openSession, startRequesting } from "../src/view";
import css from "../src/widget.css?inline";
import { kindOf } from "./kinds";

type Message = KernelRequest | KernelCommand;

export interface OpenedExplorer {
  el: HTMLElement;
  session: Session;
  model: LocalModel;
  sent: Message[];
  close(): void;
}

interface Options {
  traits?: Partial<Traits>;
  width?: number;
  /** what the kernel answers; undefined: nothing yet */
  reply?: (message: Message) => KernelResponse | undefined;
  dark?: boolean;
  /** a saved page, without a kernel */
  exported?: boolean;
}

export function openExplorer(packets: ArrayBuffer[], options: Options = {}): OpenedExplorer {
  const { traits = {}, width = 1200, reply, dark = false, exported = false } = options;
  const host = document.createElement("div");
  host.style.width = `${width}px`;
  host.style.background = dark ? "#14171b" : "#ffffff";
  const el = document.createElement("div");
  host.append(Object.assign(document.createElement("style"), { textContent: css }), el);
  document.body.append(host);
  const control = new AbortController();
  const { signal } = control;
  const model = new LocalModel({ _kind: "explorer", map_stat: "surprise", ...traits });
  const state = new State(model, signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, signal);
  const sent: Message[] = [];
  const answer = (message: Message) => {
    sent.push(message);
    const known = "what" in message && message.what === "hello" ? {} : reply?.(message);
    return known ? Promise.resolve(known) : new Promise<never>(() => {});
  };
  const client: Client = { exported, request: answer, command: answer, resend() {}, resendCommands() {} };
  session.store.addPackets(packets);
  session.connection.connect(client, false);
  startRequesting(session, kind, signal);
  mount(session, kind, el, signal);
  return {
    el,
    session,
    model,
    sent,
    close() {
      control.abort();
      host.remove();
    },
  };
}
