/** Whether a pointer is down anywhere on the page: what it moves is then on its way. */
export class PointerTracker {
  down = false;

  /** `changed` is told when one goes down and when it is let go. */
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
