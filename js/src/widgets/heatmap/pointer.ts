/** Pointer, wheel and keys over a heat map: the cell under the pointer, zoom, pan and selection. */
import type { CellWindow } from "../../data/matrix";
import type { Box } from "../../draw/axes";
import { cellAt, clampWindow, zoomWindow } from "../../draw/heatmap";
import { focusedNear } from "../../lib/dom";
import { equal } from "../../lib/equal";
import type { Figure } from "../common/figure";
import type { Context } from "../common/part";
import { type HeatmapContent, windowOf } from "./content";

export class HeatmapPointer {
  /** the cell under the pointer, or that keys have moved to */
  hover: readonly [number, number] | undefined;
  #content: HeatmapContent | undefined;
  #drawn = false;

  /** `box`: where a figure has its cells. */
  constructor(
    private readonly context: Context,
    private readonly figure: Figure,
    second: Figure,
    private readonly box: (window: CellWindow, figure: Figure) => Box,
  ) {
    const { signal, keys } = context;
    figure.canvas.tabIndex = 0;
    keys.on(figure.canvas, (event) => this.#key(event));
    figure.canvas.addEventListener("wheel", (event) => this.#wheel(event), { signal, passive: false });
    figure.canvas.addEventListener("dblclick", () => this.zoom(0.4), { signal });
    for (const each of [figure, second])
      each.gestures(
        {
          move: (at) => this.#point(each, at?.x, at?.y),
          down: (start) => this.#drag(each, start.x, start.y, start.event.shiftKey),
        },
        signal,
      );
  }

  /** `drawn`: whether there are cells. */
  update(content: HeatmapContent, drawn: boolean): void {
    this.#content = content;
    this.#drawn = drawn;
  }

  /** Zooms by a factor around the cell under the pointer. */
  zoom(by: number): void {
    const m = this.#content?.matrix;
    if (!m) return;
    const window = this.#window();
    const middle = this.hover ?? [(window[0] + window[1]) / 2, (window[2] + window[3]) / 2];
    const next = zoomWindow(window, by, middle, m.rows, m.cols);
    const all = next[1] - next[0] >= m.rows && next[3] - next[2] >= m.cols;
    this.context.session.state.set({ zoom: all ? [] : [...next] });
  }

  /** The cells in view, also if they are not drawn yet. */
  #window(): CellWindow {
    return windowOf(this.#content?.matrix, this.context.session.state.get("zoom"));
  }

  #point(figure: Figure, x: number | undefined, y: number | undefined) {
    const window = this.#window();
    const next =
      x === undefined || y === undefined || !this.#drawn ? undefined : cellAt(window, this.box(window, figure), x, y);
    if (equal(next, this.hover)) return;
    this.hover = next;
    this.context.redraw();
  }

  #drag(figure: Figure, x: number, y: number, select: boolean) {
    const start = this.#window();
    const box = this.box(start, figure);
    const m = this.#content?.matrix;
    const from = cellAt(start, box, x, y);
    if (!m || !from) return undefined;
    const { state } = this.context.session;
    const whole = start[1] - start[0] >= m.rows && start[3] - start[2] >= m.cols;
    return (at: { x: number; y: number }, done: boolean) => {
      const [dx, dy] = [at.x - x, at.y - y];
      if (Math.hypot(dx, dy) < 4) {
        if (done && state.get("selection").kind === "cells") state.set({ selection: {} });
        return;
      }
      // At full extent there is nowhere to pan to, so a drag selects cells.
      if (select || whole) {
        const to =
          cellAt(
            start,
            box,
            Math.max(box.x, Math.min(box.x + box.width - 0.01, at.x)),
            Math.max(box.y, Math.min(box.y + box.height - 0.01, at.y)),
          ) ?? from;
        const pair = (a: number, b: number): [number, number] => [Math.min(a, b), Math.max(a, b) + 1];
        state.set({ selection: { kind: "cells", rows: pair(from[0], to[0]), cols: pair(from[1], to[1]) } });
        return;
      }
      const rows = ((start[1] - start[0]) * dy) / box.height;
      const cols = ((start[3] - start[2]) * dx) / box.width;
      state.set({
        zoom: [...clampWindow([start[0] - rows, start[1] - rows, start[2] - cols, start[3] - cols], m.rows, m.cols)],
      });
    };
  }

  /** The wheel zooms with Ctrl (or a pinch) or if the figure has the focus; otherwise the page scrolls. */
  #wheel(event: WheelEvent) {
    const { canvas } = this.figure;
    if (!event.ctrlKey && focusedNear(canvas) !== canvas) return;
    event.preventDefault();
    this.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150));
  }

  #key(event: KeyboardEvent): boolean {
    const m = this.#content?.matrix;
    const { state } = this.context.session;
    if (!m) return false;
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") state.set({ zoom: [] });
    else if (event.key === "Escape") state.set({ selection: {} });
    else if (event.key.startsWith("Arrow")) {
      // Arrows move a cell cursor. The window follows it.
      const window = this.#window();
      const [row, col] = this.hover ?? [
        Math.floor((window[0] + window[1]) / 2),
        Math.floor((window[2] + window[3]) / 2),
      ];
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] as [
        number,
        number,
      ];
      const next: [number, number] = [
        Math.max(0, Math.min(m.rows - 1, row + by[0])),
        Math.max(0, Math.min(m.cols - 1, col + by[1])),
      ];
      this.hover = next;
      const shift = (lo: number, hi: number, x: number) => (x < lo ? x - lo : x + 1 > hi ? x + 1 - hi : 0);
      const [dr, dc] = [shift(window[0], window[1], next[0]), shift(window[2], window[3], next[1])];
      if (dr || dc) state.set({ zoom: [window[0] + dr, window[1] + dr, window[2] + dc, window[3] + dc] });
      this.context.redraw();
    } else return false;
    return true;
  }
}
