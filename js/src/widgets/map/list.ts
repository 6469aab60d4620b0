/** Which rows the Run Map shows, in which order, with which badges. */

import type { Store } from "../../data/store";
import type { Survey } from "../../data/survey";
import { hasNotFinite, notFiniteLabel, Summaries, type Summary } from "../../data/survey-summary";
import { defined } from "../../lib/defined";
import { compareTrouble, type MapModel, type MapRow, type Trouble } from "../../lib/map-rows";
import { Memo } from "../../lib/memo";
import { naturalOrder } from "../../lib/natural-order";
import type { MapFinding, Traits } from "../../protocol/types";
import type { QueryResults } from "../../session/query-results";
import type { Scene } from "../../session/scene";

export interface Badges {
  /** "NaN", "Inf" or ""; also "" if other tensors are not finite earlier */
  notFinite: string;
  /** number of steps at which a rule fired */
  fired: number;
}

const SEVERITY: Record<MapFinding["kind"], number> = { not_finite: 4, spike: 3, rule: 2, stands_out: 1 };
const FIRED = 2;

/** Rows of a map in its usual height; rows of a smaller map grow to this height. */
const FEW_ROWS = 24;
export const ROOMY = 20;
/** More tensors than rows of one pixel fit are merged. */
const LEAST_HEIGHT = 1;
const MOST_HEIGHT = 4;

export class MapList {
  rows: readonly MapRow[] = [];
  rowHeight = 14;
  #tensors: readonly number[] = [];
  #tensorsOf: readonly MapRow[] = [];
  readonly #summaries = new Summaries();
  summary: Summary = this.#summaries.of(undefined, 0);
  /** changes with the rows; and with what is known of them */
  version = 0;
  readonly #found = new Set<string>();
  readonly #rowsMemo = new Memo();
  readonly #troubleMemo = new Memo();
  /** by tensor, the trouble that findings and rules name exactly */
  #exact = new Map<number, Trouble>();
  #fired = new Map<number, number>();
  /** the first step at which a tensor is not finite */
  #firstNotFinite = Number.POSITIVE_INFINITY;

  constructor(
    private readonly store: Store,
    private readonly results: QueryResults,
  ) {}

  get model(): MapModel {
    return this.results.model;
  }

  /** The tensors of all rows, in their order. */
  get tensors(): readonly number[] {
    if (this.#tensorsOf !== this.rows) {
      this.#tensorsOf = this.rows;
      this.#tensors = [...new Set(this.rows.flatMap(({ tensors }) => tensors))];
    }
    return this.#tensors;
  }

  update(scene: Scene, survey: Survey | undefined, height: number, rowHeight: number): void {
    const { traits } = scene;
    const before = this.model;
    this.results.update(scene);
    const { model, summary } = this;
    if (model !== before) this.#found.clear();
    this.summary = this.#summaries.of(survey, model.names.length);
    if (this.summary !== summary) this.version++;
    this.#judge(scene);
    const ordered = !this.results.sorted && traits.map_order !== "model" && traits.map_order !== "name";
    const { map_order, map_fit } = traits;
    const fitted = map_fit && Math.round(height);
    const rows = [
      model,
      model.order,
      map_order,
      fitted,
      this.results.version,
      this.unfolded(traits),
      ordered && this.version,
    ];
    if (this.#rowsMemo.changed(rows)) {
      this.version++;
      this.#make(traits, height);
    }
    if (!traits.map_fit)
      this.rowHeight = Math.max(rowHeight, Math.min(ROOMY, Math.floor(height / (this.rows.length || 1))));
  }

