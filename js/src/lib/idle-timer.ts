import { PointerTracker } from "./pointer-tracker";

/** A pointer that is held down and has not moved for so long looks at where it is; before that it is on its way. */
const HELD = 400;

/**
 * Something to do once nothing has moved for a moment. On a page that is behind, a timer is due before the movements that wait for
 * the next frame: so that frame is let pass, and whoever moved in it has put this off again. While a pointer is down the moment is
 * a longer one, since a drag that hesitates goes on.
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
