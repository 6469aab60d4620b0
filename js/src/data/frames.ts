/** Frames of one tensor: the statistics, histograms and images of its saved steps that the browser has loaded. */

import type { NotFinite } from "../lib/colour";
import { defined } from "../lib/defined";
import { equal } from "../lib/equal";
import type { Block, Blocks, Numbers } from "../protocol/packet";
import {
  type ErrorInfo,
  type FramesHead,
  type HistogramRequest,
  type HistogramScale,
  type PlanHead,
  REDUCTIONS,
  type Traits,
} from "../protocol/types";

export interface Histogram {
  scale: HistogramScale;
  edges: Float64Array;
  counts: Uint32Array;
  below: number;
  above: number;
  edition: number;
}

/** A pooled image. `imageValue(image, i)` returns the value of cell i. */
export interface Image {
  data: Numbers;
  height: number;
  width: number;
  lo: number;
  hi: number;
  edition: number;
  /** RGBA pixels of a logged image, which have no numeric values */
  rgba?: boolean;
}

export interface Frame {
  step: number;
  stats?: Float64Array;
  /** counts of elements, NaN, +Inf, -Inf, zeros */
  counts?: Float64Array;
  update?: number;
  percentiles?: { q: number[]; values: Float64Array };
  shape?: number[];
  /**
   * Elements of the sample from which the histogram and percentiles are estimated, where the whole value is missing;
   * and whether the statistics and counts are estimates, too.
   */
  sampled?: { elements: number; estimated: boolean };
  error?: ErrorInfo;
  readonly histograms: Map<string, Histogram>;
  readonly images: Map<string, Image>;
}

/**
 * The histogram bins to request. While two runs or workers are compared, both use the same bins, so that counts are
 * comparable.
 */
export function histogramRequest(traits: Traits): Omit<HistogramRequest, "bins"> {
  const { run, tensor, worker, compare, hist_scale: scale } = traits;
  if (!Object.keys(compare).length) return { scale, edges: traits.hist_bins };
  const named = compare.tensor !== undefined && compare.tensor !== tensor;
  const place = (run: number, worker: string, tensor: string) => ({ run, worker, ...(named && { tensor }) });
  const main = place(run, worker, tensor);
  const other = place(compare.run ?? run, compare.worker ?? worker, compare.tensor ?? tensor);
  if (equal(main, other)) return { scale, edges: "shared" };
  const name = ({ worker, tensor = "" }: typeof main) => `${worker}\n${tensor}`;
  // The order must not depend on which of the two is in view.
  const first = main.run - other.run || (name(main) < name(other) ? -1 : 1);
  return { scale, edges: "shared", over: first < 0 ? [main, other] : [other, main] };
}

export const histogramKey = ({ scale, edges, over = [] }: Omit<HistogramRequest, "bins">) =>
  [scale, edges, ...over.map(({ run, worker, tensor }) => `${run} ${worker}${tensor ? ` ${tensor}` : ""}`)].join("/");

/** Key of the bins to draw: the requested bins, else loaded bins of the same scale. */
export function availableHistogramKey(frame: Frame | undefined, wanted: Omit<HistogramRequest, "bins">): string {
  const key = histogramKey(wanted);
  if (!frame || frame.histograms.has(key)) return key;
  return [...frame.histograms.keys()].reverse().find((each) => each.startsWith(`${wanted.scale}/`)) ?? key;
}

/** Whether two histograms have equal bin edges. */
export function sameBins(a: Histogram | undefined, b: Histogram | undefined): boolean {
  return (
    a !== undefined &&
    b !== undefined &&
    a.edges.length === b.edges.length &&
    (a.edges === b.edges || a.edges.every((edge, i) => edge === b.edges[i]))
  );
}
export const imageKey = (axes: number[], fixed: number[], pool: string) =>
  // `fixed` is ignored for the displayed axes.
  `${axes.join()}/${fixed.map((index, axis) => (axes.includes(axis) ? "" : index)).join()}/${pool}`;

/** The value that a code of a pooled image stands for. */
export function imageValue(image: Image, index: number): number {
  const code = defined(image.data[index]);
  if (image.data instanceof Float32Array || image.data instanceof Float64Array) return code;
  const last = image.data instanceof Uint8Array ? 255 : 65535;
  if (code === last) return Number.NaN;
  if (code === last - 1) return Number.POSITIVE_INFINITY;
  if (code === last - 2) return Number.NEGATIVE_INFINITY;
  return image.lo + (code / (last - 3)) * (image.hi - image.lo);
}

