/** The exact difference of A and B that is in view. */
import { showsPlane, valueRef } from "../data/difference";
import { matrixOf } from "../data/matrix";
import type { Store } from "../data/store";
import { equal } from "../lib/equal";
import type { DiffRequest } from "../protocol/types";
import type { Scene } from "./scene";
import { differenceFault } from "./slots";

/** Pixels of an image, at least one per cell of small tensors. */
const CELLS = 1 << 14;
/** Cells that are listed. */
export const CHANGED = 12;

/** The request, and whether its answer is held. */
export function neededDifference(
  { traits, main, compared }: Scene,
  store: Store,
): { request: DiffRequest; held: boolean } | undefined {
  const shown = traits._kind === "inspector" || traits.inspect;
  const matrix = matrixOf(main, traits.axes, traits.fixed);
  const loaded = main && compared && !main.pending && !compared.pending && main.frame && compared.frame;
  if (!shown || traits.view !== "diff" || !matrix || !loaded || differenceFault(main, compared)) return undefined;
  const [a, b] = [valueRef(main), valueRef(compared)];
  const [r0, r1, c0, c1] = traits.zoom;
  const part = (from: number | undefined, to: number | undefined, size: number): [number, number] | undefined =>
    from === undefined || to === undefined ? undefined : [Math.max(0, Math.floor(from)), Math.min(size, Math.ceil(to))];
  const [rows, cols] = [part(r0, r1, matrix.rows), part(c0, c1, matrix.cols)];
  const image = { axes: matrix.axes, fixed: matrix.fixed, cells: CELLS, ...(rows && cols && { rows, cols }) };
  const [allRows, allCols] = [rows ?? [0, matrix.rows], cols ?? [0, matrix.cols]];
  const held = store.differences(a, b).some((difference) => {
    const { image: of } = difference.head;
    return showsPlane(difference, matrix) && equal(of?.rows, allRows) && equal(of?.cols, allCols);
  });
  return { request: { what: "diff", a, b, want: { bins: 0, changed: CHANGED, image } }, held };
}
