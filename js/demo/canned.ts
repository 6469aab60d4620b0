/**
 * A synthetic, deterministic run and a client that responds like a kernel, for the demo page and the tests. Statistics are computed
 * from the values, so that tests can compare pictures with them.
 */

import type { Store } from "../src/data/store";
import { encode } from "../src/protocol/packet";
import type {
  ErrorInfo,
  HistogramRequest,
  HistogramScale,
  KernelCommand,
  KernelRequest,
  KernelResponse,
  Param,
  ParamSpec,
  Params,
  Pool,
  RuleClass,
  RuleInfo,
  SectionRequest,
} from "../src/protocol/types";
import { type Client, type Progress, RequestError } from "../src/session/client";

export interface CannedTensor {
  name: string;
  collections: string[];
  shape: number[];
  dtype: string;
  /** save interval in steps */
  every: number;
  value(step: number, index: number, run: number): number;
}

/** Deterministic noise in -1..1. */
export function noise(...key: number[]): number {
  let h = 0x9e3779b9;
  for (const k of key) {
    h = Math.imul(h ^ (k | 0), 0x85ebca6b);
    h ^= h >>> 13;
    h = Math.imul(h, 0xc2b2ae35);
    h ^= h >>> 16;
  }
  return ((h >>> 0) / 0xffffffff) * 2 - 1;
}
/** Approximately normal noise. */
const normal = (...key: number[]) => (noise(...key, 1) + noise(...key, 2) + noise(...key, 3)) * 0.95;

export const LAST = 1200;
const decay = (step: number, run: number) => Math.exp((-step / LAST) * (run ? 2.2 : 3.4));

export const TENSORS: CannedTensor[] = [
  {
    name: "CrossEntropyLoss_output_0",
    collections: ["losses"],
    shape: [],
    dtype: "float32",
    every: 10,
    value: (s, _, r) => 0.18 + 2.1 * decay(s, r) + 0.09 * noise(s, r) * (0.3 + decay(s, r)),
  },
  {
    name: "accuracy",
    collections: ["metrics"],
    shape: [],
    dtype: "float32",
    every: 10,
    value: (s, _, r) => 0.97 - 0.86 * decay(s, r) + 0.012 * noise(s, r, 9),
  },
  ...["fc1", "fc2", "fc3"].flatMap((layer, k): CannedTensor[] => {
    const shape = [
      [48, 112],
      [32, 48],
      [10, 32],
    ][k] as [number, number];
    const spread = 0.9 / Math.sqrt(shape[1]);
    return [
      {
        name: `${layer}.weight`,
        collections: ["weights"],
        shape,
        dtype: "float32",
        every: 10,
        value: (s, i, r) => {
          const [row, col] = [Math.floor(i / shape[1]), i % shape[1]];
          const learnt = Math.sin(row / (3 + k) + 1.7 * Math.sin(col / 14)) * Math.exp(-(((col % 28) - 14) ** 2) / 90);
          return spread * (normal(i, k, r) + 2.6 * (1 - decay(s, r)) * learnt);
        },
      },
      {
        name: `${layer}.bias`,
        collections: ["biases"],
        shape: [shape[0]],
        dtype: "float32",
        every: 10,
        value: (s, i, r) => 0.05 * normal(i, k, 5) + 0.25 * (1 - decay(s, r)) * Math.sin(i / 2 + k),
      },
      {
        name: `gradient/${layer}.weight`,
        collections: ["gradients"],
        shape,
        dtype: "float32",
        every: 10,
        value: (s, i, r) => {
          if (k === 0 && s >= 700 && s < 760 && i % 37 === 0)
            return s === 720 && i % 74 === 0 ? Number.POSITIVE_INFINITY : Number.NaN;
          return (
            0.02 *
            (0.25 + decay(s, r)) *
            normal(s, i, k) *
            Math.exp(-1.4 * (2 - k)) *
            (1 + 3 * Math.max(0, noise(i, 3)) ** 6)
          );
        },
      },
      {
        name: `gradient/${layer}.bias`,
        collections: ["gradients"],
        shape: [shape[0]],
        dtype: "float32",
        every: 10,
        value: (s, i, r) => 0.01 * decay(s, r) * normal(s, i, k, 8),
      },
      {
        name: `relu${k + 1}_output_0`,
        collections: ["relu_output"],
        shape: [16, shape[0]],
        dtype: "float16",
        every: 20,
        value: (s, i) => Math.max(0, normal(s, i, k, 4) - 0.2 - 0.4 * noise(i % shape[0], k)),
      },
    ];
  }),
  {
    name: "conv1.weight",
    collections: ["weights"],
    shape: [8, 3, 5, 5],
    dtype: "float32",
    every: 50,
    value: (s, i, r) => 0.2 * normal(i, 77) + 0.5 * (1 - decay(s, r)) * Math.cos((i % 25) / 2 + i / 25),
  },
  {
    name: "attention.probabilities",
    collections: ["custom"],
    shape: [2, 4, 24, 24],
    dtype: "float32",
    every: 100,
    value: (s, i) => Math.exp(-(((i % 24) - (Math.floor(i / 24) % 24)) ** 2) / (2 + 30 * decay(s, 0))),
  },
  { name: "tokens", collections: ["custom"], shape: [4, 6], dtype: "str", every: 100, value: (_, i) => i },
  { name: "all.nan", collections: ["custom"], shape: [8, 8], dtype: "float32", every: 100, value: () => Number.NaN },
  { name: "nothing", collections: ["custom"], shape: [0, 8], dtype: "float32", every: 100, value: () => 0 },
  {
    name: "<img src=x onerror=alert(1)>",
    collections: ["custom"],
    shape: [4],
    dtype: "int64",
    every: 100,
    value: (s, i) => s + i,
  },
];

