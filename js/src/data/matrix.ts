/** The two-dimensional slice of a tensor that the heat map and the table show. */

import { defined } from "../lib/defined";
import type { Form } from "../protocol/types";
import type { Image } from "./frames";
import type { Tile } from "./store";
import type { TensorView } from "./tensor-view";

/**
 * The displayed axes: the chosen ones if they fit the rank, else the last two (of an image, those before the
 * channels).
 */
export function resolveAxes(axes: readonly number[], rank: number, form?: Form): number[] {
  const wanted = Math.min(2, rank);
  const fits =
    axes.length === wanted &&
    new Set(axes).size === wanted &&
    axes.every((a) => Number.isInteger(a) && a >= 0 && a < rank);
  const end = form === "image" && rank > 2 ? rank - 1 : rank;
  return fits ? [...axes] : Array.from({ length: wanted }, (_, i) => end - wanted + i);
}

/** One index per axis, clamped to the shape. */
export function resolveFixed(fixed: readonly number[], shape: readonly number[]): number[] {
  return shape.map((size, axis) =>
    fixed.length === shape.length ? Math.max(0, Math.min(size - 1, Math.trunc(fixed[axis] ?? 0))) : 0,
  );
}

/** A tensor of any rank as rows and columns. */
export interface Matrix {
  shape: number[];
  axes: number[];
  fixed: number[];
  rows: number;
  cols: number;
}

export function matrixOf(
  shown: TensorView | undefined,
  axesTrait: readonly number[],
  fixedTrait: readonly number[],
): Matrix | undefined {
  const shape = shown?.frame?.shape ?? shown?.frames.plan?.shape;
  if (!shape) return undefined;
  const axes = resolveAxes(axesTrait, shape.length, shown?.frames.plan?.form);
  const size = (i: number) => (axes[i] === undefined ? 1 : defined(shape[defined(axes[i])]));
  return {
    shape,
    axes,
    fixed: resolveFixed(fixedTrait, shape),
    rows: axes.length === 2 ? size(0) : 1,
    cols: axes.length === 2 ? size(1) : size(0),
  };
}

/** First row, end row, first column, end column, in cells of the tensor. Fractional while zooming. */
export type CellWindow = readonly [number, number, number, number];

export const within = ([lo, hi]: readonly [number, number], i: number) => i >= lo && i < hi;
export const overlaps = (a: CellWindow, b: CellWindow) => a[0] < b[1] && b[0] < a[1] && a[2] < b[3] && b[2] < a[3];

/** Full index of a cell, such as `[0, 3, 12]`. */
export function indexText(m: Matrix, row: number, col: number): string {
  if (!m.shape.length) return "value";
  const index = m.shape.map((_, axis) =>
    axis === m.axes[m.axes.length - 1] ? col : m.axes.length === 2 && axis === m.axes[0] ? row : m.fixed[axis],
  );
  return `[${index.join(", ")}]`;
}

export function tileImage(tile: Tile): Image | undefined {
  const { image, image_range: range } = tile.data;
  if (!image || (image.shape.length !== 2 && image.shape[2] !== 4)) return undefined;
  return {
    rgba: image.shape.length === 3,
    data: image.data,
    height: defined(image.shape[0]),
    width: defined(image.shape[1]),
    lo: range?.data[0] ?? 0,
    hi: range?.data[1] ?? 1,
    edition: 0,
  };
}
