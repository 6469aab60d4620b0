import { onResize } from "./dom";

/** Caches the scroll position and size of an element. Reading them during a redraw would force a page layout. */
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
    const measure = () => {
      this.left = el.scrollLeft;
      this.top = el.scrollTop;
      this.width = el.clientWidth;
      this.height = el.clientHeight;
      changed();
    };
    el.addEventListener("scroll", measure, { signal, passive: true });
    onResize(el, measure, signal);
  }

  /** Sets the vertical scroll position. */
  to(top: number): void {
    this.el.scrollTop = top;
    this.top = top;
  }
}