const WORDS = ["the", "gradient", "vanishes", "where", "nobody", "looks", "<b>bold</b>"];

/** A step every 10 global steps; every tenth one is EVAL, the others TRAIN. */
export function runSteps(last = LAST): { step: number; mode: number; modeStep: number }[] {
  const out = [];
  let evals = 0;
  let trains = 0;
  for (let step = 0; step <= last; step += 10) {
    const mode = step % 100 === 90 ? 2 : 1;
    out.push({ step, mode, modeStep: mode === 2 ? evals++ * 10 : trains++ * 10 });
  }
  return out;
}

export function catalog(
  run: number,
  options: { extra?: number; last?: number; from?: number; append?: boolean; status?: "running" | "ended" } = {},
): ArrayBuffer {
  const { extra = 0, last = run ? 900 : LAST, from = -1, append = false, status = run ? "ended" : "running" } = options;
  const tensors = append
    ? []
    : [
        ...TENSORS.map((tensor) => tensor.name),
        ...Array.from(
          { length: extra },
          (_, i) =>
            `encoder/layer.${Math.floor(i / 40)}/block${Math.floor(i / 8) % 5}/${["query", "key", "value", "dense", "norm", "bias", "mask", "output"][i % 8]}`,
        ),
      ];
  const collections: Record<string, number[]> = { all: tensors.map((_, i) => i) };
  if (!append)
    for (const [i, tensor] of TENSORS.entries())
      for (const collection of tensor.collections) collections[collection] = [...(collections[collection] ?? []), i];
  const steps = runSteps(last).filter(({ step }) => step > from);
  return encode(
    {
      kind: "catalog",
      run,
      name: run ? "mlp-slow" : "mlp",
      path: run ? "runs/mlp-slow" : "runs/mlp",
      status,
      message: "",
      workers: ["worker_0", "worker_1"],
      last_write: null,
      restarted_at: null,
      colour: run,
      append,
      tensors,
      collections,
    },
    {
      step: ["f8", [steps.length], steps.map((s) => s.step)],
      mode: ["u1", [steps.length], steps.map((s) => s.mode)],
      mode_step: ["f8", [steps.length], steps.map((s) => s.modeStep)],
    },
  );
}

export const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

const computed = new Map<string, Float64Array>();

export function values(tensor: CannedTensor, step: number, run: number): Float64Array {
  const key = `${tensor.name}/${step}/${run}`;
  const known = computed.get(key) ?? compute(tensor, step, run);
  computed.set(key, known);
  return known;
}

