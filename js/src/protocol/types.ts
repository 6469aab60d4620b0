/** The widget protocol as types; see docs/widget-protocol.md. */

export const PROTOCOL = 1;

export type Kind = "slider" | "inspector" | "scalars" | "rules" | "explorer";
export type PanelName = "histogram" | "history" | "heatmap" | "statistics" | "values" | "scalars" | "rules";
export type ModeName = "" | "TRAIN" | "EVAL" | "PREDICT" | "GLOBAL";
export type HistogramScale = "linear" | "log" | "symlog";
export type Pool = "mean" | "min" | "max" | "maxabs";
export type Role = "main" | "compare";

export interface Compare {
  step?: number;
  run?: number;
  worker?: string;
}

export interface Line {
  tensor: string;
  stat: string;
  run?: number;
  worker?: string;
  mode?: ModeName;
}

export type Selection =
  | Record<string, never>
  | { kind: "cells"; rows: [number, number]; cols: [number, number] }
  | { kind: "steps" | "bins"; range: [number, number] };

/** Synchronised traits: the user's choices. */
export interface Traits {
  _kind: Kind;
  _protocol: number;
  _boot: DataView[];
  step: number;
  follow: boolean;
  speed: number;
  mode: ModeName;
  tensor: string;
  run: number;
  worker: string;
  compare: Compare;
  selection: Selection;
  panels: PanelName[];
  hist_scale: HistogramScale;
  hist_bins: "shared" | "own";
  log_counts: boolean;
  history: "strip" | "ridge";
  axes: number[];
  fixed: number[];
  pool: Pool;
  palette: string;
  clip: number[];
  scale_over: "steps" | "step";
  zoom: number[];
  stats: string[];
  series: Line[];
  smoothing: number;
  log_x: boolean;
  log_y: boolean;
  range: number[];
  filter: string;
  filter_kind: "fuzzy" | "regex";
  closed: string[];
  height: number;
}

export const DEFAULTS: Traits = {
  _kind: "explorer",
  _protocol: PROTOCOL,
  _boot: [],
  step: -1,
  follow: true,
  speed: 10,
  mode: "",
  tensor: "",
  run: 0,
  worker: "",
  compare: {},
  selection: {},
  panels: ["histogram", "heatmap", "history", "statistics", "values"],
  hist_scale: "linear",
  hist_bins: "shared",
  log_counts: false,
  history: "strip",
  axes: [],
  fixed: [],
  pool: "maxabs",
  palette: "auto",
  clip: [],
  scale_over: "steps",
  zoom: [],
  stats: ["mean", "std", "abs_max"],
  series: [],
  smoothing: 0,
  log_x: false,
  log_y: false,
  range: [],
  filter: "",
  filter_kind: "fuzzy",
  closed: [],
  height: 0,
};

/** The eighteen reductions, in the column order of `stats`. */
export const REDUCTIONS = [
  ...["min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2"],
  ...["abs_min", "abs_max", "abs_mean", "abs_prod", "abs_std", "abs_sum", "abs_variance", "abs_l1", "abs_l2"],
] as const;

/** Mode names by mode number. */
export const MODES = ["", "TRAIN", "EVAL", "PREDICT", "GLOBAL"] as const;

/** A run and one of its workers. */
export interface RunWorker {
  run: number;
  worker: string;
}
export interface HistogramRequest {
  scale: HistogramScale;
  bins: number;
  edges: "shared" | "own";
  /** runs and workers whose values determine the shared bins, if not only the tensor's own */
  over?: RunWorker[];
}
export interface ImageRequest {
  axes: number[];
  fixed: number[];
  pool: Pool;
  cells: number;
}
export interface SectionRequest {
  stats: boolean;
  update: boolean;
  hist: HistogramRequest | null;
  image: ImageRequest | null;
  percentiles: boolean;
}
interface At {
  role: Role;
  run: number;
  tensor: string;
  worker: string;
}
interface Slice extends At {
  step: number;
  axes: number[];
  fixed: number[];
  rows: [number, number];
  cols: [number, number];
}

export type KernelRequest =
  | { what: "hello"; protocol: number; again: boolean }
  | ({ what: "frames"; near: number; want: SectionRequest; after?: number } & At)
  | ({ what: "tile"; pool: Pool; size: [number, number] } & Slice)
  | ({ what: "values" } & Slice)
  | { what: "series"; lines: Required<Line>[] }
  | { what: "firing"; rule: string; step: number }
  | { what: "classes" }
  | { what: "match"; run: number; pattern: string };

/** Changes something in the kernel: executed in order, never cancelled or superseded. */
export type KernelCommand =
  | { what: "rule"; do: "start" | "pause" | "stop" | "rerun" | "set" | "remove"; rule: string; params?: Params }
  | { what: "rule"; do: "add"; class: string; run: number; params: Params };

