/** A canvas with pointer gestures. */

import { CanvasPen, type Drawing, type Size } from "../../draw/pen";
import type { Theme } from "../../draw/theme";
import { capturePointer, h, onResize } from "../../lib/dom";
import type { Context } from "./part";

interface Pointer {
  x: number;
  y: number;
  event: PointerEvent;
}
interface Gestures {
  move?(at: Pointer | undefined): void;
  /** starts a drag; the returned function is called for each move and for the release */
  down?(at: Pointer): ((at: Pointer, done: boolean) => void) | undefined;
}

const figures = new WeakMap<HTMLCanvasElement, Figure>();

export class Figure {
  readonly el: HTMLElement;
  readonly canvas: HTMLCanvasElement;
  size: Size = { width: 0, height: 0 };
  readonly #pen: CanvasPen | undefined;
  #drawing: Drawing | undefined;
  #theme: Theme | undefined;
  #inSight = true;
  #due = false;

  constructor(
    name: string,
    private readonly context: Context,
    signal: AbortSignal = context.signal,
  ) {
    this.canvas = h("canvas", { role: "img" });
    this.el = h("div", { class: `smdw-figure smdw-figure-${name}` }, this.canvas);
    figures.set(this.canvas, this);
    const canvas = this.canvas.getContext("2d");
    if (canvas) this.#pen = new CanvasPen(canvas);
    const resized = () => {
      const { clientWidth: width, clientHeight: height } = this.el;
      if (width === this.size.width && height === this.size.height) return;
      this.size = { width, height };
      context.redraw();
    };
    onResize(this.el, resized, signal);
    const sight = new IntersectionObserver((entries) => {
      this.#inSight = entries.at(-1)?.isIntersecting ?? true;
      if (this.#inSight && this.#due) this.#draw();
    });
    sight.observe(this.el);
    signal.addEventListener("abort", () => sight.disconnect());
  }

  /** The figure that draws on a canvas. */
  static of(canvas: HTMLCanvasElement): Figure | undefined {
    return figures.get(canvas);
  }

  /** What the figure shows, for a picture file. */
  get drawing(): Drawing | undefined {
    return this.#drawing;
  }

  get visible(): boolean {
    return this.size.width > 0 && this.size.height > 0;
  }

  /**
   * Draws after all DOM updates of this frame (drawing text can force a page layout), if the figure is in the
   * viewport.
   */
  paint(drawing: Drawing, theme: Theme): void {
    this.#drawing = drawing;
    this.#theme = theme;
    this.#due = true;
    if (this.#inSight) this.context.paint(() => this.#draw());
  }

  #draw() {
    if (!this.visible || !this.#pen || !this.#drawing || !this.#theme) return;
    this.#due = false;
    const { width, height } = this.size;
    this.#pen.begin(width, height, Math.min(3, globalThis.devicePixelRatio || 1), this.#theme);
    this.#drawing(this.#pen, this.size, this.#theme);
  }

  /** Describes the picture for screen readers. */
  describe(text: string): void {
    if (this.canvas.getAttribute("aria-label") !== text) this.canvas.setAttribute("aria-label", text);
  }

  gestures(gestures: Gestures, signal: AbortSignal): void {
    const { canvas } = this;
    const at = (event: PointerEvent): Pointer => {
      const box = canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top, event };
    };
    let dragging: ReturnType<NonNullable<Gestures["down"]>>;
    const end = (event: PointerEvent) => {
      const drag = dragging;
      dragging = undefined;
      drag?.(at(event), true);
    };
    canvas.addEventListener(
      "pointerdown",
      (event) => {
        if (event.button !== 0) return;
        dragging = gestures.down?.(at(event));
        if (!dragging) return;
        capturePointer(canvas, event);
      },
      { signal },
    );
    canvas.addEventListener(
      "pointermove",
      (event) => {
        if (dragging) dragging(at(event), false);
        else gestures.move?.(at(event));
      },
      { signal },
    );
    canvas.addEventListener("pointerup", end, { signal });
    canvas.addEventListener("pointercancel", end, { signal });
    canvas.addEventListener("pointerleave", () => gestures.move?.(undefined), { signal });
  }
}
