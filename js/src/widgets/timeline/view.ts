/** What happened over the steps: a curve, modes and the firings of rules as lanes, and the axis with its handle. */

import { nearestIndex } from "../../data/frames";
import { scalarNames } from "../../data/scalars";
import type { RuleState } from "../../data/store";
import {
  drawCurve,
  drawFirings,
  drawModes,
  firingSegments,
  type LaneCurve,
  modeBands,
  type Segment,
} from "../../draw/lanes";
import { h, Select, setAttributes, setText, setVisible } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { slotColours } from "../../lib/slot-colour";
import { fullRange, type StepAxis } from "../../lib/step-axis";
import { MODES, OUTCOMES, type SeriesLine } from "../../protocol/types";
import { laneCurve } from "../../session/lane-curve";
import type { Scene } from "../../session/scene";
import { best, CurveSource, valueNear } from "../common/curve-source";
import { Figure } from "../common/figure";
import type { Context, Part } from "../common/part";
import { RuleLane, worstFirst } from "../rules/lane";
import type { StepControl } from "../steps/control";
import { AxisStrip } from "./axis";

const CURVE = 48;
/** What the curve gets at most of the height that a map of few rows leaves. */
const MORE_CURVE = 150;
const TOP = 6;
const MODE = 12;
const RULE = 13;
const OVERVIEW = 8;
/** Rules whose lanes are open at first. */
const OPEN = 3;

interface Lane {
  name: "curve" | "mode" | "rule";
  top: number;
  height: number;
  rule?: RuleState;
}

export class Timeline implements Part {
  readonly el: HTMLElement;
  readonly #figure: Figure;
  readonly #curveLabel = h("div", { class: "smdw-lane-label smdw-lane-curve" });
  readonly #curveSelect: Select;
  readonly #curveNote = h("div", { class: "smdw-lane-note" });
  readonly #modeLabel = h("div", { class: "smdw-lane-label smdw-lane-mode" });
  readonly #modeNames = h("span", { class: "smdw-lane-count" });
  readonly #more: HTMLButtonElement;
  readonly #labels = h("div", { class: "smdw-lane-labels" });
  readonly #strip: AxisStrip;
  readonly #source: CurveSource;
  readonly #second: CurveSource;
  readonly #least = new Memo<ReturnType<typeof best>>();
  readonly #joined = new Memo<LaneCurve | undefined>();
  readonly #rules = new Map<string, RuleLane>();
  readonly #segments = new Map<string, Memo<Segment[]>>();
  #lanes: Lane[] = [];
  #curve: LaneCurve | undefined;
  #scene: Scene | undefined;
  #all = false;
  #hover: { x: number; y: number } | undefined;
  readonly #drawn = new Memo();