/** Text for a pixel of a logged image. */
export function pixelText(image: Image, index: number): string {
  const [red, green, blue, alpha] = image.data.subarray(4 * index, 4 * index + 4);
  const grey = red === green && green === blue;
  return `${grey ? `grey ${red}` : `red ${red}, green ${green}, blue ${blue}`}${alpha === 255 ? "" : `, alpha ${alpha}`}`;
}

function row(block: Block, i: number): Numbers {
  const size = block.shape.slice(1).reduce((a, b) => a * b, 1);
  return block.data.subarray(i * size, (i + 1) * size);
}

function rows(arrays: Blocks, name: string, n: number, rank: number): Block | undefined {
  const block = arrays[name];
  return block && block.shape.length === rank && block.shape[0] === n ? block : undefined;
}

/** Index of the last entry <= `x` in an ascending list, or -1. */
export function lastAtOrBefore(rising: ArrayLike<number>, x: number): number {
  let lo = 0;
  let hi = rising.length;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (defined(rising[mid]) <= x) lo = mid + 1;
    else hi = mid;
  }
  return lo - 1;
}

/** Index of the entry nearest to `x` in an ascending list, or -1 if the list is empty. */
export function nearestIndex(rising: ArrayLike<number>, x: number): number {
  const i = lastAtOrBefore(rising, x);
  if (i < 0) return rising.length ? 0 : -1;
  if (i + 1 < rising.length && defined(rising[i + 1]) - x < x - defined(rising[i])) return i + 1;
  return i;
}

export class TensorFrames {
  plan: PlanHead | undefined;
  /** All saved steps of the tensor, ascending, loaded or not. */
  steps = new Float64Array(0);
  readonly frames = new Map<number, Frame>();
  /** Increases with every change; cache keys contain it. */
  version = 0;
  #sortedSteps: Float64Array | undefined;
  readonly #ranges = new Map<string, { version: number; value: [number, number] }>();
  bytes = 0;

  setPlan(plan: PlanHead, arrays: Blocks): void {
    this.plan = plan;
    const steps = arrays.step?.data;
    if (steps) this.#merge(steps);
    this.version++;
  }

  /** Adds the sections of a packet step by step. A lower edition does not replace a higher one. */
  add(head: FramesHead, arrays: Blocks): void {
    const steps = arrays.step?.data;
    if (!steps) return;
    const n = steps.length;
    const stats = rows(arrays, "stats", n, 2);
    const counts = rows(arrays, "counts", n, 2);
    const update = rows(arrays, "update", n, 1);
    const percentiles = rows(arrays, "percentiles", n, 2);
    const shapes = rows(arrays, "shapes", n, 2);
    const sampled = rows(arrays, "sampled", n, 2);
    const hist = rows(arrays, "hist", n, 2);
    const out = rows(arrays, "hist_out", n, 2);
    const edges = arrays.edges;
    const picture = rows(arrays, "image", n, 4);
    const image = rows(arrays, "image", n, 3) ?? (picture?.shape[3] === 4 ? picture : undefined);
    const range = rows(arrays, "image_range", n, 2);
    for (let i = 0; i < n; i++) {
      const step = defined(steps[i]);
      const frame: Frame = this.frames.get(step) ?? { step, histograms: new Map(), images: new Map() };
      this.frames.set(step, frame);
      if (stats && stats.shape[1] === REDUCTIONS.length) frame.stats = row(stats, i) as Float64Array;
      if (counts && counts.shape[1] === 5) frame.counts = row(counts, i) as Float64Array;
      if (update) frame.update = defined(update.data[i]);
      if (percentiles && head.percentiles?.length === percentiles.shape[1])
        frame.percentiles = { q: head.percentiles ?? [], values: row(percentiles, i) as Float64Array };
      if (shapes) frame.shape = [...row(shapes, i)].filter((size) => size >= 0);
      const elements = sampled && defined(row(sampled, i)[0]);
      if (elements) frame.sampled = { elements, estimated: row(sampled, i)[1] === 1 };
      const fault = head.errors?.[String(step)];
      if (fault) frame.error = fault;
      else if (stats) delete frame.error;
      if (hist && head.hist && edges) {
        const key = histogramKey(head.hist);
        if ((frame.histograms.get(key)?.edition ?? -1) <= head.edition) {
          const own = edges.shape.length === 2 ? row(edges, i) : edges.data;
          if (own.length === defined(hist.shape[1]) + 1)
            frame.histograms.set(key, {
              scale: head.hist.scale,
              edges: own as Float64Array,
              counts: row(hist, i) as Uint32Array,
              below: (out && defined(row(out, i)[0])) || 0,
              above: (out && defined(row(out, i)[1])) || 0,
              edition: head.edition,
            });
        }
      }
      if (image && head.image) {
        const key = imageKey(head.image.axes, head.image.fixed, head.image.pool);
        if ((frame.images.get(key)?.edition ?? -1) <= head.edition) {
          const [lo, hi] = range ? row(range, i) : [0, 1];
          if (defined(lo) > defined(hi)) continue; // this step has no image, others of the packet have
          frame.images.set(key, {
            data: row(image, i),
            height: defined(image.shape[1]),
            width: defined(image.shape[2]),
            lo: lo as number,
            hi: hi as number,
            edition: head.edition,
            rgba: image === picture,
          });
        }
      }
    }
    for (const block of Object.values(arrays)) this.bytes += block?.data.byteLength ?? 0;
    this.#merge(steps);
    this.#sortedSteps = undefined;
    this.version++;
  }