function compute(tensor: CannedTensor, step: number, run: number): Float64Array {
  const n = size(tensor.shape);
  const out = new Float64Array(n);
  for (let i = 0; i < n; i++) out[i] = tensor.value(step, i, run);
  return tensor.dtype === "float32" ? Float64Array.from(Float32Array.from(out)) : out;
}

export function reductions(x: Float64Array): number[] {
  const one = (v: Float64Array) => {
    if (!v.length) return [Number.NaN, Number.NaN, Number.NaN, 1, Number.NaN, 0, Number.NaN, 0, 0];
    let [lo, hi, sum, prod, l1, l2] = [v[0] as number, v[0] as number, 0, 1, 0, 0];
    for (const e of v) {
      lo = Number.isNaN(e) ? Number.NaN : Math.min(lo, e);
      hi = Number.isNaN(e) ? Number.NaN : Math.max(hi, e);
      sum += e;
      prod *= e;
      l1 += Math.abs(e);
      l2 += e * e;
    }
    const mean = sum / v.length;
    let variance = 0;
    for (const e of v) variance += (e - mean) ** 2;
    variance /= v.length;
    return [lo, hi, mean, prod, Math.sqrt(variance), sum, variance, l1, Math.sqrt(l2)];
  };
  return [...one(x), ...one(x.map(Math.abs))];
}

export function counts(x: Float64Array): number[] {
  let [nan, pos, neg, zero] = [0, 0, 0, 0];
  for (const e of x) {
    if (Number.isNaN(e)) nan++;
    else if (e === Number.POSITIVE_INFINITY) pos++;
    else if (e === Number.NEGATIVE_INFINITY) neg++;
    else if (e === 0) zero++;
  }
  return [x.length, nan, pos, neg, zero];
}

export function edgesFor(scale: HistogramScale, bins: number, lo: number, hi: number): Float64Array {
  const at = (i: number) => i / bins;
  if (!(lo < hi)) [lo, hi] = Number.isFinite(lo) ? [lo - 0.5, hi + 0.5] : [0, 1];
  if (scale === "linear") return Float64Array.from({ length: bins + 1 }, (_, i) => lo + (hi - lo) * at(i));
  const top = Math.max(Math.abs(lo), Math.abs(hi)) || 1;
  if (scale === "log") return Float64Array.from({ length: bins + 1 }, (_, i) => top * 10 ** (-7 * (1 - at(i))));
  const c = top * 1e-4;
  const to = (x: number) => Math.sign(x) * Math.log1p(Math.abs(x) / c);
  const [a, b] = [to(lo), to(hi)];
  return Float64Array.from({ length: bins + 1 }, (_, i) => {
    const t = a + (b - a) * at(i);
    return Math.sign(t) * c * Math.expm1(Math.abs(t));
  });
}

export function histogram(
  x: Float64Array,
  edges: Float64Array,
  log: boolean,
): { counts: Uint32Array; out: [number, number] } {
  const n = edges.length - 1;
  const out = new Uint32Array(n);
  let [below, above] = [0, 0];
  for (const each of x) {
    const v = log ? Math.abs(each) : each;
    if (!Number.isFinite(v) || (log && v === 0)) continue;
    if (v < (edges[0] as number)) below++;
    else if (v > (edges[n] as number)) above++;
    else {
      let [lo, hi] = [0, n - 1];
      while (lo < hi) {
        const mid = (lo + hi) >> 1;
        if ((edges[mid + 1] as number) <= v) lo = mid + 1;
        else hi = mid;
      }
      out[lo] = (out[lo] as number) + 1;
    }
  }
  return { counts: out, out: [below, above] };
}

/** The two-dimensional slice of a tensor: row-major values with rows and columns. */
export function slice(
  x: Float64Array,
  shape: readonly number[],
  axes: readonly number[],
  fixed: readonly number[],
): { rows: number; cols: number; at(r: number, c: number): number } {
  const strides = shape.map((_, axis) => size(shape.slice(axis + 1)));
  const base = shape.reduce(
    (sum, _, axis) => sum + (axes.includes(axis) ? 0 : (fixed[axis] ?? 0) * (strides[axis] as number)),
    0,
  );
  const [ra, ca] = axes.length === 2 ? [axes[0], axes[1]] : [undefined, axes[0]];
  return {
    rows: ra === undefined ? 1 : (shape[ra] as number),
    cols: ca === undefined ? 1 : (shape[ca] as number),
    at: (r, c) =>
      x[
        base +
          (ra === undefined ? 0 : r * (strides[ra] as number)) +
          (ca === undefined ? 0 : c * (strides[ca] as number))
      ] as number,
  };
}

