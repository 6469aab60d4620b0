/** Pointer and wheel over the Run Map. */
import { capturePointer } from "../../lib/dom";
import type { MapRow } from "../../lib/map-rows";
import type { StepAxis } from "../../lib/step-axis";
import type { Context } from "../common/part";
import type { MapCursor } from "./cursor";
import type { MapScroll } from "./scroll";
import type { MapZoom } from "./zoom";

/** A drag starts after this many pixels. */
const DRAG = 4;
/** A gesture of the wheel stays what it began as until it pauses this long, in milliseconds. */
const WHEEL_PAUSE = 250;

interface Point {
  x: number;
  y: number;
}

interface Actions {
  /** The pointer is elsewhere. */
  moved(): void;
  /** A cell was clicked; `second`: to be compared. */
  cell(row: MapRow, step: number, second: boolean): void;
  /** The name of a row was clicked. */
  name(row: MapRow): void;
  /** A drag goes from one step to another. */
  brush(from: number, to: number): void;
}

export class MapPointer {
  /** where the pointer is; undefined: elsewhere */
  at: Point | undefined;
  #axis: StepAxis | undefined;
  #start: (Point & { step: number }) | undefined;
  #dragged = false;
  #wheel: { pans: boolean; at: number } = { pans: false, at: 0 };

  constructor(
    private readonly context: Context,
    private readonly cursor: MapCursor,
    private readonly scroll: MapScroll,
    private readonly zoom: MapZoom,
    private readonly actions: Actions,
  ) {
    const { grid } = cursor;
    const { signal } = context;
    grid.addEventListener("pointerdown", (event) => this.#down(event), { signal });
    grid.addEventListener("pointermove", (event) => this.#move(event), { signal });
    grid.addEventListener("pointerup", (event) => this.#up(event), { signal });
    grid.addEventListener(
      "pointercancel",
      () => {
        this.#start = undefined;
      },
      { signal },
    );
    grid.addEventListener(
      "pointerleave",
      () => {
        this.at = undefined;
        actions.moved();
      },
      { signal },
    );
    grid.addEventListener("wheel", (event) => this.#turn(event), { signal, passive: false });
  }

  update(axis: StepAxis): void {
    this.#axis = axis;
  }

  #point(event: MouseEvent): Point {
    const box = this.cursor.grid.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  #down(event: PointerEvent) {
    const axis = this.#axis;
    if (event.button !== 0 || !axis) return;
    const from = this.#point(event);
    this.#dragged = false;
    this.#start = { ...from, step: axis.step(from.x) };
    if (from.x < axis.left || from.x >= axis.right) return;
    capturePointer(this.cursor.grid, event);
  }

  #move(event: PointerEvent) {
    const now = this.#point(event);
    this.at = now;
    const axis = this.#axis;
    const start = this.#start;
    if (start && axis && start.x >= axis.left && start.x < axis.right) {
      this.#dragged ||= Math.abs(now.x - start.x) > DRAG;
      if (this.#dragged) this.actions.brush(start.step, axis.step(Math.max(axis.left, Math.min(axis.right, now.x))));
    }
    this.actions.moved();
  }

  #up(event: PointerEvent) {
    const from = this.#start;
    this.#start = undefined;
    const axis = this.#axis;
    const row = this.scroll.rowAt(this.#point(event).y);
    if (!from || !axis || !row || this.#dragged) return;
    if (from.x < axis.left) this.actions.name(row);
    else if (from.x < axis.right) this.actions.cell(row, axis.step(from.x), event.altKey);
    this.context.redraw();
  }

  /** The page scrolls unless the map has the focus. Ctrl and wheel zoom, at any time. */
  #turn(event: WheelEvent) {
    const axis = this.#axis;
    if (!axis) return;
    const scale = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const x = Math.max(axis.left, Math.min(axis.right, this.#point(event).x));
      this.zoom.at(axis.step(x), Math.exp(event.deltaY * scale * 0.004));
      return;
    }
    if (!this.cursor.focused) return;
    event.preventDefault();
    const now = performance.now();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (now - this.#wheel.at > WHEEL_PAUSE) this.#wheel.pans = sideways;
    this.#wheel.at = now;
    if (this.#wheel.pans) this.zoom.pan(((event.deltaX || event.deltaY) * scale) / (axis.right - axis.left));
    else this.scroll.to(this.scroll.top + event.deltaY * scale);
  }
}
