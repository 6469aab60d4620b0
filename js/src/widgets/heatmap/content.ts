/** What the heat map shows of a scene: which cells, and the images of them. */

import { type Difference, estimatedDifference, showsPlane, valueRef } from "../../data/difference";
import { type Image, imageKey } from "../../data/frames";
import { type CellWindow, type Matrix, matrixOf, overlaps } from "../../data/matrix";
import type { Store, Tile } from "../../data/store";
import { clampWindow } from "../../draw/heatmap";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import { differenceFault, shownView } from "../../session/slots";

export interface HeatmapContent {
  scene: Scene;
  matrix: Matrix | undefined;
  /** the cells in view */
  window: CellWindow;
  /** of the pooled images in a frame */
  key: string;
  /** A − B is shown */
  subtracting: boolean;
  /** B is shown beside A */
  beside: boolean;
  /** of all cells */
  image: Image | undefined;
  /** of B */
  second: Image | undefined;
  /** a sharper image of a part */
  tile: Tile | undefined;
  /** A − B is shown: the exact differences that cover the window, the finest first */
  differences: readonly Difference[] | undefined;
}

export class HeatmapContents {
  readonly #estimate = new Memo<Image | undefined>();

  constructor(private readonly store: Store) {}

  of(scene: Scene): HeatmapContent {
    const { traits, main, compared } = scene;
    const subtracting =
      shownView(traits) === "diff" && main !== undefined && compared !== undefined && !differenceFault(main, compared);
    const matrix = matrixOf(main, traits.axes, traits.fixed);
    const key = matrix ? imageKey(matrix.axes, matrix.fixed, traits.pool) : "";
    const second = compared?.frame?.images.get(key);
    const own = main?.frame?.images.get(key);
    const differences =
      subtracting && matrix
        ? this.store.differences(valueRef(main), valueRef(compared)).filter((each) => showsPlane(each, matrix))
        : undefined;
    const whole = differences?.find(({ head }) => matrix && coversAll(head.image, matrix))?.image;
    const window = windowOf(matrix, traits.zoom);
    return {
      scene,
      matrix,
      window,
      key,
      subtracting,
      beside: compared !== undefined && !subtracting && compared.frames.plan?.form !== "text",
      image: subtracting ? (whole ?? this.#estimated(own, second)) : own,
      second,
      tile: matrix && !subtracting ? this.#tile(scene, key, window) : undefined,
      differences,
    };
  }

  #tile({ main, traits }: Scene, key: string, window: CellWindow): Tile | undefined {
    if (!main) return undefined;
    return this.store.tile(
      (head) =>
        head.tensor === main.tensor &&
        head.run === main.run &&
        head.worker === main.worker &&
        head.step === main.savedStep &&
        head.pool === traits.pool &&
        imageKey(head.axes, head.fixed, head.pool) === key &&
        overlaps(cellsOf(head), window),
    );
  }

  /** The difference of the pooled values of both frames, computed once. */
  #estimated(a: Image | undefined, b: Image | undefined): Image | undefined {
    return this.#estimate.of([a?.data, b?.data], () => estimatedDifference(a, b));
  }
}

/** All cells. */
export const wholeOf = (m: Matrix | undefined): CellWindow => [
  0,
  Math.max(1, m?.rows ?? 1),
  0,
  Math.max(1, m?.cols ?? 1),
];

/** The cells in view for a zoom. */
export const windowOf = (m: Matrix | undefined, zoom: readonly number[]): CellWindow =>
  m && zoom.length === 4 ? clampWindow(zoom as unknown as CellWindow, m.rows, m.cols) : wholeOf(m);

/** The cells of a part. */
export const cellsOf = ({ rows, cols }: { rows: readonly number[]; cols: readonly number[] }): CellWindow =>
  [...rows, ...cols] as unknown as CellWindow;

/** Whether an image of a difference covers the cells in view. */
export const coversWindow = (image: Difference["head"]["image"], [r0, r1, c0, c1]: CellWindow): boolean =>
  image !== undefined && image.rows[0] <= r0 && image.rows[1] >= r1 && image.cols[0] <= c0 && image.cols[1] >= c1;

/** Whether the image has fewer pixels than the tensor has cells. */
export const isPooled = ({ matrix: m, image }: HeatmapContent): boolean =>
  Boolean(m && image && (image.width < m.cols || image.height < m.rows));

/** Whether an image of a difference is of the whole plane. */
const coversAll = (image: Difference["head"]["image"], m: Matrix): boolean =>
  image !== undefined &&
  image.rows[0] === 0 &&
  image.cols[0] === 0 &&
  image.rows[1] >= m.rows &&
  image.cols[1] >= m.cols;