export function pool(
  m: ReturnType<typeof slice>,
  [r0, r1]: [number, number],
  [c0, c1]: [number, number],
  height: number,
  width: number,
  how: Pool,
): Float64Array {
  const out = new Float64Array(height * width);
  for (let y = 0; y < height; y++)
    for (let x = 0; x < width; x++) {
      const [a, b] = [
        r0 + Math.floor((y * (r1 - r0)) / height),
        r0 + Math.max(Math.floor((y * (r1 - r0)) / height) + 1, Math.floor(((y + 1) * (r1 - r0)) / height)),
      ];
      const [c, d] = [
        c0 + Math.floor((x * (c1 - c0)) / width),
        c0 + Math.max(Math.floor((x * (c1 - c0)) / width) + 1, Math.floor(((x + 1) * (c1 - c0)) / width)),
      ];
      let value = Number.NaN;
      let sum = 0;
      let n = 0;
      let bad: number | undefined;
      for (let r = a; r < b; r++)
        for (let k = c; k < d; k++) {
          const v = m.at(r, k);
          if (!Number.isFinite(v)) bad = v;
          sum += v;
          n++;
          if (
            Number.isNaN(value) ||
            (how === "min"
              ? v < value
              : how === "max"
                ? v > value
                : how === "maxabs"
                  ? Math.abs(v) > Math.abs(value)
                  : false)
          )
            value = v;
        }
      out[y * width + x] = bad ?? (how === "mean" ? sum / n : value);
    }
  return out;
}

/** u16 codes as in the protocol. */
export function codes(x: Float64Array): { data: Uint16Array; range: [number, number] } {
  const finite = x.filter(Number.isFinite);
  const lo = finite.length ? finite.reduce((a, b) => Math.min(a, b)) : 0;
  const hi = finite.length ? finite.reduce((a, b) => Math.max(a, b)) : 0;
  const data = Uint16Array.from(x, (v) =>
    Number.isNaN(v)
      ? 65535
      : v === Number.POSITIVE_INFINITY
        ? 65534
        : v === Number.NEGATIVE_INFINITY
          ? 65533
          : Math.round(hi > lo ? ((v - lo) / (hi - lo)) * 65532 : 0),
  );
  return { data, range: [lo, hi] };
}

const Q = [0, 5, 25, 50, 75, 95, 100];

function shrink(rows: number, cols: number, cells: number): [number, number] {
  const scale = Math.min(1, Math.sqrt(cells / Math.max(1, rows * cols)));
  return [Math.max(1, Math.floor(rows * scale)), Math.max(1, Math.floor(cols * scale))];
}

export function stepsOf(tensor: CannedTensor, run: number, last?: number): number[] {
  return runSteps(last ?? (run ? 900 : LAST))
    .map(({ step }) => step)
    .filter((step) => step % tensor.every === 0);
}

export function plan(tensor: CannedTensor, run: number, worker: string, last?: number): ArrayBuffer {
  const steps = stepsOf(tensor, run, last);
  return encode(
    {
      kind: "plan",
      run,
      tensor: tensor.name,
      worker,
      dtype: tensor.dtype,
      shape: tensor.shape,
      bytes: size(tensor.shape) * 4,
      collections: tensor.collections,
      workers: ["worker_0", "worker_1"],
      form: tensor.dtype === "str" ? "text" : "number",
      reduced: false,
      errors: {},
    },
    { step: ["f8", [steps.length], steps] },
  );
}

/** Seed of the values of a run and worker. */
const seedOf = (run: number, worker: string) => run + (worker === "worker_1" ? 7 : 0);