export type Params = Record<string, number | string | boolean | null>;

export interface ErrorInfo {
  type: string;
  message: string;
}

export type ToKernel = ({ kind: "ask"; id: string } & (KernelRequest | KernelCommand)) | { kind: "cancel"; id: string };
export type FromKernel =
  | { kind: "part"; id: string }
  | { kind: "progress"; id: string; done: number; total: number }
  | ({ kind: "answer"; id: string } & KernelResponse)
  | { kind: "error"; id: string; error: ErrorInfo }
  | { kind: "news" };

/** Fields of an `answer` besides its packets. */
export interface KernelResponse {
  live?: "loop" | "thread";
  heartbeat?: number;
  firings?: Finding[];
  classes?: RuleClass[];
  /** first matching names: index among the names received, start and end of the match */
  matches?: [index: number, start: number, end: number][];
  /** number of matching names */
  total?: number;
}

export type RunStatus = "running" | "ended" | "stalled" | "gone" | "error";
export interface CatalogHead {
  kind: "catalog";
  run: number;
  name: string;
  path: string;
  status: RunStatus;
  message: string;
  workers: string[];
  last_write: number | null;
  /** when another run was started in the same place, in Unix seconds */
  restarted_at: number | null;
  append: boolean;
  tensors: string[];
  collections: Record<string, number[]>;
}
/** How a tensor is displayed. */
export type Form = "number" | "text" | "complex" | "image" | "histogram";
export interface PlanHead {
  kind: "plan";
  run: number;
  tensor: string;
  worker: string;
  dtype: string;
  shape: number[];
  bytes: number;
  collections: string[];
  workers: string[];
  form: Form;
  reduced: boolean;
  errors: Record<string, ErrorInfo>;
}
export interface FramesHead {
  kind: "frames";
  run: number;
  tensor: string;
  worker: string;
  edition: number;
  errors: Record<string, ErrorInfo>;
  hist?: Omit<HistogramRequest, "bins">;
  image?: { axes: number[]; fixed: number[]; pool: Pool; rows: number; cols: number };
  percentiles?: number[];
}
export interface TileHead {
  kind: "tile";
  run: number;
  tensor: string;
  worker: string;
  step: number;
  axes: number[];
  fixed: number[];
  pool: Pool;
  rows: [number, number];
  cols: [number, number];
  shape: [number, number];
  exact: boolean;
}
export interface ValuesHead {
  kind: "values";
  run: number;
  tensor: string;
  worker: string;
  step: number;
  axes: number[];
  fixed: number[];
  rows: [number, number];
  cols: [number, number];
  shape: [number, number];
  cells: string[][];
}
export interface SeriesHead {
  kind: "series";
  run: number;
  tensor: string;
  worker: string;
  mode: ModeName;
  stat: string;
}

export type RuleStatus = "InProgress" | "NoIssuesFound" | "IssuesFound" | "Error" | "Stopping" | "Stopped";
/** A list is the value of the kinds words, patterns and numbers. An infinite number is a string. */
export type ParamValue = number | string | boolean | null | (number | string)[];
/** The schema of a parameter, as `Parameter.spec` returns it. */
export interface ParamSpec {
  name: string;
  kind: "real" | "integer" | "flag" | "text" | "choice" | "words" | "patterns" | "numbers";
  default: ParamValue;
  /** the default as a string */
  text: string;
  doc: string;
  unit: string;
  minimum?: number | null;
  maximum?: number | null;
  choices?: string[];
  /** whether null is a value */
  optional?: boolean;
}
export interface Param extends ParamSpec {
  value: ParamValue;
}
export interface RuleClass {
  name: string;
  builtin: boolean;
  help: string;
  params: ParamSpec[];
}
export interface Finding {
  step: number;
  tensor: string;
  worker: string;
  message: string;
  value: number | null;
}
export interface RuleInfo {
  id: string;
  name: string;
  class: string;
  run: number;
  status: RuleStatus;
  /** whether the rule has neither finished nor been stopped */
  active: boolean;
  paused: boolean;
  done: number;
  total: number;
  message: string;
  params: Param[];
  firings: Finding[];
  firings_total: number;
  restarted?: boolean;
}
export interface RulesHead {
  kind: "rules";
  append: boolean;
  classes?: RuleClass[];
  rules: RuleInfo[];
}
export interface PageHead {
  kind: "page";
  traits: Partial<Traits>;
}
export type Head = CatalogHead | PlanHead | FramesHead | TileHead | ValuesHead | SeriesHead | RulesHead | PageHead;

/** Outcomes of a rule at a step, by code. */
export const OUTCOMES = ["not evaluated", "passed", "fired", "skipped", "error"] as const;
