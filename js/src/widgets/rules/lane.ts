/** The label of a rule's lane. It opens the rule's parameters, findings and controls. */
import type { RuleState } from "../../data/store";
import { h, setAttributes, setText, setVisible } from "../../lib/dom";
import { plural, truncate } from "../../lib/format";
import type { Scene } from "../../session/scene";
import { Deferred } from "../common/deferred";
import type { Context } from "../common/part";
import { Popover } from "../common/popover";
import { goToFiring } from "./firings";
import type { RuleRow } from "./row";
import { RULE_ICONS, ruleLabel } from "./status";

/** Rules in the order of their lanes: those that found most severe things first, and of these the earliest. */
export function worstFirst(rules: readonly RuleState[]): RuleState[] {
  const rank = (rule: RuleState) => {
    if (rule.info.firings_total > 0) return 0;
    if (rule.info.status === "Error") return 1;
    return rule.info.active ? 2 : rule.judged ? 3 : 4;
  };
  const onset = (rule: RuleState) => {
    let first = Number.POSITIVE_INFINITY;
    for (const [step, outcome] of rule.outcomes) if (outcome === 2 && step < first) first = step;
    return first;
  };
  return rules
    .map((rule, i) => ({ rule, i, rank: rank(rule), onset: onset(rule) }))
    .sort((a, b) => a.rank - b.rank || (a.onset === b.onset ? 0 : a.onset - b.onset) || a.i - b.i)
    .map(({ rule }) => rule);
}

export class RuleLane {
  readonly el: HTMLElement;
  readonly #mark = h("span", { class: "smdw-lane-mark", "aria-hidden": "true" });
  readonly #name = h("span", { class: "smdw-lane-name" });
  readonly #count = h("span", { class: "smdw-lane-count" });
  readonly #status = h("span", { class: "smdw-sr" });
  readonly #row: Deferred<RuleRow>;
  readonly #popover: Popover;
  #rule: RuleState | undefined;

  constructor(
    id: string,
    private readonly context: Context,
  ) {
    this.#row = new Deferred(context, async () => new (await import("./row")).RuleRow(id, context));
    const button = h(
      "button",
      { type: "button", class: "smdw-lane-button" },
      this.#mark,
      this.#name,
      this.#status,
      this.#count,
    );
    this.#popover = new Popover(button, this.#row.el, context, "above");
    this.el = h("div", { class: "smdw-lane-label smdw-lane-rule" }, button, this.#popover.el);
  }

  update(rule: RuleState, scene: Scene, top: number): void {
    const label = ruleLabel(rule);
    this.el.style.top = `${top}px`;
    this.el.dataset.status = label;
    setText(this.#mark, RULE_ICONS[label]);
    setText(this.#name, truncate(rule.info.name, 80));
    const fired = rule.info.firings_total;
    setText(this.#count, fired ? plural(fired, "step") : label === "Clear" ? "" : label.toLowerCase());
    setVisible(this.#count, fired > 0 || label !== "Clear");
    setText(this.#status, ` ${label} `);
    setAttributes(this.#popover.button, { title: `${truncate(rule.info.name, 80)}: parameters and findings` });
    this.#rule = rule;
    if (!this.#popover.open && !this.#row.part) return;
    this.#row.use((row) => {
      row.update(rule, scene, false);
      if (this.#popover.open) row.open(true);
    });
  }

  /** Goes to a step at which the rule fired, and to the tensor. */
  goTo(step: number): void {
    if (this.#rule) goToFiring(this.context.session, this.#rule, step);
  }

  dispose(): void {
    this.#row.part?.dispose();
    this.el.remove();
  }
}