export function frames(
  tensor: CannedTensor,
  run: number,
  worker: string,
  steps: number[],
  want: SectionRequest,
  errors: Record<string, ErrorInfo> = {},
): ArrayBuffer {
  const seed = seedOf(run, worker);
  const all = steps.map((step) => values(tensor, step, seed));
  const n = steps.length;
  const arrays: Parameters<typeof encode>[1] = {
    step: ["f8", [n], steps],
    stats: ["f8", [n, 18], all.flatMap(reductions)],
    counts: ["f8", [n, 5], all.flatMap(counts)],
    update: [
      "f8",
      [n],
      all.map((_, i) =>
        steps[i] ? 0.02 * decay(steps[i] as number, run) * (1 + 0.2 * noise(steps[i] as number)) : Number.NaN,
      ),
    ],
  };
  if (tensor.dtype === "str") arrays.stats = ["f8", [n, 18], new Float64Array(n * 18).fill(Number.NaN)];
  const extra: {
    hist?: Omit<HistogramRequest, "bins">;
    image?: { axes: number[]; fixed: number[]; pool: Pool; rows: number; cols: number };
    percentiles?: number[];
  } = {};
  const sorted = all.map((x) => x.filter(Number.isFinite).sort());
  if (want.hist && tensor.dtype !== "str") {
    const { scale, bins, edges, over } = want.hist;
    const every = (over ?? [{ run, worker }]).flatMap((place) =>
      stepsOf(tensor, place.run)
        .filter((_, i, list) => i % Math.max(1, Math.floor(list.length / 8)) === 0)
        .map((step) => values(tensor, step, seedOf(place.run, place.worker)).filter(Number.isFinite)),
    );
    const ends = (list: Float64Array[]) =>
      [
        Math.min(...list.map((x) => x.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY))),
        Math.max(...list.map((x) => x.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY))),
      ] as const;
    const shared = edgesFor(scale, bins, ...ends(every));
    const each = sorted.map((x) => (edges === "shared" ? shared : edgesFor(scale, bins, ...ends([x]))));
    const made = all.map((x, i) => histogram(x, each[i] as Float64Array, scale === "log"));
    arrays.edges = edges === "shared" ? ["f8", [bins + 1], shared] : ["f8", [n, bins + 1], each.flatMap((e) => [...e])];
    arrays.hist = ["u4", [n, bins], made.flatMap((m) => [...m.counts])];
    arrays.hist_out = ["f8", [n, 2], made.flatMap((m) => m.out)];
    extra.hist = { scale, edges, ...(over && { over }) };
  }
  if (want.percentiles && tensor.dtype !== "str") {
    arrays.percentiles = [
      "f8",
      [n, Q.length],
      sorted.flatMap((x) => Q.map((q) => x[Math.round(((x.length - 1) * q) / 100)] ?? Number.NaN)),
    ];
    extra.percentiles = Q;
  }
  if (want.image && tensor.dtype !== "str" && size(tensor.shape)) {
    const rank = tensor.shape.length;
    const axes =
      want.image.axes.length === Math.min(2, rank)
        ? want.image.axes
        : Array.from({ length: Math.min(2, rank) }, (_, i) => rank - Math.min(2, rank) + i);
    const fixed = want.image.fixed.length === rank ? want.image.fixed : tensor.shape.map(() => 0);
    const slices = all.map((x) => slice(x, tensor.shape, axes, fixed));
    const { rows, cols } = slices[0] as ReturnType<typeof slice>;
    const [h, w] = shrink(rows, cols, want.image.cells);
    const made = slices.map((m) => codes(pool(m, [0, rows], [0, cols], h, w, (want.image as { pool: Pool }).pool)));
    arrays.image = ["u2", [n, h, w], made.flatMap((m) => [...m.data])];
    arrays.image_range = ["f8", [n, 2], made.flatMap((m) => m.range)];
    extra.image = { axes, fixed, pool: want.image.pool, rows, cols };
  }
  return encode({ kind: "frames", run, tensor: tensor.name, worker, edition: 0, errors, ...extra }, arrays);
}

