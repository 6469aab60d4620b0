import { h, Select, setVisible } from "../../lib/dom";
import { plural, truncate } from "../../lib/format";
import { pyString } from "../../lib/save";
import { OUTCOMES, type ParamValue } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { Panel, type Rows } from "../common/panel";
import type { Context } from "../common/part";
import { isChanged } from "./param-fields";
import { RuleRow } from "./row";

/** One row per rule. */
export class RulePanel extends Panel {
  readonly #rows = new Map<string, RuleRow>();
  readonly #list = h("div", { class: "smdw-rules" });
  readonly #empty = h("p", { class: "smdw-empty" }, "No rules");
  readonly #add: Select;
  #scene: Scene | undefined;

  constructor(context: Context) {
    super("rules", "Rules", context);
    const { signal, session } = context;
    this.#add = new Select(
      "Add rule",
      (name) => {
        if (name)
          void session.connection.command({
            what: "rule",
            do: "add",
            class: name,
            run: this.#scene?.traits.run ?? 0,
            params: {},
          });
        this.#add.el.value = "";
      },
      signal,
    );
    this.#add.el.addEventListener("pointerdown", () => void this.#classes(), { signal });
    this.#add.el.addEventListener("focus", () => void this.#classes(), { signal });
    this.tools.append(this.#add.el);
    this.body.append(this.#list, this.#empty);
    this.exports(false, () => ({ name: "rules", rows: () => this.#table(), python: () => this.#python() }));
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { session } = this.context;
    const { rules, classes, runs } = session.store;
    this.note(session.connection.commandStatus ?? session.connection.requests.get("hello"));
    setVisible(this.#add.el, !session.exported);
    const groups = [...classes].sort((a, b) => Number(a.builtin) - Number(b.builtin) || a.name.localeCompare(b.name));
    this.#add.update(
      [
        ["", "Add rule\u2026"],
        ...groups.map((each) => [each.name, each.builtin ? each.name : `${each.name} (custom)`] as const),
      ],
      "",
    );
    setVisible(this.#empty, rules.size === 0);
    for (const [id, row] of this.#rows)
      if (!rules.has(id)) {
        row.dispose();
        this.#rows.delete(id);
      }
    for (const [id, rule] of rules) {
      let row = this.#rows.get(id);
      if (!row) {
        row = new RuleRow(id, this.context);
        this.#rows.set(id, row);
        this.#list.append(row.el);
      }
      row.update(rule, scene, runs.size > 1);
    }
    const fired = [...rules.values()].filter((rule) => rule.info.status === "IssuesFound");
    this.readout("");
    this.summary(
      `${plural(rules.size, "rule")}. ${fired.length ? `Findings: ${fired.map((rule) => truncate(rule.info.name, 60)).join(", ")}.` : "No findings."}`,
    );
  }

  async #classes() {
    const answer = await this.context.session.connection.request("classes", { what: "classes" });
    if (!answer?.classes) return;
    this.context.session.store.classes = answer.classes;
    this.context.redraw();
  }

  #table(): Rows | undefined {
    const rows: Rows = [["rule", "status", "step", "outcome", "message"]];
    for (const { info, outcomes, findings } of this.context.session.store.rules.values())
      for (const [step, outcome] of [...outcomes].sort(([a], [b]) => a - b))
        rows.push([
          info.name,
          info.status,
          step,
          OUTCOMES[outcome] ?? "",
          findings
            .get(step)
            ?.map((each) => each.message)
            .join("; ") ?? "",
        ]);
    return rows.length > 1 ? rows : undefined;
  }

  #python(): string {
    const path = this.#scene?.run?.head.path ?? "";
    const rules = [...this.context.session.store.rules.values()].map(
      ({ info }) =>
        `${info.class}(trial${info.params
          .filter(isChanged)
          .map((p) => `, ${p.name}=${literal(p.value)}`)
          .join("")})`,
    );
    return `trial = smdwidgets.create_trial(${pyString(path)})\nsmdwidgets.RulePanel(trial, [${rules.join(", ")}])`;
  }
}

function literal(value: ParamValue): string {
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  return typeof value === "string" ? pyString(value) : String(value);
}
