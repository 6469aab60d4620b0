import { PointerTracker } from "./pointer-tracker";

/** Delay in milliseconds while the pointer is down and does not move. */
const DRAG_DELAY = 400;

/**
 * Runs a callback once no movement has been scheduled for a while. When the timer is due, it waits for one more
 * animation frame: on a busy page, timers run before the pending movements, which reschedule it. While the pointer is
 * down the delay is longer, because a drag that pauses often continues.
 */
export class IdleTimer {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #frame = 0;
  #pending: { ms: number; callback: () => void } | undefined;
  readonly #pointer: PointerTracker;

  constructor(signal: AbortSignal) {
    this.#pointer = new PointerTracker(signal, () => this.#restart());
    signal.addEventListener("abort", () => this.cancel());
  }

  schedule(ms: number, callback: () => void): void {
    this.#pending = { ms, callback };
    this.#restart();
  }

  cancel(): void {
    this.#pending = undefined;
    this.#stop();
  }

  #stop() {
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }

  #restart() {
    this.#stop();
    if (!this.#pending) return;
    const { ms, callback } = this.#pending;
    const fire = () => {
      this.#pending = undefined;
      callback();
    };
    this.#timer = setTimeout(
      () => {
        this.#frame = requestAnimationFrame(() => {
          this.#timer = setTimeout(fire);
        });
      },
      this.#pointer.down ? Math.max(ms, DRAG_DELAY) : ms,
    );
  }
}
