/** Helpers of the browser tests: mounts a widget with recorded data, waits for frames, sends events. */

import { type RecordedClient, recorded } from "../demo/recorded";
import type { Traits } from "../src/protocol/types";
import type { Session } from "../src/session/session";
import { LocalModel, State } from "../src/session/state";
import { mount, openSession, startRequesting } from "../src/view";
import css from "../src/widget.css?inline";
import { kindOf } from "./kinds";

export interface MountedWidget {
  el: HTMLElement;
  session: Session;
  source: RecordedClient;
  model: LocalModel;
  control: AbortController;
  close(): void;
}

export function open(
  traits: Partial<Traits>,
  options: { width?: number; runs?: number; many?: boolean; dark?: boolean; shadow?: boolean; delay?: number } = {},
): MountedWidget {
  const host = document.createElement("div");
  host.style.width = `${options.width ?? 1000}px`;
  host.style.background = options.dark ? "#14171b" : "#ffffff";
  document.body.append(host);
  const root = options.shadow ? host.attachShadow({ mode: "open" }) : host;
  root.append(Object.assign(document.createElement("style"), { textContent: css }));
  const el = document.createElement("div");
  root.append(el);
  const control = new AbortController();
  const model = new LocalModel({ tensor: "fc1.weight", ...traits });
  const state = new State(model, control.signal);
  const kind = kindOf(state);
  const session = openSession(state, kind, control.signal);
  const source = recorded(session.store, options);
  session.connection.connect(source, false);
  startRequesting(session, kind, control.signal);
  mount(session, kind, el, control.signal);
  return {
    el,
    session,
    source,
    model,
    control,
    close() {
      control.abort();
      host.remove();
    },
  };
}

export const frame = () => new Promise<number>((resolve) => requestAnimationFrame(resolve));

/** Waits until a condition is truthy and returns its value. What it reads may not be there yet. */
export async function until<T>(what: () => T | false | null | undefined | "", why = what.toString()): Promise<T> {
  const end = performance.now() + 20_000;
  while (performance.now() < end) {
    try {
      const value = what();
      if (value) return value as T;
    } catch (error) {
      if (!(error instanceof MissingElement)) throw error;
    }
    await frame();
  }
  throw new Error(`timed out: ${why}`);
}

/** Waits until the code of all components that are shown has been loaded, and they are drawn. */
export async function loaded(el: Element): Promise<void> {
  const isLoading = () => [...el.querySelectorAll(".smdw-deferred")].some((line) => line.checkVisibility());
  do {
    await frame();
    await frame();
    await until(() => !isLoading(), "the code of all components");
    await frame();
    await frame();
  } while (isLoading());
}

class MissingElement extends Error {}

export function $<E extends Element = HTMLElement>(root: Element, selector: string): E {
  const found = root.querySelector<E>(selector);
  if (!found) throw new MissingElement(`no ${selector}`);
  return found;
}

export const button = (root: Element, name: string) => {
  const found = [...root.querySelectorAll("button")].find(
    (each) => each.textContent === name || each.getAttribute("aria-label") === name,
  );
  if (!found) throw new Error(`no button ${name}`);
  return found;
};

export function key(el: Element, name: string, init: KeyboardEventInit = {}): KeyboardEvent {
  const event = new KeyboardEvent("keydown", { key: name, bubbles: true, composed: true, cancelable: true, ...init });
  el.dispatchEvent(event);
  return event;
}

export function pointer(el: Element, type: string, x: number, y: number, init: PointerEventInit = {}): void {
  const box = el.getBoundingClientRect();
  el.dispatchEvent(
    new PointerEvent(type, {
      clientX: box.left + x,
      clientY: box.top + y,
      bubbles: true,
      composed: true,
      cancelable: true,
      button: 0,
      pointerId: 1,
      ...init,
    }),
  );
}

export function pixel(canvas: HTMLCanvasElement, x: number, y: number): number[] {
  const ratio = canvas.width / canvas.clientWidth;
  return [...(canvas.getContext("2d")?.getImageData(Math.round(x * ratio), Math.round(y * ratio), 1, 1).data ?? [])];
}
