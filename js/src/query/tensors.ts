/** The words of a query of tensors. Python has the same ones in `smdwidgets/queries/table.py`. */
import type { Vocabulary } from "./parse";

export const STATISTICS = ["size", "l2", "update", "zeros", "nonfinite", "surprise", "mean", "std", "min", "max"];
export const VIEWS = ["map", "curves", "histograms", "table"] as const;
export type ViewName = (typeof VIEWS)[number];
const KEYS = ["change", "first", "last", "worst", "name", ...STATISTICS];

export const tensorWords = (collections: Iterable<string>): Vocabulary => ({
  keys: KEYS,
  statistics: STATISTICS,
  views: VIEWS,
  hasSteps: true,
  collections,
});
