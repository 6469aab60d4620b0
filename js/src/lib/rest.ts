/**
 * Something to do once nothing has moved for a moment. On a page that is behind, a timer is due before the movements that wait for
 * the next frame: so that frame is let pass, and whoever moved in it has put this off again.
 */
export class Rest {
  #timer: ReturnType<typeof setTimeout> | undefined;
  #frame = 0;

  constructor(signal: AbortSignal) {
    signal.addEventListener("abort", () => this.cancel());
  }

  after(ms: number, then: () => void): void {
    this.cancel();
    this.#timer = setTimeout(() => {
      this.#frame = requestAnimationFrame(() => {
        this.#timer = setTimeout(then);
      });
    }, ms);
  }

  cancel(): void {
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }
}
