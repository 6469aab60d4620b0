/**
 * KeyCapture that stay ours. JupyterLab and Notebook 7 listen in the capture phase, high up, and would move cells with the arrows that
 * a slider needs; only a listener on the window comes before theirs. It hands keys to the parts below it itself.
 */
export type KeyHandler = (event: KeyboardEvent) => boolean;

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

  /** `handler` says whether the key meant something to it. */
  on(el: HTMLElement, handler: KeyHandler): void {
    this.#handlers.set(el, handler);
  }
}

/** Tab, function keys, Shift+Enter and everything with Ctrl, Alt or Meta belong to the page. */
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
