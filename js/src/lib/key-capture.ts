/**
 * Handles keys before JupyterLab and Notebook 7 do. Both listen in the capture phase and would move between cells on
 * arrow keys; only a capture listener on the window runs earlier. It dispatches keys to the handlers of the elements
 * in the event's path.
 */
type KeyHandler = (event: KeyboardEvent) => boolean;

export class KeyCapture {
  readonly #handlers = new WeakMap<EventTarget, KeyHandler>();

  constructor(root: HTMLElement, signal: AbortSignal) {
    window.addEventListener(
      "keydown",
      (event) => {
        const path = event.composedPath();
        const end = path.indexOf(root);
        if (end < 0 || passes(event)) return;
        for (const el of path.slice(0, end + 1))
          if (this.#handlers.get(el)?.(event)) {
            event.preventDefault();
            break;
          }
        event.stopImmediatePropagation();
      },
      { capture: true, signal },
    );
  }

  /** `handler` returns whether it handled the key. */
  on(el: HTMLElement, handler: KeyHandler): void {
    this.#handlers.set(el, handler);
  }
}

/** Tab, function keys, Shift+Enter and combinations with Ctrl, Alt or Meta are left to the page. */
function passes(event: KeyboardEvent): boolean {
  return (
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.key === "Tab" ||
    (event.key === "Enter" && event.shiftKey) ||
    /^F\d+$/.test(event.key)
  );
}