  /** The chosen modules; else all of a small model, or that of the first finding. */
  unfolded(traits: Traits): string[] {
    if (traits.unfolded) return traits.unfolded;
    if (this.model.mostRows <= FEW_ROWS) return this.model.modules.map(({ id }) => id);
    const first = this.first(traits.run);
    const module = first === undefined ? undefined : this.model.moduleOf(first);
    // Findings come one after the other; rows that were unfolded stay so.
    if (module) this.#found.add(module.id);
    return [...this.#found];
  }

  /** The tensor of the first finding. */
  first(run: number): number | undefined {
    const finding = this.store.diagnoses.get(run)?.findings.find(({ tensor }) => tensor);
    const index = finding ? this.model.indexOf(finding.tensor) : -1;
    if (index >= 0) return index;
    return this.store.findings.get(run)?.findings.find(({ tensors }) => tensors.length)?.tensors[0];
  }

  badges(row: Pick<MapRow, "tensors">): Badges {
    let flag = 0;
    let fired = 0;
    for (const tensor of row.tensors) {
      // What breaks later is seen in its row: the mark is for the rows that lead to the cause.
      if (this.summary.notFinite[tensor] === this.#firstNotFinite) flag |= this.summary.flag[tensor] ?? 0;
      fired = Math.max(fired, this.#fired.get(tensor) ?? 0);
    }
    return { notFinite: notFiniteLabel(flag), fired };
  }

  trouble(tensor: number): Trouble {
    return this.#exact.get(tensor) ?? this.#seen(tensor);
  }

  #make(traits: Traits, height: number) {
    const { model } = this;
    const { matching, sorted } = this.results;
    const shown = (index: number) => !matching || matching.has(index);
    if (traits.map_fit) {
      const order = this.#order(traits).filter(shown);
      const rows = Math.max(1, Math.floor(height / LEAST_HEIGHT));
      const each = Math.max(1, Math.ceil(order.length / rows));
      // The height is divided among the rows, by fractions of a pixel.
      this.rowHeight = Math.max(LEAST_HEIGHT, Math.min(MOST_HEIGHT, height / Math.ceil(order.length / each || 1)));
      this.rows = model.flatRows(order, each);
    } else if (traits.map_order === "model" && !sorted)
      this.rows = model.rows(new Set(this.unfolded(traits)), matching);
    else this.rows = model.flatRows(this.#order(traits).filter(shown));
  }

  #order({ map_order: order }: Traits): readonly number[] {
    const { model } = this;
    if (this.results.sorted) return this.results.rows ?? [];
    if (order === "model") return model.order;
    if (order === "name") return naturalOrder(model.names);
    const troubles = order === "suspicious" ? model.names.map((_, tensor) => this.trouble(tensor)) : [];
    const by =
      order === "suspicious"
        ? (a: number, b: number) => compareTrouble(defined(troubles[a]), defined(troubles[b]))
        : (a: number, b: number) => defined(this.summary.score[b]) - defined(this.summary.score[a]);
    // Model order decides among equals.
    return [...model.order].sort(by);
  }

  /** The trouble of a tensor that the survey shows. */
  #seen(tensor: number): Trouble {
    const { summary } = this;
    const notFinite = hasNotFinite(summary.flag[tensor] ?? 0);
    const onset = (notFinite ? summary.notFinite : summary.sudden)[tensor] ?? Number.POSITIVE_INFINITY;
    const severity = notFinite ? SEVERITY.not_finite : Number.isFinite(onset) ? SEVERITY.stands_out : 0;
    return { severity, onset, amount: summary.score[tensor] ?? 0 };
  }

  /** What is known exactly of tensors' trouble, from findings and firings of rules. */
  #judge({ traits }: Scene) {
    const findings = this.store.findings.get(traits.run)?.findings;
    const rules = this.store.rulesOf(traits.run);
    const { summary, model } = this;
    const inputs = [summary, model, model.size, findings, rules.map(({ version }) => version)];
    if (!this.#troubleMemo.changed(inputs)) return;
    this.version++;
    this.#firstNotFinite = summary.notFinite.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY);
    this.#exact = new Map();
    const worse = (tensor: number, severity: number, onset: number) => {
      const trouble = this.trouble(tensor);
      if (tensor < 0 || severity < trouble.severity) return;
      // Steps of the survey are those of its bins; findings and rules have the exact ones.
      const known = this.#exact.has(tensor) && severity === trouble.severity;
      this.#exact.set(tensor, { ...trouble, severity, onset: known ? Math.min(trouble.onset, onset) : onset });
    };
    const index = (name: string) => model.indexOf(name);
    this.#fired = firedSteps(index, rules);
    for (const { findings: steps } of rules)
      for (const [step, list] of steps) for (const finding of list) worse(index(finding.tensor), FIRED, step);
    for (const finding of findings ?? [])
      for (const tensor of finding.tensors) {
        worse(tensor, SEVERITY[finding.kind] ?? 0, finding.first);
        if (finding.kind === "rule") this.#fired.set(tensor, Math.max(this.#fired.get(tensor) ?? 0, finding.count));
      }
  }
}

/** By tensor, the number of steps at which a rule fired on it. */
function firedSteps(
  index: (name: string) => number,
  rules: readonly { findings: Map<number, { tensor: string }[]> }[],
): Map<number, number> {
  const steps = new Map<string, Set<number>>();
  for (const { findings } of rules)
    for (const [step, list] of findings)
      for (const { tensor } of list) {
        const known = steps.get(tensor) ?? new Set();
        steps.set(tensor, known.add(step));
      }
  const out = new Map<number, number>();
  for (const [name, set] of steps) {
    const tensor = index(name);
    if (tensor >= 0) out.set(tensor, set.size);
  }
  return out;
}