const param = (name: string, value: number | boolean, doc: string): ParamSpec => ({
  name,
  kind: typeof value === "boolean" ? "flag" : Number.isInteger(value) ? "integer" : "real",
  default: value,
  text: String(value),
  doc,
  unit: "",
});
const defaults = (rule: RuleClass | undefined): Param[] =>
  (rule?.params ?? []).map((spec) => ({ ...spec, value: spec.default }));

export const CLASSES: RuleClass[] = [
  {
    name: "VanishingGradient",
    builtin: true,
    help: "Mean of gradients below a threshold",
    params: [param("threshold", 1e-7, "mean of magnitudes below this fires")],
  },
  {
    name: "ExplodingTensor",
    builtin: true,
    help: "NaN or infinite values",
    params: [param("only_nan", false, "infinity does not count")],
  },
  { name: "Overfit", builtin: true, help: "", params: [param("patience", 5, "")] },
  { name: "MyRule", builtin: false, help: "defined in a cell", params: [] },
];

export interface CannedRule {
  info: RuleInfo;
  outcome(step: number): number;
  tensor: string;
  message(step: number): string;
}

export function cannedRules(last = LAST): CannedRule[] {
  const base = {
    run: 0,
    active: false,
    paused: false,
    done: last / 10 + 1,
    total: last / 10 + 1,
    message: "",
    params: [] as Param[],
    firings: [],
    firings_total: 0,
  };
  return [
    {
      info: {
        ...base,
        id: "0/ExplodingTensor",
        name: "ExplodingTensor",
        class: "ExplodingTensor",
        status: "IssuesFound",
        params: defaults(CLASSES[1]),
      },
      outcome: (s) => (s >= 700 && s < 760 ? 2 : 1),
      tensor: "gradient/fc1.weight",
      message: (s) => `${s === 720 ? "73 NaN and 73 infinite values" : "146 NaN values"} in gradient/fc1.weight`,
    },
    {
      info: {
        ...base,
        id: "0/VanishingGradient",
        name: "VanishingGradient",
        class: "VanishingGradient",
        status: "InProgress",
        active: true,
        done: 74,
        params: defaults(CLASSES[0]).map((each) => ({ ...each, value: 1e-5 })),
      },
      outcome: (s) => (s > 730 ? 0 : s % 100 === 90 ? 3 : 1),
      tensor: "",
      message: () => "",
    },
    {
      info: {
        ...base,
        id: "0/Overfit",
        name: "Overfit",
        class: "Overfit",
        status: "NoIssuesFound",
        params: defaults(CLASSES[2]),
      },
      outcome: (s) => (s % 100 === 90 ? 1 : 3),
      tensor: "",
      message: () => "",
    },
    {
      info: {
        ...base,
        id: "0/MyRule",
        name: "MyRule",
        class: "MyRule",
        status: "Error",
        message: "TensorUnavailable: no tensor named fc4.weight; did you mean fc3.weight?",
      },
      outcome: (s) => (s < 300 ? 1 : s === 300 ? 4 : 0),
      tensor: "",
      message: () => "",
    },
  ];
}

export function rules(list = cannedRules(), append = false): ArrayBuffer {
  const steps = runSteps().map(({ step }) => step);
  const arrays: Parameters<typeof encode>[1] = {};
  const infos = list.map((rule, i) => {
    const rows = steps.map((step) => [step, rule.outcome(step)] as const).filter(([, outcome]) => outcome);
    arrays[`${i}.step`] = ["f8", [rows.length], rows.map(([step]) => step)];
    arrays[`${i}.outcome`] = ["u1", [rows.length], rows.map(([, outcome]) => outcome)];
    const fired = rows.filter(([, outcome]) => outcome === 2);
    return {
      ...rule.info,
      firings: fired.map(([step]) => ({
        step,
        tensor: rule.tensor,
        worker: "worker_0",
        message: rule.message(step),
        value: null,
      })),
      firings_total: fired.length,
    };
  });
  return encode({ kind: "rules", append, rules: infos }, arrays);
}

type Progression = Pick<RuleInfo, "status" | "active" | "paused">;

