/**
 * Requests details of the heat map when nothing moves: a sharper tile of the window, and the exact value under the
 * pointer.
 */

import type { CellWindow, Matrix } from "../data/matrix";
import type { Tile } from "../data/store";
import { layoutHeatmap } from "../draw/heatmap";
import type { Size } from "../draw/pen";
import { IdleTimer } from "../lib/idle-timer";
import { jsonEqual } from "../lib/json-equal";
import type { Scene, Session } from "../session/session";

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
  readonly #tile: IdleTimer;
  readonly #value: IdleTimer;
  #key = "";

  constructor(
    private readonly session: Session,
    signal: AbortSignal,
  ) {
    this.#tile = new IdleTimer(signal);
    this.#value = new IdleTimer(signal);
  }

  update({ main, traits }: Scene, { matrix, window, size, pooled, tile, unknown }: HeatmapState): void {
    const { session } = this;
    if (!main?.frame || session.exported || main.pending || main.frames.plan?.reduced) return;
    if (matrix.rows * matrix.cols === 0) return;
    const at = {
      role: "main" as const,
      run: main.run,
      tensor: main.tensor,
      worker: main.worker,
      step: main.savedStep,
      axes: matrix.axes,
      fixed: matrix.fixed,
    };
    const key = JSON.stringify([at, window, traits.pool, size, pooled]);
    if (key !== this.#key) {
      this.#key = key;
      session.cancel("tile");
      this.#tile.cancel();
      const rows: [number, number] = [Math.floor(window[0]), Math.min(matrix.rows, Math.ceil(window[1]))];
      const cols: [number, number] = [Math.floor(window[2]), Math.min(matrix.cols, Math.ceil(window[3]))];
      const loaded = tile && jsonEqual(tile.head.rows, rows) && jsonEqual(tile.head.cols, cols);
      if (pooled && !loaded && size.width > 0 && size.height > 0) {
        const box = layoutHeatmap(window, size);
        const most = (pixels: number, cells: number) => Math.max(1, Math.min(LARGEST, cells, Math.round(pixels)));
        const pixels: [number, number] = [most(box.height, rows[1] - rows[0]), most(box.width, cols[1] - cols[0])];
        this.#tile.schedule(
          TILE,
          () => void session.request("tile", { what: "tile", ...at, pool: traits.pool, rows, cols, size: pixels }),
        );
      }
    }
    this.#value.cancel();
    if (!unknown) return;
    const [row, col] = unknown;
    this.#value.schedule(
      VALUE,
      () => void session.request("value", { what: "values", ...at, rows: [row, row + 1], cols: [col, col + 1] }),
    );
  }
}
