/**
 * Requests details of the heat map when nothing moves: a sharper tile of the window, and the exact value under the
 * pointer.
 */

import { valueRef } from "../../data/difference";
import type { CellWindow, Matrix } from "../../data/matrix";
import type { Tile } from "../../data/store";
import { layoutHeatmap } from "../../draw/heatmap";
import type { Size } from "../../draw/pen";
import { equal } from "../../lib/equal";
import { Resource } from "../../session/resource";
import type { Scene } from "../../session/scene";
import type { Session } from "../../session/session";

const TILE = 140;
const VALUE = 90;
/** Maximum pixels of a tile per axis. */
const LARGEST = 512;

/** What the heat map shows. */
interface HeatmapState {
  matrix: Matrix;
  window: CellWindow;
  size: Size;
  /** the loaded image has fewer pixels than the tensor has cells */
  pooled: boolean;
  tile: Tile | undefined;
  /** cell under the pointer whose exact value is not loaded */
  unknown: readonly [number, number] | undefined;
}

export class HeatmapDetailLoader {
  readonly #tile: Resource;
  readonly #value: Resource;

  constructor(
    private readonly session: Session,
    signal: AbortSignal,
  ) {
    this.#tile = new Resource(session, "tile", signal, { rest: TILE, cancelsAtOnce: true });
    this.#value = new Resource(session, "value", signal, { rest: VALUE });
  }

  update({ main, traits }: Scene, { matrix, window, size, pooled, tile, unknown }: HeatmapState): void {
    if (!main?.frame || this.session.exported || main.pending || main.frames.plan?.reduced || main.frame.sampled)
      return;
    if (matrix.rows * matrix.cols === 0) return;
    const plane = { role: "main" as const, ...valueRef(main), axes: matrix.axes, fixed: matrix.fixed };
    this.#tile.update([plane, window, traits.pool, size, pooled], () => {
      const rows: [number, number] = [Math.floor(window[0]), Math.min(matrix.rows, Math.ceil(window[1]))];
      const cols: [number, number] = [Math.floor(window[2]), Math.min(matrix.cols, Math.ceil(window[3]))];
      const loaded = equal(tile?.head.rows, rows) && equal(tile?.head.cols, cols);
      if (!pooled || loaded || size.width <= 0 || size.height <= 0) return undefined;
      const box = layoutHeatmap(window, size);
      const most = (pixels: number, cells: number) => Math.max(1, Math.min(LARGEST, cells, Math.round(pixels)));
      const pixels: [number, number] = [most(box.height, rows[1] - rows[0]), most(box.width, cols[1] - cols[0])];
      return { what: "tile", ...plane, pool: traits.pool, rows, cols, size: pixels };
    });
    if (!unknown) return this.#value.cancel();
    const [row, col] = unknown;
    const cell = { ...plane, rows: [row, row + 1] as [number, number], cols: [col, col + 1] as [number, number] };
    this.#value.update(cell, () => ({ what: "values", ...cell }));
  }
}