/** The state of a rule after a command, before its next step, as in `RuleRunner`. */
export function afterCommand(rule: Progression, command: "start" | "pause" | "stop" | "rerun" | "set"): Progression {
  const running: Progression = { status: "InProgress", active: true, paused: false };
  const { status, active, paused } = rule;
  switch (command) {
    case "rerun":
    case "set":
      return running;
    case "start":
      return status === "Stopping" || status === "Stopped" ? running : { status, active, paused: false };
    case "pause":
      return { status, active, paused: active };
    case "stop":
      return active ? { status: "Stopping", active, paused } : { status, active, paused };
  }
}

function setParams(rule: CannedRule, params: Params) {
  for (const { name, kind } of rule.info.params) {
    const value = params[name];
    if (kind === "real" && value !== undefined && Number.isNaN(Number(value)))
      throw new RequestError({ type: "ValueError", message: `could not convert string to float: '${value}'` });
  }
  const changed = rule.info.params.map((param) => ({ ...param, value: params[param.name] ?? param.value }));
  rule.info = { ...rule.info, params: changed };
}

/** Responds like a kernel, with `delay` milliseconds per part. */
export class CannedClient implements Client {
  requests: KernelRequest[] = [];
  readonly #rules: CannedRule[];
  constructor(
    private readonly store: Store,
    private readonly options: { delay?: number; runs?: number; extra?: number; rules?: CannedRule[] } = {},
  ) {
    this.#rules = options.rules ?? cannedRules();
  }

  commands: KernelCommand[] = [];
  resendCommands(): void {}
  resend(): void {}

