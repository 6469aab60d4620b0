/** One widget's traits, data and requests. All views of the widget share it. */
import { Store } from "../data/store";
import { equal } from "../lib/equal";
import type { ModeName, SeriesLine, Traits } from "../protocol/types";
import { Connection } from "./connection";
import { type Queries, type Scene, SceneBuilder } from "./scene";
import type { State } from "./state";

/** The part of the survey that the Run Map shows. */
export interface SurveyView {
  /** indices, in the order of the rows */
  tensors: readonly number[];
  /** steps */
  from: number;
  to: number;
  /** the level of bins that are shown side by side */
  level: number;
}

/** The kernel's exact answer to a query, and where it holds. */
export interface QueryAnswer {
  text: string;
  run: number;
  worker: string;
  mode: ModeName;
  /** indices of tensors, in order */
  rows: readonly number[];
}

export class Session {
  readonly connection: Connection;
  /** What the Run Map shows; of several views of the widget, the one that was drawn last. */
  surveyView: SurveyView | undefined;
  /** The small curves in view. */
  curvesInView: readonly SeriesLine[] = [];
  queryAnswer: QueryAnswer | undefined;
  readonly #scenes: SceneBuilder;
  readonly #lookers = new Set<() => void>();

  constructor(
    readonly state: State,
    readonly signal: AbortSignal,
    readonly store = new Store(),
    /** reads the query; undefined: the widget has none */
    queries?: Queries,
  ) {
    this.connection = new Connection(store, signal);
    this.#scenes = new SceneBuilder(state, store, this.connection, queries);
  }

  /** Whether this is an exported page, without a kernel. */
  get exported(): boolean {
    return this.connection.exported;
  }

  /** Increases when data that was requested may be lost. */
  get epoch(): number {
    return this.connection.reconnections + this.store.restarts;
  }

  /** `width`: pixels of the view. */
  scene(width = 1000): Scene {
    return this.#scenes.build(width);
  }

  /** Called by the Run Map when it has been drawn. */
  lookAt(view: SurveyView): void {
    const before = this.surveyView;
    this.surveyView = view;
    if (!equal(before, view)) for (const listener of this.#lookers) listener();
  }

  /** The kernel's answer to a query, if it is there. */
  exactRows(text: string, { run, worker, mode }: Traits): readonly number[] | undefined {
    const answer = this.queryAnswer;
    const fits = answer?.text === text && answer.run === run && answer.worker === worker && answer.mode === mode;
    return fits ? answer.rows : undefined;
  }

  /** Called by the small multiples when they have been drawn. */
  lookAtCurves(lines: readonly SeriesLine[]): void {
    if (equal(this.curvesInView, lines)) return;
    this.curvesInView = lines;
    for (const listener of this.#lookers) listener();
  }

  /** Calls back when the Run Map or the small multiples show something else. */
  onLook(callback: () => void, signal: AbortSignal): void {
    this.#lookers.add(callback);
    signal.addEventListener("abort", () => this.#lookers.delete(callback));
  }
}
