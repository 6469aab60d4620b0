import { PointerTracker } from "./pointer-tracker";

/** Delay in milliseconds while the pointer is down and does not move. */
const HELD = 400;

/**
 * Runs a callback once no movement has been scheduled for a while. When the timer is due, it waits for one more
 * animation frame: on a busy page, timers run before the pending movements, which reschedule it. While the pointer is
 * down the delay is longer, because a drag that pauses often continues.
 */
export class IdleTimer {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #frame = 0;
  #due: { ms: number; then: () => void } | undefined;
  readonly #pointer: PointerTracker;

  constructor(signal: AbortSignal) {
    this.#pointer = new PointerTracker(signal, () => this.#wait());
    signal.addEventListener("abort", () => this.cancel());
  }

  schedule(ms: number, then: () => void): void {
    this.#due = { ms, then };
    this.#wait();
  }

  cancel(): void {
    this.#due = undefined;
    this.#stop();
  }

  #stop() {
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }

  #wait() {
    this.#stop();
    if (!this.#due) return;
    const { ms, then } = this.#due;
    const act = () => {
      this.#due = undefined;
      then();
    };
    this.#timer = setTimeout(
      () => {
        this.#frame = requestAnimationFrame(() => {
          this.#timer = setTimeout(act);
        });
      },
      this.#pointer.down ? Math.max(ms, HELD) : ms,
    );
  }
}
