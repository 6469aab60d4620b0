/** What is in view of an element that scrolls, known without asking: a question in the middle of a redraw lays the page out anew. */
export class Viewport {
  left = 0;
  top = 0;
  width = 0;
  height = 0;

  constructor(
    private readonly el: HTMLElement,
    changed: () => void,
    signal: AbortSignal,
  ) {
    const look = () => {
      this.left = el.scrollLeft;
      this.top = el.scrollTop;
      this.width = el.clientWidth;
      this.height = el.clientHeight;
      changed();
    };
    el.addEventListener("scroll", look, { signal, passive: true });
    const observer = new ResizeObserver(look);
    observer.observe(el);
    signal.addEventListener("abort", () => observer.disconnect());
  }

  /** Scrolls down to so many pixels; the next redraw knows it already. */
  to(top: number): void {
    this.el.scrollTop = top;
    this.top = top;
  }
}
