/** The query of a widget: its last text without an error. */

import { scalarsOnly } from "../data/scalars";
import type { Run } from "../data/store";
import type { MapStat, Traits } from "../protocol/types";
import { withPart } from "../query/edit";
import { parseFor } from "../query/evaluate";
import { conditionsOf, parse, type Query, QueryError } from "../query/parse";
import { OF_ELEMENTS, STATISTICS, tensorWords, type ViewName } from "../query/tensors";

/** So many scalars have a curve each; of more, a map shows all together. */
const MOST_CURVES = 64;

export interface QueryView {
  /** the last text without an error */
  text: string;
  query: Query;
  /** what is wrong with the text that was entered since */
  error: QueryError | undefined;
}

const isMapStat = (name: string): name is MapStat => STATISTICS.indexOf(name) < OF_ELEMENTS;
/** The survey's statistic of this name; undefined if it has none. */
export const mapStatOf = (statistic: string): MapStat | undefined =>
  statistic === "nonfinite" ? "not_finite" : isMapStat(statistic) ? statistic : undefined;
/** The name of a statistic of the survey in a query. */
const statisticOf = (stat: MapStat): string => (stat === "not_finite" ? "nonfinite" : stat);

/** How a result is shown unless the query says it. */
const usualView = (run: Run | undefined): ViewName =>
  run && run.names.length <= MOST_CURVES && scalarsOnly(run) ? "curves" : "map";

/** How the result is shown. */
export const viewOf = ({ query }: QueryView, run: Run | undefined): ViewName =>
  (query.view as ViewName | undefined) ?? usualView(run);

/** The traits of another presentation of the same result; of the usual one without a view. */
export const withView = (
  { text, query }: QueryView,
  run: Run | undefined,
  view: ViewName = usualView(run),
): Partial<Traits> => ({
  query: withPart(text, query, "view", view === usualView(run) ? "" : `as ${view}`),
});

/** The traits of another statistic: in the query, if that has one. */
export const withStat = ({ text, query }: QueryView, stat: MapStat): Partial<Traits> => ({
  map_stat: stat,
  ...(query.statistic && { query: withPart(text, query, "statistic", statisticOf(stat)) }),
});

/** Whether the result depends on values, not only on names. */
export const usesValues = (query: Query): boolean =>
  conditionsOf(query).some((part) => "key" in part && part.key !== "name");

/** Keys of the statistic that the query names, which is the size if it names none. */
const OF_STATISTIC = new Set(["first", "last", "worst"]);

export class QueryReader {
  #key = "";
  #view: QueryView = { text: "", query: parse("", tensorWords([])), error: undefined };

  /** The same object while the text and the words are the same. */
  read(text: string, run: Run | undefined): QueryView {
    // Collections are the only words that a run adds.
    const key = text && `${run?.collections.size}/${run?.namesVersion}/${text}`;
    if (key === this.#key) return this.#view;
    this.#key = key;
    const words = tensorWords(run?.collections.keys() ?? []);
    try {
      this.#view = { text, query: parseFor(text, words, run?.names ?? []), error: undefined };
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      this.#view = { ...this.#view, error };
    }
    return this.#view;
  }
  /** The statistic and the range of steps in the query. */
  traits({ query }: QueryView, { range }: Traits, run: Run | undefined): Partial<Traits> {
    const stat = mapStatOf(
      query.statistic ??
        (conditionsOf(query).some((part) => "key" in part && OF_STATISTIC.has(part.key)) ? "size" : ""),
    );
    const { from, to = run?.steps.at(-1) ?? Number.NaN } = query.steps ?? { from: Number.NaN };
    return { ...(stat && { map_stat: stat }), ...(to > from && !range.length && { range: [from, to] }) };
  }
}
