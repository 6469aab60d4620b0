/** One view of a widget, redrawn at most once per animation frame. */

import { ThemeWatch } from "./draw/theme";
import { h } from "./lib/dom";
import { KeyCapture } from "./lib/key-capture";
import { PROTOCOL } from "./protocol/types";
import { follow } from "./session/follow";
import { Session } from "./session/session";
import type { State } from "./session/state";
import type { Context, WidgetKind } from "./widgets/common/part";

export const openSession = (state: State, kind: WidgetKind, signal: AbortSignal): Session =>
  kind.session?.(state, signal) ?? new Session(state, signal);

/** Renders the widget into `el` until the signal aborts. */
export function mount(session: Session, kind: WidgetKind, el: HTMLElement, signal: AbortSignal): void {
  el.classList.add("smdw");
  const version = session.state.get("_protocol");
  if (version !== PROTOCOL) {
    const remedy = version > PROTOCOL ? "Reload the page" : "Restart the kernel";
    el.replaceChildren(
      h(
        "div",
        { class: "smdw-mismatch", role: "alert" },
        h("strong", {}, `${remedy}.`),
        h("p", {}, "The kernel and this page use different versions of smdwidgets, and cannot exchange data."),
        h("p", { class: "smdw-quiet" }, `Protocol mismatch: kernel ${version}, page ${PROTOCOL}.`),
      ),
    );
    return;
  }
  // An explorer sets its own height.
  const height = session.state.get("_kind") === "explorer" ? 0 : session.state.get("height");
  if (height > 0) el.style.height = `${height}px`;
  el.classList.toggle("smdw-fixed", height > 0);
  let frame = 0;
  const redraw = () => {
    if (!frame && !signal.aborted) frame = requestAnimationFrame(draw);
  };
  const themes = new ThemeWatch(el, redraw, signal);
  const pictures: (() => void)[] = [];
  const context: Context = {
    session,
    signal,
    keys: new KeyCapture(el, signal),
    theme: () => themes.theme,
    redraw,
    paint: (picture) => pictures.push(picture),
  };
  const root = kind.layout(context);
  const draw = () => {
    frame = 0;
    if (signal.aborted) return;
    root.update(session.scene(width));
    for (const picture of pictures.splice(0)) picture();
  };
  el.replaceChildren(root.el);
  // Measured here, once for all parts: reading it during a redraw would force a page layout.
  const stage = root.stage ?? root.el;
  let width = stage.clientWidth || 1000;
  const observer = new ResizeObserver(() => {
    if (stage.clientWidth === width) return;
    width = stage.clientWidth;
    redraw();
  });
  observer.observe(stage);
  session.state.onChange(redraw, signal);
  session.store.onChange(redraw, signal);
  signal.addEventListener("abort", () => {
    cancelAnimationFrame(frame);
    observer.disconnect();
    el.replaceChildren();
    el.classList.remove("smdw", "smdw-fixed");
  });
  draw();
}

/** Requests the data in view, once for all views of a session. */
export function startRequesting(session: Session, kind: WidgetKind, signal: AbortSignal): void {
  const requester = kind.requester?.(session, signal);
  let queued = false;
  const schedule = () => {
    if (queued) return;
    queued = true;
    queueMicrotask(() => {
      queued = false;
      if (signal.aborted) return;
      follow(session, session.scene());
      requester?.update(session.scene());
    });
  };
  session.state.onChange(schedule, signal);
  session.store.onChange(schedule, signal);
  session.onLook(schedule, signal);
  schedule();
}
