/** What the Run Map shows: query, colour, order, folding, presentation, and the legend. */

import { scalarsOnly } from "../../data/scalars";
import { legendOf, STAT_NAMES } from "../../draw/map";
import { h, Select, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { Memo } from "../../lib/memo";
import { MINIMAP } from "../../lib/step-axis";
import type { MapOrder, MapStat, Traits } from "../../protocol/types";
import { tensorNote, tensorWords, type ViewName } from "../../query/tensors";
import type { QueryResults } from "../../session/query-results";
import { viewOf, withStat, withView } from "../../session/query-view";
import type { Scene } from "../../session/scene";
import type { Context } from "../common/part";
import { Popover } from "../common/popover";
import { QueryBox } from "../common/query-box";

const STATS = Object.entries(STAT_NAMES).map(([stat, name]) => [stat as MapStat, `Colour: ${name}`] as const);
const ORDERS: readonly (readonly [MapOrder, string])[] = [
  ["model", "Order: model"],
  ["suspicious", "Order: most suspicious"],
  ["change", "Order: largest change"],
  ["name", "Order: name"],
];
/** What a single number has. */
const OF_SCALARS: readonly MapStat[] = ["growth", "surprise", "size", "not_finite"];
const BY_QUERY = [["query", "Order: query"]] as const;
const SHOWN: readonly (readonly [ViewName, string])[] = [
  ["map", "Show: map"],
  ["curves", "Show: curves"],
  ["histograms", "Show: histograms"],
  ["table", "Show: table"],
];
const FOLDS = [
  ["finding", "Open: the finding"],
  ["module", "Open: none"],
  ["none", "Open: all"],
  ["fit", "Open: fit all rows"],
] as const;
type Fold = (typeof FOLDS)[number][0] | "some";
/** How many choices are beside the query in a widget of this width; the others are in a menu. */
const inRow = (width: number) => (width >= 1380 ? 5 : width >= 1140 ? 3 : width >= 930 ? 1 : 0);

export class Toolbar {
  readonly el: HTMLElement;
  readonly #query: QueryBox;
  readonly #found = h("span", { class: "smdw-note smdw-found", role: "status" });
  readonly #shown: Select;
  readonly #stat: Select;
  readonly #order: Select;
  readonly #fold: Select;
  readonly #log: Select;
  readonly #row = h("div", { class: "smdw-choices" });
  readonly #menu = h("div", { class: "smdw-choices smdw-column" });
  readonly #view: HTMLElement;
  #inRow = -1;
  readonly #low = h("span", {});
  readonly #high = h("span", {});
  /** shown while there is something to read */
  readonly #unread = [h("span", { class: "smdw-key-unread" }), h("span", {}, "not read yet")];
  readonly #bar = h("span", { class: "smdw-legend-bar" });
  #results: QueryResults | undefined;
  readonly #legend = new Memo();

  constructor(private readonly context: Context) {
    const { session, signal } = context;
    const { state } = session;
    this.#query = new QueryBox(context, "Query", "Query: layers.*.weight | top 12 by change", (query) =>
      state.set({ query }),
    );
    this.#shown = new Select(
      "Show",
      (value) => this.#set(({ query, run }) => withView(query, run, value as ViewName)),
      signal,
    );
    this.#shown.el.classList.add("smdw-shown");
    this.#stat = new Select("Colour", (value) => this.#set((scene) => withStat(scene.query, value as MapStat)), signal);
    this.#order = new Select("Order", (value) => state.set({ map_order: value as MapOrder }), signal);
    this.#fold = new Select("Open modules", (value) => this.#setFold(value as Fold), signal);
    this.#log = new Select("Scale of the curve", (value) => state.set({ log_y: value === "log" }), signal);
    this.#log.el.classList.add("smdw-scale");
    const button = textButton("View", () => {}, signal);
    button.classList.add("smdw-menu-button");
    const popover = new Popover(button, this.#menu, context);
    this.#view = h("div", { class: "smdw-anchor" }, button, popover.el);
    this.el = h(
      "div",
      { class: "smdw-toolbar", role: "toolbar", "aria-label": "Run Map" },
      this.#query.el,
      this.#found,
      this.#row,
      this.#view,
      h("span", { class: "smdw-space" }),
      h(
        "div",
        { class: "smdw-map-legend", role: "img", "aria-label": "Legend" },
        this.#low,
        this.#bar,
        this.#high,
        h("span", { class: "smdw-key-nan" }),
        h("span", {}, "NaN"),
        h("span", { class: "smdw-key-sudden" }),
        h("span", {}, "sudden change"),
        h("span", { class: "smdw-key-unsaved" }),
        h("span", {}, "not saved"),
        ...this.#unread,
      ),
    );
  }

  update(scene: Scene, results: QueryResults): void {
    this.#results = results;
    const { traits, run, query } = scene;
    const found = results.failure || results.status;
    setText(this.#found, found);
    setVisible(this.#found, Boolean(found));
    setAttributes(this.#found, {
      title: results.approximate ? `${found}, from values of several steps together` : found,
    });
    this.#found.classList.toggle("smdw-error", results.failure !== "");
    const { collections = new Map<string, number[]>(), names = [] } = run ?? {};
    this.#query.update({
      text: this.context.session.state.get("query"),
      error: query.error,
      words: tensorWords([...collections.keys()]),
      names,
      counts: collections,
      note: tensorNote,
    });
    const scalars = scalarsOnly(run);
    this.#shown.update(scalars ? SHOWN.filter(([view]) => view !== "histograms") : SHOWN, viewOf(query, run));
    this.#stat.update(scalars ? STATS.filter(([stat]) => OF_SCALARS.includes(stat)) : STATS, traits.map_stat);
    this.#order.update(results.sorted ? BY_QUERY : ORDERS, results.sorted ? "query" : traits.map_order);
    const fold: Fold = traits.map_fit
      ? "fit"
      : traits.unfolded === null
        ? "finding"
        : traits.unfolded.length === 0
          ? "module"
          : "some";
    this.#fold.update(fold === "some" ? [...FOLDS, ["some", "Open: some"]] : FOLDS, fold);
    this.#log.update(
      [
        ["linear", "Curve: linear"],
        ["log", "Curve: log"],
      ],
      traits.log_y ? "log" : "linear",
    );
    this.#place(inRow(scene.stepAxis.right + MINIMAP));
    const { store } = this.context.session;
    const survey = store.surveys.find(traits.run, traits.worker, traits.mode, traits.map_stat);
    const waiting = store.readings.get(traits.run)?.state;
    for (const el of this.#unread)
      setVisible(el, waiting === "reading" || waiting === "sampled" || waiting === "stopped");
    this.#drawLegend(traits.map_stat, survey?.domain ?? [1, 65535]);
    setVisible(this.el, (scene.run?.steps.length ?? 0) > 0);
  }

  #drawLegend(stat: MapStat, domain: readonly [number, number]) {
    const theme = this.context.theme();
    if (!this.#legend.changed([stat, theme, domain])) return;
    const { table, low, high } = legendOf(stat, theme, domain);
    setText(this.#low, low);
    setText(this.#high, high);
    const stops: string[] = [];
    for (let i = 0; i <= 16; i++) {
      const at = 3 * Math.round((i / 16) * 255);
      stops.push(`rgb(${table[at]},${table[at + 1]},${table[at + 2]})`);
    }
    this.#bar.style.background = `linear-gradient(to right, ${stops.join()})`;
  }

  /** Puts the cursor into the query. */
  focus(): void {
    this.#query.focus();
  }

  /** Puts so many choices beside the query, and the others into the menu. */
  #place(count: number) {
    if (count === this.#inRow) return;
    this.#inRow = count;
    const choices = [this.#stat, this.#order, this.#fold, this.#shown, this.#log].map(({ el }) => el);
    this.#row.append(...choices.slice(0, count));
    this.#menu.append(...choices.slice(count));
    setVisible(this.#view, count < choices.length);
  }

  #set(patch: (scene: Scene) => Partial<Traits>) {
    const { session } = this.context;
    session.state.set(patch(session.scene()));
  }

  #setFold(fold: Fold) {
    const patch = {
      fit: { map_fit: true },
      finding: { map_fit: false, unfolded: null },
      module: { map_fit: false, unfolded: [] as string[] },
      none: { map_fit: false, unfolded: this.#results?.model.foldable ?? [] },
      some: {},
    }[fold];
    this.context.session.state.set(patch);
  }
}
