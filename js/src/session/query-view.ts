/** The query of a widget: its last text without an error. */
import type { Run } from "../data/store";
import type { MapStat, Traits } from "../protocol/types";
import { withPart } from "../query/edit";
import { parse, type Query, QueryError } from "../query/parse";
import { tensorWords, type ViewName } from "../query/tensors";

export interface QueryView {
  /** the last text without an error */
  text: string;
  query: Query;
  /** what is wrong with the text that was entered since */
  error: QueryError | undefined;
}

const MAP_STATS: Record<string, MapStat> = {
  size: "size",
  l2: "l2",
  update: "update",
  zeros: "zeros",
  nonfinite: "not_finite",
  surprise: "surprise",
};
/** The survey's statistic of this name; undefined if it has none. */
export const mapStatOf = (statistic: string): MapStat | undefined => MAP_STATS[statistic];
/** The name of a statistic of the survey in a query. */
const statisticOf = (stat: MapStat): string => (stat === "not_finite" ? "nonfinite" : stat);

/** How the result is shown. */
export const viewOf = ({ query }: QueryView): ViewName => (query.view as ViewName | undefined) ?? "map";

/** The traits of another presentation of the same result. */
export const withView = ({ text, query }: QueryView, view: ViewName): Partial<Traits> => ({
  query: withPart(text, query, "view", view === "map" ? "" : `as ${view}`),
});

/** The traits of another statistic: in the query, if that has one. */
export const withStat = ({ text, query }: QueryView, stat: MapStat): Partial<Traits> => ({
  map_stat: stat,
  ...(query.statistic && { query: withPart(text, query, "statistic", statisticOf(stat)) }),
});

/** Whether the result depends on values, not only on names. */
export const usesValues = ({ stages }: Query): boolean => stages.some(({ key }) => key !== "name");

export class QueryReader {
  #key = "";
  #view: QueryView = { text: "", query: parse("", tensorWords([])), error: undefined };

  /** The same object while the text and the words are the same. */
  read(text: string, run: Run | undefined): QueryView {
    // Collections are the only words that a run adds.
    const key = text && `${run?.collections.size}/${text}`;
    if (key === this.#key) return this.#view;
    this.#key = key;
    try {
      this.#view = { text, query: parse(text, tensorWords(run?.collections.keys() ?? [])), error: undefined };
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      this.#view = { ...this.#view, error };
    }
    return this.#view;
  }
}
