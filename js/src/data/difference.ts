/** Differences of two values, as received or estimated from pooled images, and cells over steps. */

import { defined } from "../lib/defined";
import { equal } from "../lib/equal";
import type { Blocks } from "../protocol/packet";
import { DIFFERENCE_STATISTICS, type DiffHead, type LifeHead, type ValueRef } from "../protocol/types";
import { type Image, imageValue } from "./frames";
import type { TensorView } from "./tensor-view";

/** An exact difference. */
export interface Difference {
  head: DiffHead;
  statistics: ArrayLike<number>;
  image: Image | undefined;
  /** the cells that changed most, and their values */
  changed: { index: number[]; a: number; b: number }[];
}

export function differenceOf(head: DiffHead, arrays: Blocks): Difference {
  const { index, a, b, image, image_range: range, statistics } = arrays;
  const rank = index?.shape[1] ?? 0;
  return {
    head,
    statistics: statistics?.data ?? [],
    image: image && {
      data: image.data,
      height: defined(image.shape[0]),
      width: defined(image.shape[1]),
      lo: range?.data[0] ?? 0,
      hi: range?.data[1] ?? 0,
      edition: 0,
    },
    changed: Array.from({ length: index?.shape[0] ?? 0 }, (_, i) => ({
      index: Array.from(index?.data.subarray(i * rank, (i + 1) * rank) ?? []),
      a: a?.data[i] ?? Number.NaN,
      b: b?.data[i] ?? Number.NaN,
    })),
  };
}

export const differenceStatistic = (found: Difference, name: (typeof DIFFERENCE_STATISTICS)[number]): number =>
  found.statistics[DIFFERENCE_STATISTICS.indexOf(name)] ?? Number.NaN;

/** The value that a view shows, as in requests. */
export const valueRef = ({ run, tensor, worker, savedStep }: TensorView): ValueRef => ({
  run,
  tensor,
  worker,
  step: savedStep,
});

/** Whether a difference has a plane of the tensor. */
export const showsPlane = ({ head }: Difference, m: { axes: readonly number[]; fixed: readonly number[] }): boolean =>
  head.image !== undefined &&
  equal(head.image.axes, m.axes) &&
  head.image.fixed.every((at, axis) => m.axes.includes(axis) || at === m.fixed[axis]);

/** Differences of pooled values, which estimate a pooled image of the differences. */
export function estimatedDifference(a: Image | undefined, b: Image | undefined): Image | undefined {
  if (!a || !b || a.rgba || b.rgba || a.width !== b.width || a.height !== b.height) return undefined;
  const data = new Float32Array(a.width * a.height);
  let [lo, hi] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (let i = 0; i < data.length; i++) {
    const apart = imageValue(a, i) - imageValue(b, i);
    data[i] = apart;
    if (Number.isFinite(apart)) [lo, hi] = [Math.min(lo, apart), Math.max(hi, apart)];
  }
  return { data, width: a.width, height: a.height, lo, hi, edition: 0 };
}

/** The values of a cell by step. */
export type Life = Map<number, number>;

export const lifeKey = (run: number, tensor: string, worker: string, cell: readonly number[]) =>
  `${run}\n${worker}\n${cell.join()}\n${tensor}`;

export function addLives(lives: Map<string, Life>, head: LifeHead, arrays: Blocks): void {
  const { step, y } = arrays;
  head.cells.forEach((cell, k) => {
    const key = lifeKey(head.run, head.tensor, head.worker, cell);
    const life = lives.get(key) ?? new Map<number, number>();
    for (const [i, at] of step?.data.entries() ?? []) life.set(at, y?.data[i * head.cells.length + k] ?? Number.NaN);
    lives.set(key, life);
  });
}
