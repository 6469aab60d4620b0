/** Tracks whether a pointer is down anywhere on the page. */
export class PointerTracker {
  down = false;

  /** `changed` is called when a pointer goes down or up. */
  constructor(signal: AbortSignal, changed: () => void) {
    const options = { signal, capture: true, passive: true };
    const becomes = (down: boolean) => () => {
      this.down = down;
      changed();
    };
    window.addEventListener("pointerdown", becomes(true), options);
    window.addEventListener("pointerup", becomes(false), options);
    window.addEventListener("pointercancel", becomes(false), options);
  }
}
