/** The tensors that the query of a widget leaves: from the survey that the page holds, or the kernel's exact answer. */

import type { Run } from "../data/store";
import { surveyColumns } from "../data/survey-columns";
import { defined } from "../lib/defined";
import { count, plural } from "../lib/format";
import { MapModel } from "../lib/map-rows";
import { Memo } from "../lib/memo";
import { type Cell, evaluate, type Table } from "../query/evaluate";
import type { Query } from "../query/parse";
import { STATISTICS, tensorWords } from "../query/tensors";
import { mapStatOf, usesValues } from "./query-view";
import type { Scene } from "./scene";
import type { Session } from "./session";

/** A column needs statistics that the page does not hold. */
class MissingValues extends Error {}

const NO_NAMES: readonly string[] = [];

export class QueryResults {
  model = new MapModel(NO_NAMES, new Map());
  /** indices of the tensors in the order of the query; undefined: no query */
  rows: readonly number[] | undefined;
  matching: ReadonlySet<number> | undefined;
  /** the query sorts the rows */
  sorted = false;
  /** values of several steps stand for one */
  approximate = false;
  /** why there is no result for the present query */
  failure = "";
  /** increases when the result changes */
  version = 0;
  readonly #inputs = new Memo();

  constructor(private readonly session: Session) {}

  update(scene: Scene): void {
    const { traits, run, query } = scene;
    const { queryAnswer: answer } = this.session;
    const { names = NO_NAMES, collections = new Map() } = run ?? {};
    // A run that is replaced has another list; to that of a growing one, names are appended.
    if (names !== this.model.names) this.model = new MapModel(names, collections);
    else this.model.extend();
    const surveys = usesValues(query.query) ? STATISTICS.map((each) => this.#survey(scene, each)?.version) : [];
    const inputs = [
      this.model,
      this.model.size,
      query.query,
      traits.worker,
      traits.mode,
      answer,
      this.session.connection.requests.get("query"),
      ...surveys,
    ];
    if (this.#inputs.changed(inputs)) this.#evaluate(scene);
  }

  /** How many tensors are left, for people. */
  get status(): string {
    if (!this.rows) return "";
    const { length } = this.model.names;
    return `${this.approximate ? "\u2248 " : ""}${count(this.rows.length)} of ${plural(length, "tensor")}`;
  }

  #evaluate(scene: Scene) {
    const { traits, run, query } = scene;
    const { query: parsed, text } = query;
    const { session } = this;
    this.failure = "";
    if (!parsed.stages.length) return this.#set(undefined);
    const sorted = parsed.stages.some(({ kind }) => kind === "order");
    const exact = usesValues(parsed) && session.exactRows(text, traits);
    if (exact) return this.#set(exact, sorted);
    const table = new TensorTable(this.model, run, (statistic) => {
      const survey = this.#survey(scene, statistic);
      if (!survey?.blocks.length) throw new MissingValues(statistic);
      const { from, to = Number.POSITIVE_INFINITY } = parsed.steps ?? { from: Number.NEGATIVE_INFINITY };
      return surveyColumns(survey, this.model.names.length, [from, to]);
    });
    try {
      this.#set(table.evaluate(parsed), sorted, table.pooled);
    } catch (error) {
      if (!(error instanceof MissingValues)) throw error;
      // The last result stays on the screen until the kernel has answered.
      const failed = session.connection.requests.get("query")?.error;
      this.failure = session.exported ? `Not in this file: values of '${error.message}'` : (failed ?? "");
    }
  }

  #survey({ traits }: Scene, statistic: string) {
    const stat = mapStatOf(statistic);
    return stat && this.session.store.surveys.find(traits.run, traits.worker, traits.mode, stat);
  }

  #set(rows: readonly number[] | undefined, sorted = false, approximate = false) {
    this.rows = rows?.filter((row) => row < this.model.names.length);
    this.matching = this.rows && new Set(this.rows);
    this.sorted = sorted;
    this.approximate = approximate;
    this.version++;
  }
}

type Columns = ReturnType<typeof surveyColumns>;

/** The tensors of a run in model order, with columns of their statistics. */
export class TensorTable implements Table {
  readonly keys;
  readonly statistics;
  readonly views;
  readonly hasSteps;
  readonly collections;
  readonly isText;
  readonly names: readonly string[];
  /** a column that was read merges values of several steps */
  pooled = false;

  constructor(
    private readonly model: MapModel,
    private readonly run: Pick<Run, "collections"> | undefined,
    private readonly columns: (statistic: string) => Columns,
  ) {
    const words = tensorWords(run?.collections.keys() ?? []);
    ({ keys: this.keys, statistics: this.statistics, views: this.views, hasSteps: this.hasSteps } = words);
    ({ collections: this.collections, isText: this.isText } = words);
    this.names = model.order.map((tensor) => model.names[tensor] as string);
  }

  /** Indices of tensors. */
  evaluate(query: Query): number[] {
    return evaluate(this, query).map((row) => defined(this.model.order[row]));
  }

  members(collection: string): number[] {
    const members = new Set(this.run?.collections.get(collection));
    return [...this.model.order.keys()].filter((row) => members.has(defined(this.model.order[row])));
  }

  isDescending(): boolean {
    return true;
  }

  cells(key: string, { statistic = "size" }: Query): ArrayLike<Cell> {
    if (key === "name") return this.names;
    if (key === "change") return this.#inOrder("size", "change");
    if (key === "first" || key === "last" || key === "worst") return this.#inOrder(statistic, key);
    return this.#inOrder(key, "largest");
  }

  #inOrder(statistic: string, name: "first" | "last" | "worst" | "largest" | "change"): Float64Array {
    const columns = this.columns(statistic);
    this.pooled ||= columns.pooled;
    const column = columns[name];
    return Float64Array.from(this.model.order, (tensor) => defined(column[tensor]));
  }
}
