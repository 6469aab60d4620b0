import { nearestIndex } from "../../data/frames";
import type { RuleState } from "../../data/store";
import { drawOutcomes } from "../../draw/outcomes";
import { defined } from "../../lib/defined";
import { h, iconButton, setAttributes, setText, setVisible, textButton } from "../../lib/dom";
import { count, minusSigns, num, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { linear } from "../../lib/scale";
import { type Finding, OUTCOMES } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import { Figure } from "../common/figure";
import type { Context } from "../common/part";
import { goToFinding, goToFiring } from "./firings";
import { inWords, ParamFields } from "./param-fields";
import { RULE_ICONS, ruleLabel } from "./status";

/** One rule: status, outcomes over steps, first finding, controls and parameters. */
export class RuleRow {
  readonly el: HTMLElement;
  readonly #control = new AbortController();
  readonly #status = h("span", { class: "smdw-status" });
  readonly #name = h("button", { type: "button", class: "smdw-rule-name", "aria-expanded": "false" });
  readonly #run = h("span", { class: "smdw-quiet" });
  readonly #progress = h("progress", { class: "smdw-progress", "aria-label": "Progress" });
  readonly #figure: Figure;
  readonly #strip: HTMLElement;
  readonly #message = h("button", { type: "button", class: "smdw-rule-message" });
  readonly #go: HTMLButtonElement;
  readonly #pause: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  readonly #details = h("div", { class: "smdw-rule-details", hidden: true });
  readonly #params: ParamFields;
  readonly #findings = h("ul", { class: "smdw-firings" });
  readonly #listed = new Memo();
  #rule: RuleState | undefined;
  #hover: number | undefined;
  #finding: Finding | undefined;

  constructor(
    id: string,
    private readonly context: Context,
  ) {
    const { session } = context;
    const { signal } = this.#control;
    context.signal.addEventListener("abort", () => this.#control.abort(), { signal });
    this.#figure = new Figure("outcomes", context, signal);
    this.#figure.canvas.setAttribute("aria-hidden", "true");
    this.#strip = h(
      "div",
      { class: "smdw-strip", tabindex: 0, role: "slider", "aria-orientation": "horizontal" },
      this.#figure.el,
    );
    const act = (what: "start" | "pause" | "stop" | "rerun" | "remove") => () =>
      void session.connection.command({ what: "rule", do: what, rule: id });
    this.#go = iconButton("play", "Run rule", act("start"), signal);
    this.#pause = iconButton("pause", "Pause rule", act("pause"), signal);
    this.#stop = iconButton("stop", "Stop rule", act("stop"), signal);
    const again = iconButton("rerun", "Rerun rule", act("rerun"), signal);
    const away = iconButton("close", "Remove rule", act("remove"), signal);
    const controls = h("div", { class: "smdw-rule-controls" }, this.#go, this.#pause, this.#stop, again, away);
    setVisible(controls, !session.exported);
    this.#params = new ParamFields(
      (params) => void session.connection.command({ what: "rule", do: "set", rule: id, params }),
      context,
      signal,
    );
    this.#details.append(this.#params.el, this.#findings);
    this.el = h(
      "div",
      { class: "smdw-rule" },
      h("div", { class: "smdw-rule-line" }, this.#status, this.#name, this.#run, this.#strip, this.#progress, controls),
      this.#message,
      this.#details,
    );
    this.#name.addEventListener("click", () => this.open(Boolean(this.#details.hidden)), { signal });
    this.#message.addEventListener(
      "click",
      () => this.#finding && this.#rule && goToFinding(this.context.session, this.#rule, this.#finding),
      { signal },
    );
    context.keys.on(this.#strip, (event) => this.#key(event));
    this.#figure.gestures(
      {
        move: (at) => {
          this.#hover = at && this.#stepAt(at.x);
          context.redraw();
        },
        down: (at) => {
          const step = this.#stepAt(at.x);
          if (step !== undefined) this.#goTo(step);
          return undefined;
        },
      },
      signal,
    );
  }

  dispose(): void {
    this.#control.abort();
    this.el.remove();
  }

  update(rule: RuleState, scene: Scene, many: boolean): void {
    this.#rule = rule;
    const { info, outcomes } = rule;
    const { session, theme } = this.context;
    const label = ruleLabel(rule);
    setText(this.#status, `${RULE_ICONS[label]} ${label}`);
    this.#status.dataset.status = label;
    setText(this.#name, truncate(info.name, 80));
    setAttributes(this.#name, { title: truncate(info.class, 200) });
    const other = info.run !== scene.traits.run;
    setText(this.#run, many ? truncate(session.store.runs.get(info.run)?.head.name ?? "", 40) : "");
    setVisible(this.#progress, info.active && info.total > info.done);
    setAttributes(this.#progress, {
      max: Math.max(1, info.total),
      value: info.done,
      title: `${count(info.done)} of ${count(info.total)} steps`,
    });
    const running = info.active && !info.paused;
    setVisible(this.#go, !running);
    setVisible(this.#pause, running);
    // A rule that has finished can only be rerun.
    setAttributes(this.#go, { disabled: !info.paused && info.status !== "Stopped" });
    setAttributes(this.#stop, { disabled: !info.active });
    const steps = session.store.axis(info.run, "").steps;
    const range = [steps[0] ?? 0, Math.max((steps[0] ?? 0) + 1, steps[steps.length - 1] ?? 1)] as const;
    const step = other ? Number.NaN : scene.step;
    const { version } = rule;
    this.#figure.paint(
      (pen, size, colours) => drawOutcomes(pen, size, colours, { outcomes, version, step, range }),
      theme(),
    );
    const outcome = OUTCOMES[outcomes.get(scene.step) ?? 0];
    setAttributes(this.#strip, {
      "aria-label": `Steps of ${truncate(info.name, 60)}`,
      "aria-valuemin": range[0],
      "aria-valuemax": range[1],
      "aria-valuenow": Math.max(range[0], Math.min(range[1], Number.isNaN(step) ? range[0] : step)),
      "aria-valuetext": `step ${scene.step}: ${outcome}; fired at ${plural(info.firings_total, "step")}`,
    });
    this.#readoutText(rule, scene);
    if (!this.#details.hidden) {
      this.#params.update(info.params, session.exported);
      this.#list(rule);
    }
  }

  /** Shows the finding at the hovered or current step, else the first one. */
  #readoutText({ info, outcomes, findings }: RuleState, scene: Scene) {
    const at = this.#hover ?? scene.step;
    const here = findings.get(at)?.[0];
    const finding = here ?? (this.#hover === undefined ? info.firings[0] : undefined);
    this.#finding = finding;
    const hovered =
      this.#hover === undefined ? "" : `step ${count(this.#hover)}: ${OUTCOMES[outcomes.get(this.#hover) ?? 0]}`;
    const words = finding
      ? `step ${count(finding.step)}  ${truncate(finding.tensor, 80)}  ${minusSigns(finding.message)}${valueUnlessSaid(finding)}`
      : hovered || withWords(info);
    setText(this.#message, truncate(words, 400));
    setAttributes(this.#message, { disabled: !finding });
    this.#message.title = truncate(words, 2000);
    setVisible(this.#message, words !== "");
  }

  #list({ info, findings }: RuleState) {
    const all = [...findings.values()]
      .flat()
      .sort((a, b) => a.step - b.step)
      .slice(0, 50);
    if (!this.#listed.changed(all.map(({ step, tensor }) => [step, tensor]))) return;
    this.#findings.replaceChildren(
      ...all.map((finding) => {
        const button = textButton(
          `step ${count(finding.step)}`,
          () => this.#rule && goToFinding(this.context.session, this.#rule, finding),
          this.#control.signal,
        );
        return h(
          "li",
          {},
          button,
          h("span", { title: truncate(finding.tensor, 2000) }, truncate(finding.tensor, 80)),
          h("span", { class: "smdw-quiet" }, minusSigns(truncate(finding.message, 200))),
        );
      }),
    );
    if (info.firings_total > all.length)
      this.#findings.append(h("li", { class: "smdw-quiet" }, `${count(info.firings_total - all.length)} more`));
  }

  /** Shows or hides the parameters and findings. */
  open(open: boolean): void {
    if (open === !this.#details.hidden) return;
    setVisible(this.#details, open);
    setAttributes(this.#name, { "aria-expanded": String(open) });
    this.context.redraw();
  }

  #stepAt(x: number): number | undefined {
    const steps = this.context.session.store.axis(this.#rule?.info.run ?? 0, "").steps;
    if (!steps.length) return undefined;
    const scale = linear(defined(steps[0]), Math.max(defined(steps[0]) + 1, defined(steps[steps.length - 1])), [
      4,
      this.#figure.size.width - 4,
    ]);
    // A firing within 5 pixels takes precedence over the exact step.
    let best: number | undefined;
    for (const [step, outcome] of this.#rule?.outcomes ?? []) {
      const off = Math.abs(scale(step) - x);
      if (outcome === 2 && off <= 5 && (best === undefined || off < Math.abs(scale(best) - x))) best = step;
    }
    return best ?? steps[nearestIndex(steps, scale.invert(x))];
  }

  /** Goes to a step at which the rule fired, and to the tensor. */
  #goTo(step: number) {
    if (this.#rule) goToFiring(this.context.session, this.#rule, step);
  }

  #key(event: KeyboardEvent): boolean {
    const fired = [...(this.#rule?.outcomes ?? [])]
      .filter(([, outcome]) => outcome === 2)
      .map(([step]) => step)
      .sort((a, b) => a - b);
    const now = this.context.session.state.get("step");
    const next = {
      ArrowRight: fired.find((step) => step > now),
      ArrowLeft: fired.findLast((step) => step < now),
      Home: fired[0],
      End: fired.at(-1),
    }[event.key];
    if (next !== undefined) this.#goTo(next);
    return ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key);
  }
}

/** The value of a finding whose message has no number. */
function valueUnlessSaid({ message, value }: Finding): string {
  return value === null || /\d/.test(message) ? "" : ` (${num(value)})`;
}

/** The message of a rule, with its parameters named as their fields are. */
function withWords({ message, params }: RuleState["info"]): string {
  const named = params.filter(({ name }) => name.includes("_"));
  return named.reduce((text, { name }) => text.replaceAll(name, `\u201c${inWords(name)}\u201d`), message);
}