  constructor(
    private readonly context: Context,
    private readonly control: StepControl,
    /** called when the pointer is elsewhere over the lanes */
    private readonly pointed: () => void,
  ) {
    const { session, signal } = context;
    this.#source = new CurveSource(session);
    this.#second = new CurveSource(session);
    this.#figure = new Figure("lanes", context);
    this.#curveSelect = new Select("Curve", (lane) => session.state.set({ lane }), signal);
    this.#curveLabel.append(this.#curveSelect.el, this.#curveNote);
    this.#modeLabel.append(h("span", { class: "smdw-lane-name" }, "mode"), this.#modeNames);
    this.#more = h("button", { type: "button", class: "smdw-lane-more", "aria-expanded": "false" });
    this.#more.addEventListener(
      "click",
      () => {
        this.#all = !this.#all;
        context.redraw();
      },
      { signal },
    );
    this.#strip = new AxisStrip(context, control, this.#more, (x) =>
      this.#point(x === undefined ? undefined : { x, y: -1 }),
    );
    this.#labels.append(this.#curveLabel, this.#modeLabel);
    this.el = h(
      "div",
      { class: "smdw-timeline", role: "group", "aria-label": "Timeline" },
      h("div", { class: "smdw-lanes" }, this.#figure.el, this.#labels),
      this.#strip.el,
    );
    this.#moveByLanes();
  }

  /** What is under the pointer. */
  hoverText(): string {
    const scene = this.#scene;
    const at = this.#hover;
    if (!scene || !at) return "";
    const step = scene.axis.steps[nearestIndex(scene.axis.steps, scene.stepAxis.step(at.x))];
    if (step === undefined || at.x < scene.stepAxis.left || at.x > scene.stepAxis.right) return "";
    const lane = this.#laneAt(at.y);
    if (lane?.name === "rule" && lane.rule) {
      const here = this.#segmentsOf(lane.rule, scene.stepAxis).find(({ from, to }) => at.x >= from && at.x <= to);
      const { info, outcomes } = lane.rule;
      if (!here) return `step ${count(step)} \u00b7 ${info.name}: ${OUTCOMES[outcomes.get(step) ?? 0]}`;
      const where =
        here.first === here.last ? `step ${count(here.first)}` : `steps ${count(here.first)}\u2013${count(here.last)}`;
      return `${where} \u00b7 ${info.name} fired at ${share(here.share)} of the judged steps`;
    }
    const mode = this.context.session.store.modeOf(scene.traits.run, step);
    const words = [`step ${count(step)}`];
    if (mode && mode.mode !== 4) words.push(`${MODES[mode.mode]} ${count(mode.modeStep)}`);
    const value = this.#curve && valueNear(this.#curve, step);
    if (lane?.name === "curve" && value)
      words.push(`${truncate(laneCurve(scene)?.tensor ?? "", 60)} ${num(value.value)}`);
    return words.join(" \u00b7 ");
  }

  /** With `spare`, the height that the lanes may have together. */
  update(scene: Scene, spare = 0): void {
    this.#scene = scene;
    const { store } = this.context.session;
    const { traits } = scene;
    this.control.update(scene);
    const line = laneCurve(scene);
    this.#curve = line && this.#withCompared(this.#source.curve(line, scene, true), line, scene);
    const rules = worstFirst(store.rulesOf(traits.run));
    const shown = this.#all ? rules : rules.slice(0, OPEN);
    // The inspector of a scalar shows the same curve larger.
    const inspected = traits.inspect && traits.tensor === line?.tensor;
    this.#layout(scene, line !== undefined && !inspected, shown, spare);
    this.#gutter(scene, line?.tensor ?? "", rules, shown.length);
    this.#strip.update(scene);
    this.#draw(scene);
  }

  #layout({ run, traits }: Scene, curve: boolean, rules: readonly RuleState[], spare: number) {
    const modes = (run?.modeNumbers.length ?? 0) > 1;
    const others = TOP + (modes ? MODE : 0) + rules.length * RULE + OVERVIEW;
    const more = Math.max(0, Math.min(MORE_CURVE, Math.floor(spare) - others - CURVE));
    const lanes: Lane[] = [];
    let top = TOP;
    const add = (name: Lane["name"], height: number, rule?: RuleState) => {
      lanes.push({ name, top, height, ...(rule ? { rule } : {}) });
      top += height;
    };
    if (curve) add("curve", CURVE + more);
    if (modes) add("mode", MODE);
    for (const rule of rules) add("rule", RULE, rule);
    this.#lanes = lanes;
    const zoomed = traits.range.length === 2;
    const height = `${top + (zoomed ? OVERVIEW + 2 : 0)}px`;
    if (this.#figure.el.style.height !== height) this.#figure.el.style.height = height;
  }

  /** With the curve of the run that is compared. */
  #withCompared(curve: LaneCurve | undefined, line: SeriesLine, scene: Scene): LaneCurve | undefined {
    const { main, compared, traits } = scene;
    if (!compared || compared.run === traits.run) return curve;
    const second = this.#second.curve({ ...line, run: compared.run }, scene);
    const { session, theme } = this.context;
    const [own, colour] = slotColours(main, compared, session.store, theme().dark);
    return this.#joined.of([curve, second, own, colour], () =>
      curve && second ? { ...curve, compared: { x: second.x, y: second.y, colour, own } } : curve,
    );
  }

  #laneAt(y: number): Lane | undefined {
    return this.#lanes.find(({ top, height }) => y >= top && y < top + height);
  }

  #gutter(scene: Scene, curve: string, rules: readonly RuleState[], open: number) {
    const { run } = scene;
    const [lane, mode] = [
      this.#lanes.find(({ name }) => name === "curve"),
      this.#lanes.find(({ name }) => name === "mode"),
    ];
    setVisible(this.#curveLabel, lane !== undefined);
    setVisible(this.#modeLabel, mode !== undefined);
    if (lane) {
      this.#curveLabel.style.top = `${lane.top - 4}px`;
      const names = scalarNames(run).slice(0, 500);
      const short = (name: string) => {
        const rest = name.replace(/^scalar\//, "");
        return names.includes(rest) ? name : rest;
      };
      this.#curveSelect.update(
        names.map((name) => [name, truncate(short(name), 60)] as const),
        curve,
      );
      setAttributes(this.#curveSelect.el, { title: truncate(curve, 2000) });
      const least = this.#least.of([this.#curve], () => this.#curve && best(this.#curve));
      const other = this.#curve?.compared && this.context.session.store.runs.get(scene.compared?.run ?? -1);
      const named = other && `A ${truncate(run?.head.name ?? "", 30)}, B (dashed) ${truncate(other.head.name, 30)}`;
      setText(
        this.#curveNote,
        named ? named : least ? `lowest ${num(least.value)} at\u00a0step\u00a0${count(least.step)}` : "",
      );
    }
    if (mode) {
      this.#modeLabel.style.top = `${mode.top}px`;
      const names = (run?.modeNumbers ?? []).map((each) => MODES[each] ?? "");
      setText(this.#modeNames, names.join(" \u00b7 "));
    }
    const shown = new Set<string>();
    for (const { name, top, rule } of this.#lanes) {
      if (name !== "rule" || !rule) continue;
      const { id } = rule.info;
      shown.add(id);
      let label = this.#rules.get(id);
      if (!label) {
        label = new RuleLane(id, this.context);
        this.#rules.set(id, label);
        this.#labels.append(label.el);
      }
      label.update(rule, scene, top);
    }
    for (const [id, label] of this.#rules)
      if (!shown.has(id)) {
        label.dispose();
        this.#rules.delete(id);
      }
    const hidden = rules.slice(open);
    const silent = hidden.every(({ info }) => info.firings_total === 0);
    setVisible(this.#more, rules.length > OPEN);
    setText(
      this.#more,
      this.#all ? "Fewer rules" : silent ? `+${hidden.length} found nothing` : `+${hidden.length} more`,
    );
    setAttributes(this.#more, {
      "aria-expanded": String(this.#all),
      title: this.#all ? undefined : truncate(hidden.map(({ info }) => info.name).join(", "), 400),
    });
  }

  #draw(scene: Scene) {
    const { stepAxis: axis, run, traits } = scene;
    const { theme, session } = this.context;
    const colours = theme();
    const { width, height } = this.#figure.size;
    const lanes = this.#lanes.map((lane) => ({
      ...lane,
      segments: lane.rule ? this.#segmentsOf(lane.rule, axis) : [],
      silent: lane.rule && lane.rule.info.firings_total === 0 ? silence(lane.rule) : "",
    }));
    const inputs = [
      axis.ends,
      width,
      height,
      colours,
      run?.version,
      session.store.restarts,
      lanes.map(({ name, top, rule, silent }) => [name, top, rule?.version, silent]),
      this.#curve,
    ];
    if (this.#drawn.changed(inputs)) {
      const curve = this.#curve;
      const [first, last] = fullRange(run?.steps ?? []);
      const hasModes = lanes.some(({ name }) => name === "mode");
      const bands = hasModes ? modeBands(run?.steps ?? [], run?.modes ?? [], axis) : [];
      const zoomed = traits.range.length === 2;
      this.#figure.paint((pen, size, paint) => {
        const box = (top: number, high: number) => ({
          x: axis.left,
          y: top,
          width: axis.right - axis.left,
          height: high,
        });
        for (const { name, top, height: high, segments, silent } of lanes) {
          if (name === "curve") {
            if (curve) drawCurve(pen, paint, curve, axis, box(top + 4, high - 9));
            continue;
          }
          pen.rect(0, top, size.width, 1, { fill: paint.grid });
          if (name === "mode") drawModes(pen, paint, bands, axis, box(top + 3, high - 5));
          else if (silent)
            pen.text(axis.left + 6, top + high / 2 + 1, silent, {
              fill: paint.ink2,
              baseline: "middle",
              size: 10,
              maxWidth: axis.right - axis.left - 6,
            });
          else drawFirings(pen, paint, segments, axis, box(top + 3, high - 5));
        }
        if (zoomed) {
          // The whole run, and the part of it in view.
          const y = size.height - OVERVIEW - 1;
          const place = (step: number) => axis.left + ((step - first) / (last - first)) * (axis.right - axis.left);
          pen.rect(axis.left, y + 2, axis.right - axis.left, OVERVIEW - 4, { fill: paint.grid });
          pen.rect(place(axis.from), y, Math.max(4, place(axis.to) - place(axis.from)), OVERVIEW, {
            fill: paint.accent,
            opacity: 0.6,
          });
        }
      }, colours);
      const fired = lanes.flatMap(({ rule }) => (rule?.info.firings_total ? [rule.info.name] : []));
      this.#figure.describe(
        `Lanes over ${plural(run?.steps.length ?? 0, "step")}. ${fired.length ? `Findings: ${fired.join(", ")}.` : ""}`,
      );
    }
  }

  #segmentsOf(rule: RuleState, axis: StepAxis): Segment[] {
    const segments = this.#segments.get(rule.info.id) ?? new Memo<Segment[]>();
    this.#segments.set(rule.info.id, segments);
    return segments.of([rule.version, axis.ends], () => firingSegments(rule.outcomes, axis));
  }

  #point(at: { x: number; y: number } | undefined) {
    this.#hover = at;
    this.pointed();
  }

  /** On lanes, a click sets the step and a drag selects steps; on the overview, a drag moves the part in view. */
  #moveByLanes() {
    const { session, signal } = this.context;
    const { state } = session;
    this.#figure.gestures(
      {
        move: (at) => this.#point(at && { x: at.x, y: at.y }),
        down: (start) => {
          const scene = this.#scene;
          if (!scene) return undefined;
          const { stepAxis: axis } = scene;
          const inside = (x: number) => Math.max(axis.left, Math.min(axis.right, x));
          if (scene.traits.range.length === 2 && start.y >= this.#figure.size.height - OVERVIEW - 2) {
            const [first, last] = fullRange(scene.run?.steps ?? []);
            const span = axis.to - axis.from;
            const move = (x: number) => {
              const middle = first + ((inside(x) - axis.left) / (axis.right - axis.left)) * (last - first);
              const from = Math.max(first, Math.min(last - span, middle - span / 2));
              state.set({ range: [from, from + span] });
            };
            move(start.x);
            return (at) => move(at.x);
          }
          return (at, done) => {
            if (Math.abs(at.x - start.x) < 4) {
              if (done) this.#click(start.x, start.y);
              return;
            }
            const ends = [start.x, at.x].map((x) => Math.round(axis.step(inside(x)))).sort((a, b) => a - b);
            state.set({ selection: { kind: "steps", range: ends as [number, number] } });
          };
        },
      },
      signal,
    );
    this.#figure.canvas.addEventListener("dblclick", () => state.set({ range: [], selection: {} }), { signal });
  }

  #click(x: number, y: number) {
    const scene = this.#scene;
    if (!scene || x < scene.stepAxis.left - 4 || x > scene.stepAxis.right + 4) return;
    const rule = this.#laneAt(y)?.rule;
    const segment = rule && this.#segmentsOf(rule, scene.stepAxis).find(({ from, to }) => x >= from - 3 && x <= to + 3);
    const wanted = scene.stepAxis.step(x);
    if (rule && segment) {
      const fired = [...rule.outcomes].filter(([, outcome]) => outcome === 2).map(([step]) => step);
      const near = fired.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a), segment.first);
      this.#rules.get(rule.info.id)?.goTo(near);
    } else this.control.goToLabel(wanted);
    if (scene.traits.selection.kind === "steps") this.context.session.state.set({ selection: {} });
  }

  /** Goes to the next or the previous firing of the rules in view. */
  turn(by: 1 | -1): boolean {
    // Keys repeat faster than frames.
    const { step } = this.context.session.scene();
    let best: { step: number; rule: RuleState } | undefined;
    for (const { rule } of this.#lanes)
      for (const [at, outcome] of rule?.outcomes ?? [])
        if (outcome === 2 && rule && (at - step) * by > 0 && (!best || (best.step - at) * by > 0))
          best = { step: at, rule };
    if (best) this.#rules.get(best.rule.info.id)?.goTo(best.step);
    return best !== undefined;
  }

  /** Marks the current step, or removes its mark. */
  bookmark(): void {
    this.#strip.bookmark();
  }
}

const share = (x: number) => (x >= 1 ? "all" : `${Math.round(x * 100)}%`);

/** Why a lane is empty. */
function silence({ info, outcomes, judged }: RuleState): string {
  if (info.status === "Error") return `failed: ${truncate(info.message, 160)}`;
  if (!judged && !info.active) return truncate(info.message, 160) || "judged no step";
  let passed = 0;
  for (const outcome of outcomes.values()) if (outcome === 1) passed++;
  if (info.active && passed === 0) return "";
  return `found nothing in ${plural(passed, "step")}`;
}
