/** The words of a query of tensors. Python has the same ones in `smdwidgets/queries/table.py`. */
import type { Vocabulary } from "./parse";

export const STATISTICS = [
  "size",
  "l2",
  "update",
  "zeros",
  "nonfinite",
  "surprise",
  "growth",
  "mean",
  "std",
  "min",
  "max",
];
/** Where those begin that the survey does not have. */
export const OF_ELEMENTS = 7;
export const VIEWS = ["map", "curves", "histograms", "table"] as const;
export type ViewName = (typeof VIEWS)[number];
const KEYS = ["change", "first", "last", "worst", "name", ...STATISTICS];

export const tensorWords = (collections: Iterable<string>): Vocabulary => ({
  keys: KEYS,
  statistics: STATISTICS,
  views: VIEWS,
  hasSteps: true,
  collections,
  isText: (key) => key === "name",
});

const NOTES: Record<string, string> = {
  size: "root mean square",
  l2: "L2 norm",
  update: "update ratio",
  zeros: "share of zeros",
  nonfinite: "share not finite",
  surprise: "distance from the usual size",
  growth: "size / its start",
  mean: "mean",
  std: "standard deviation",
  min: "minimum",
  max: "maximum",
  change: "largest / smallest size",
  worst: "farthest from the median",
  first: "first value",
  last: "last value",
  name: "in natural order",
};

export const tensorNote = (key: string): string => NOTES[key] ?? "";