  /** Loaded steps, ascending. */
  loadedSteps(): Float64Array {
    this.#sortedSteps ??= Float64Array.from(this.frames.keys()).sort();
    return this.#sortedSteps;
  }

  /** The frame at a step, else the latest earlier loaded frame. */
  frameAt(step: number): Frame | undefined {
    const own = this.frames.get(step);
    if (own) return own;
    const i = lastAtOrBefore(this.loadedSteps(), step);
    return i < 0 ? undefined : this.frames.get(defined(this.loadedSteps()[i]));
  }

  /** Minimum and maximum over all loaded frames, cached per version. */
  range(name: string, of: (frame: Frame) => Iterable<number> | undefined): [number, number] {
    const known = this.#ranges.get(name);
    if (known?.version === this.version) return known.value;
    let lo = Number.POSITIVE_INFINITY;
    let hi = Number.NEGATIVE_INFINITY;
    for (const frame of this.frames.values())
      for (const x of of(frame) ?? [])
        if (Number.isFinite(x)) {
          if (x < lo) lo = x;
          if (x > hi) hi = x;
        }
    const value: [number, number] = [lo, hi];
    this.#ranges.set(name, { version: this.version, value });
    return value;
  }

  #merge(steps: ArrayLike<number>) {
    const all = new Set(this.steps);
    const before = all.size;
    for (let i = 0; i < steps.length; i++) all.add(defined(steps[i]));
    if (all.size !== before) this.steps = Float64Array.from(all).sort();
  }
}

/** Counts of finite values, and of NaN, +Inf and -Inf. */
export function finiteness(frame: Frame | undefined): { finite: number; others: number[] } {
  const [n = 0, ...others] = frame?.counts?.slice(0, 4) ?? [];
  return { finite: others.reduce((left, each) => left - each, n), others };
}

/** Which values of a frame are not finite; NaN if there are several kinds. */
export function notFiniteKind(frame: Frame | undefined): NotFinite | undefined {
  const { others } = finiteness(frame);
  return others[0] ? "nan" : others[1] ? "posInf" : others[2] ? "negInf" : undefined;
}

/** A statistic of a frame by name; counts as shares. NaN if it is not available. */
export function statistic(frame: Frame | undefined, name: string): number {
  if (!frame) return Number.NaN;
  const n = frame.counts?.[0] ?? 0;
  const share = (k: number) => (n ? k / n : Number.NaN);
  if (name === "value") return frame.stats?.[REDUCTIONS.indexOf("mean")] ?? Number.NaN;
  if (name === "update_ratio") return frame.update ?? Number.NaN;
  if (name === "nan") return share(frame.counts?.[1] ?? 0);
  if (name === "inf") return share((frame.counts?.[2] ?? 0) + (frame.counts?.[3] ?? 0));
  if (name === "zero") return share(frame.counts?.[4] ?? 0);
  return frame.stats?.[(REDUCTIONS as readonly string[]).indexOf(name)] ?? Number.NaN;
}

/** Range of the value axis over all loaded steps, so that a drag does not move the axis. */
export function histogramDomain(frames: TensorFrames, key: string): [number, number] {
  return frames.range(`edges/${key}`, (frame) => {
    const edges = frame.histograms.get(key)?.edges;
    return edges && [defined(edges[0]), defined(edges[edges.length - 1])];
  });
}