  async command(command: KernelCommand): Promise<KernelResponse> {
    this.commands.push(command);
    const at = command.do === "add" ? -1 : this.#rules.findIndex((rule) => rule.info.id === command.rule);
    const rule = this.#rules[at];
    if (command.do === "add") this.#rules.push(this.#added(command.class, command.run));
    else if (!rule)
      throw new RequestError({
        type: "SMDebugError",
        message: `rule '${command.rule.replace(/^\d+\//, "")}' does not exist; it may have been removed`,
      });
    else if (command.do === "remove") this.#rules.splice(at, 1);
    else {
      if (command.do === "set") setParams(rule, command.params ?? {});
      rule.info = { ...rule.info, ...afterCommand(rule.info, command.do) };
      if (command.do === "rerun" || command.do === "set") rule.outcome = () => 0;
    }
    this.store.addPackets([rules(this.#rules)]);
    if (rule && command.do === "stop") setTimeout(() => this.#stopped(rule));
    return {};
  }

  /** The step during which the rule was stopped has been judged. */
  #stopped(rule: CannedRule) {
    if (rule.info.status !== "Stopping") return;
    rule.info = { ...rule.info, status: "Stopped", active: false, paused: false };
    this.store.addPackets([rules(this.#rules)]);
  }

  #added(name: string, run: number): CannedRule {
    const found = CLASSES.find((each) => each.name === name);
    if (!found) throw new RequestError({ type: "UnknownRule", message: `unknown rule '${name}'` });
    if (run < 0 || run >= (this.options.runs ?? 1))
      throw new RequestError({ type: "SMDebugValueError", message: `run index ${run} is out of range` });
    const names = new Set(this.#rules.filter(({ info }) => info.run === run).map(({ info }) => info.name));
    let unique = name;
    for (let i = 2; names.has(unique); i++) unique = `${name}-${i}`;
    const info: RuleInfo = {
      id: `${run}/${unique}`,
      name: unique,
      class: name,
      run,
      status: "InProgress",
      active: true,
      paused: false,
      done: 0,
      total: 100,
      message: "",
      params: defaults(found),
      firings: [],
      firings_total: 0,
    };
    return { info, outcome: () => 0, tensor: "", message: () => "" };
  }

  async request(question: KernelRequest, signal: AbortSignal, progress?: Progress): Promise<KernelResponse> {
    this.requests.push(question);
    const { delay = 0, runs = 1, extra = 0 } = this.options;
    const pause = () =>
      new Promise<void>((resolve, reject) =>
        setTimeout(() => (signal.aborted ? reject(signal.reason) : resolve()), delay),
      );
    await pause();
    if (question.what === "hello") {
      for (let run = 0; run < runs; run++) this.store.addPackets([catalog(run, { extra: run ? 0 : extra })]);
      this.store.addPackets([rules(this.#rules)]);
      return { live: "loop", heartbeat: 5 };
    }
    if (question.what === "classes") return { classes: CLASSES };
    if (question.what === "match") {
      let expression: RegExp;
      try {
        expression = new RegExp(question.pattern, "i");
      } catch {
        throw new RequestError({ type: "SMDebugValueError", message: `invalid pattern '${question.pattern}'` });
      }
      const matches = (this.store.runs.get(question.run)?.names ?? []).flatMap((name, index) => {
        const found = expression.exec(name);
        return found ? [[index, found.index, found.index + found[0].length] as [number, number, number]] : [];
      });
      return { matches, total: matches.length };
    }
    if (question.what === "firing")
      return {
        firings: [{ step: question.step, tensor: "gradient/fc1.weight", worker: "", message: "fired", value: null }],
      };
    if (question.what === "series") {
      for (const line of question.lines) {
        const tensor = TENSORS.find((each) => each.name === line.tensor);
        if (!tensor) continue;
        const steps = stepsOf(tensor, line.run);
        const y = steps.map((step) =>
          line.stat === "value"
            ? tensor.value(step, 0, line.run)
            : (reductions(values(tensor, step, line.run))[
                ["min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2"].indexOf(
                  line.stat.replace("abs_", ""),
                ) + (line.stat.startsWith("abs_") ? 9 : 0)
              ] as number),
        );
        this.store.addPackets([
          encode({ kind: "series", ...line }, { step: ["f8", [steps.length], steps], y: ["f8", [steps.length], y] }),
        ]);
      }
      return {};
    }
    const tensor = TENSORS.find((each) => each.name === question.tensor);
    if (!tensor)
      throw new RequestError({
        type: "TensorUnavailable",
        message: `no values of ${question.tensor} in this synthetic run`,
      });
    if (question.what === "frames") {
      this.store.addPackets([plan(tensor, question.run, question.worker)]);
      const near = stepsOf(tensor, question.run)
        .filter((step) => question.after === undefined || step > question.after)
        .sort((a, b) => Math.abs(a - question.near) - Math.abs(b - question.near));
      for (let i = 0, n = 8; i < near.length; i += n, n *= 2) {
        this.store.addPackets([frames(tensor, question.run, question.worker, near.slice(i, i + n), question.want)]);
        progress?.(Math.min(near.length, i + n), near.length);
        await pause();
      }
      return {};
    }
    const seed = seedOf(question.run, question.worker);
    const m = slice(values(tensor, question.step, seed), tensor.shape, question.axes, question.fixed);
    const rows: [number, number] = [Math.max(0, question.rows[0]), Math.min(m.rows, question.rows[1])];
    const cols: [number, number] = [Math.max(0, question.cols[0]), Math.min(m.cols, question.cols[1])];
    const at = {
      run: question.run,
      tensor: tensor.name,
      worker: question.worker,
      step: question.step,
      axes: question.axes,
      fixed: question.fixed,
      rows,
      cols,
      shape: [m.rows, m.cols] as [number, number],
    };
    if (question.what === "tile") {
      const [h, w] = question.size;
      this.store.addPackets([
        encode(
          { kind: "tile", ...at, pool: question.pool, exact: h === rows[1] - rows[0] && w === cols[1] - cols[0] },
          { image: ["f4", [h, w], pool(m, rows, cols, h, w, question.pool)] },
        ),
      ]);
      return {};
    }
    const word = (v: number) =>
      tensor.dtype === "str"
        ? (WORDS[v % WORDS.length] as string)
        : Number.isNaN(v)
          ? "nan"
          : Number.isFinite(v)
            ? String(tensor.dtype === "float32" ? Number(Math.fround(v).toPrecision(8)) : v)
            : v > 0
              ? "inf"
              : "-inf";
    const cells = Array.from({ length: rows[1] - rows[0] }, (_, r) =>
      Array.from({ length: cols[1] - cols[0] }, (_, c) => word(m.at(rows[0] + r, cols[0] + c))),
    );
    this.store.addPackets([encode({ kind: "values", ...at, cells })]);
    return {};
  }
}
