/** Moves over the saved steps: number input, playback, follow, mode, speed. The slider and the timeline share it. */

import { nearestIndex } from "../../data/frames";
import type { Axis } from "../../data/store";
import { defined } from "../../lib/defined";
import {
  h,
  ICONS,
  icon,
  iconButton,
  reserveWidth,
  Select,
  setAttributes,
  setText,
  setVisible,
  Toggle,
  textButton,
} from "../../lib/dom";
import { count, plural } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { type IncidentInfo, MODES, type ModeName } from "../../protocol/types";
import { resolveStep, type Scene } from "../../session/scene";
import type { Context } from "../common/part";

const SPEEDS = [1, 2, 5, 10, 25, 60, 200];

/** Which numbers the steps of a mode have: their own, or those of all modes. */
export type Numbering = "mode" | "global";

export class StepControl {
  readonly play: HTMLButtonElement;
  readonly box: HTMLInputElement;
  readonly lastLabel = h("span", { class: "smdw-quiet smdw-of" });
  readonly modeLabel = h("span", { class: "smdw-mode-tag" });
  readonly mode: Select;
  readonly speed: Select;
  readonly follow: Toggle;
  readonly newSteps: HTMLButtonElement;
  readonly incidentList = h("ul", { class: "smdw-sr", "aria-label": "Incidents" });
  /** incidents of the axis, with their positions on it */
  incidents: readonly { at: number; incident: IncidentInfo }[] = [];
  /** changes with the incidents */
  readonly #incidentsMemo = new Memo();
  #axis: Axis | undefined;
  #scene: Scene | undefined;
  /** latest step when following stopped */
  #lastSeenStep = Number.NaN;
  #playing = false;
  #loop: readonly [number, number] | undefined;
  #lastTick = 0;
  /** the input holds a number that was typed and not committed */
  #editing = false;
  readonly #widths = new Memo();
  #modeShown: ModeName = "";
  readonly #tracks: HTMLElement[] = [];

  constructor(
    private readonly context: Context,
    private readonly numbering: Numbering = "mode",
  ) {
    const { signal, session, keys } = context;
    this.play = iconButton("play", "Play", () => this.setPlaying(!this.#playing), signal);
    this.box = h("input", {
      class: "smdw-input smdw-step-box",
      inputmode: "numeric",
      "aria-label": "Go to step",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.mode = new Select("Mode", (value) => session.state.set({ mode: value as ModeName }), signal);
    this.speed = new Select("Playback speed", (value) => session.state.set({ speed: Number(value) }), signal);
    this.follow = new Toggle("Follow", (on) => (on ? this.followLatest() : this.#unfollow()), signal);
    this.follow.el.title = "Follow new steps";
    this.newSteps = textButton("", () => this.followLatest(), signal);
    this.newSteps.classList.add("smdw-fresh");
    reserveWidth(this.newSteps, [plural(888, "new step")]);
    keys.on(this.box, (event) => this.#boxKey(event));
    this.box.addEventListener(
      "input",
      () => {
        this.#editing = true;
      },
      { signal },
    );
    this.box.addEventListener("blur", () => this.#editing && this.#commit(), { signal });
    signal.addEventListener("abort", () => {
      this.#playing = false;
    });
  }

  /** A focusable element that the keys of a slider move. `update` describes the step on it. */
  track(...children: HTMLElement[]): HTMLElement {
    const attributes = { role: "slider", tabindex: 0, "aria-label": "Step", "aria-orientation": "horizontal" };
    const el = h("div", { class: "smdw-track", ...attributes }, ...children);
    this.#tracks.push(el);
    return el;
  }

  update(scene: Scene): void {
    const { axis, traits } = scene;
    this.#scene = scene;
    this.#axis = axis;
    const last = axis.steps.length ? defined(axis.steps[axis.steps.length - 1]) : Number.NaN;
    if (traits.follow || Number.isNaN(this.#lastSeenStep)) this.#lastSeenStep = last;
    const i = this.index();
    const label = this.label;
    const modes = scene.run?.modeNumbers ?? [];
    const mode = i < 0 ? 0 : defined(axis.modes[i]);
    const where = this.context.session.store.modeOf(traits.run, scene.step);
    // A number that is typed while the mode changes counts steps of the earlier mode.
    if (traits.mode !== this.#modeShown) this.#editing = false;
    this.#modeShown = traits.mode;
    if (!this.#editing) this.box.value = i < 0 ? "" : String(label);
    setText(this.lastLabel, i < 0 ? "" : `of ${count(defined(this.labels[this.labels.length - 1]))}`);
    this.#reserveWidths(scene);
    setVisible(
      this.modeLabel,
      modes.some((each) => each !== 4),
    );
    this.modeLabel.classList.toggle("smdw-vacant", i < 0 || mode === 4);
    const numbered = traits.mode === "" || this.numbering === "global";
    setText(this.modeLabel, MODES[mode] ?? "");
    // The one number beside it is the step of the run; that of the mode is an aside.
    setAttributes(this.modeLabel, {
      title: numbered && where ? `Step ${count(where.modeStep)} of ${MODES[mode]}` : undefined,
    });
    this.modeLabel.dataset.mode = String(mode);
    setVisible(this.mode.el, modes.length > 1);
    this.mode.update([["", "All modes"], ...modes.map((m) => [MODES[m] ?? "", MODES[m] ?? ""] as const)], traits.mode);
    const speeds = SPEEDS.includes(traits.speed) ? SPEEDS : [...SPEEDS, traits.speed].sort((a, b) => a - b);
    this.speed.update(
      speeds.map((s) => [String(s), `${s}/s`]),
      String(traits.speed),
    );
    const running = scene.run?.head.status === "running" || scene.run?.head.status === "stalled";
    this.follow.update(traits.follow);
    setVisible(this.follow.el, running);
    let fresh = 0;
    for (let k = axis.steps.length - 1; k >= 0 && defined(axis.steps[k]) > this.#lastSeenStep; k--) fresh++;
    setVisible(this.newSteps, running || fresh > 0);
    this.newSteps.classList.toggle("smdw-vacant", traits.follow || fresh === 0);
    setText(this.newSteps, fresh ? plural(fresh, "new step") : "");
    setAttributes(this.play, { disabled: axis.steps.length < 2 });
    this.#updateIncidents(scene);
    this.#aria(i, label, mode, where?.modeStep);
  }

  /** The displayed numbers of the steps. */
  get labels(): Float64Array {
    const axis = this.#axis;
    return (this.numbering === "global" ? axis?.steps : axis?.labels) ?? new Float64Array(0);
  }

  /** The displayed number of the current step; NaN without steps. */
  get label(): number {
    const i = this.index();
    return i < 0 ? Number.NaN : defined(this.labels[i]);
  }

  /** Index of the current step. It can be ahead of the last frame drawn, because keys repeat faster than frames. */
  index(): number {
    const axis = this.#axis;
    return axis ? nearestIndex(axis.steps, resolveStep(axis, this.context.session.state.get("step"))) : -1;
  }

  /** Sets the step and stops following. */
  goToIndex(index: number): void {
    const steps = this.#axis?.steps;
    if (!steps?.length) return;
    const i = Math.max(0, Math.min(steps.length - 1, index));
    this.context.session.state.set({ step: defined(steps[i]), follow: false });
  }

  /** Goes to the saved step with the nearest displayed number. */
  goToLabel(label: number): void {
    this.goToIndex(nearestIndex(this.labels, label));
  }

  followLatest(): void {
    const steps = this.#axis?.steps;
    this.setPlaying(false);
    this.context.session.state.set({ follow: true, step: steps?.length ? defined(steps[steps.length - 1]) : -1 });
  }

  #unfollow() {
    this.context.session.state.set({ follow: false, step: this.#scene?.step ?? -1 });
  }

  /** Keys of the track. */
  key(event: KeyboardEvent): boolean {
    const n = this.#axis?.steps.length ?? 0;
    const i = this.index();
    const page = Math.max(1, Math.round(n / 10));
    const moves: Record<string, number> = {
      ArrowLeft: i - 1,
      ArrowDown: i - 1,
      ArrowRight: i + 1,
      ArrowUp: i + 1,
      PageDown: i - page,
      PageUp: i + page,
      Home: 0,
      End: n - 1,
    };
    if (event.key in moves) {
      this.setPlaying(false);
      this.goToIndex(defined(moves[event.key]));
    } else if (event.key === " ") this.setPlaying(!this.#playing);
    else if (/^\d$/.test(event.key)) this.type(event.key);
    else return false;
    return true;
  }

  /** Begins to type a step. */
  type(digit: string): void {
    this.box.focus();
    this.box.value = digit;
    this.#editing = true;
  }

  #boxKey(event: KeyboardEvent): boolean {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Enter") this.#commit();
    else if (event.key === "Escape") this.#showStep();
    else if (by) {
      this.goToIndex(this.index() + by);
      this.#showStep();
    } else return false;
    return true;
  }

  /** Shows the current step in the input, and drops what was typed. */
  #showStep() {
    this.#editing = false;
    this.box.value = String(this.labels[this.index()] ?? "");
  }

  #commit() {
    this.#editing = false;
    const value = Number.parseFloat(this.box.value.replaceAll(",", ""));
    const { labels } = this;
    if (!Number.isFinite(value) || !labels.length) return this.context.redraw();
    const i = nearestIndex(labels, value);
    if (i !== this.index()) this.goToIndex(i);
    this.box.value = String(labels[i]);
  }

  /** Steps played repeatedly, if any. */
  get loop(): readonly [number, number] | undefined {
    return this.#playing ? this.#loop : undefined;
  }

  /** Starts or stops playback, of all steps or repeatedly of those from `loop[0]` to `loop[1]`. */
  setPlaying(on: boolean, loop?: readonly [number, number]): void {
    this.#loop = loop;
    if (on && loop) this.goToLabel(loop[0]);
    if (on === this.#playing) return;
    this.#playing = on;
    this.play.replaceChildren(icon(on ? ICONS.pause : ICONS.play));
    setAttributes(this.play, { "aria-label": on ? "Pause" : "Play", title: on ? "Pause" : "Play" });
    this.context.redraw();
    if (!on) return;
    if (this.index() === (this.#axis?.steps.length ?? 0) - 1) this.goToIndex(0);
    this.#lastTick = performance.now();
    requestAnimationFrame((now) => this.#tick(now));
  }

  get playing(): boolean {
    return this.#playing;
  }

  #tick(now: number) {
    if (!this.#playing || !this.#scene) return;
    const each = 1000 / Math.max(0.1, this.#scene.traits.speed);
    const due = Math.floor((now - this.#lastTick) / each);
    if (due > 0) {
      this.#lastTick += due * each;
      const next = this.index() + due;
      const last = this.#loop ? nearestIndex(this.labels, this.#loop[1]) : this.labels.length - 1;
      if (this.#loop && next > last) this.goToLabel(this.#loop[0]);
      else this.goToIndex(Math.min(last, next));
      if (!this.#loop && next >= last) return this.setPlaying(false);
    }
    requestAnimationFrame((next) => this.#tick(next));
  }

  /** Keeps the width of the controls while the step and its mode change. */
  #reserveWidths({ run, traits }: Scene) {
    if (!this.#widths.changed([traits.run, run?.version, traits.mode])) return;
    const longest = new Map<number, number>();
    run?.modes.forEach((mode, i) => {
      const step = defined(run.modeSteps[i]);
      if (mode !== 4) longest.set(mode, Math.max(longest.get(mode) ?? 0, step));
    });
    const numbered = traits.mode === "" || this.numbering === "global";
    reserveWidth(
      this.modeLabel,
      [...longest].map(([mode, step]) => (numbered ? `${MODES[mode]} ${count(step)}` : (MODES[mode] ?? ""))),
    );
  }

  #aria(i: number, label: number, mode: number, modeStep: number | undefined) {
    const { labels } = this;
    const n = labels.length;
    const named = mode && mode !== 4 ? `, ${MODES[mode]} step ${modeStep}` : "";
    const incidents = this.incidents.filter(({ at }) => at === label).map(({ incident }) => `. ${incident.text}`);
    for (const track of this.#tracks)
      setAttributes(track, {
        "aria-valuemin": n ? defined(labels[0]) : 0,
        "aria-valuemax": n ? defined(labels[n - 1]) : 0,
        "aria-valuenow": i < 0 ? 0 : label,
        "aria-valuetext":
          i < 0
            ? "no steps saved"
            : `step ${label} of ${labels[n - 1]}${named}, ${i + 1} of ${n} saved${incidents.join("")}`,
        "aria-disabled": n ? undefined : "true",
      });
  }

  /** Places the run's incidents on the axis. Those at steps that were not saved have no mode, so only all modes have them. */
  #updateIncidents({ run, axis, traits }: Scene) {
    const { restarts } = this.context.session.store;
    if (!this.#incidentsMemo.changed([traits.run, traits.mode, run?.version, restarts])) return;
    const [first, last] = [axis.steps[0], axis.steps.at(-1)];
    this.incidents = (run?.incidents ?? []).flatMap((incident) => {
      if (first === undefined || last === undefined) return [];
      const i = nearestIndex(axis.steps, incident.step);
      if (axis.steps[i] === incident.step) return [{ at: defined(this.labels[i]), incident }];
      return traits.mode === "" ? [{ at: Math.max(first, Math.min(last, incident.step)), incident }] : [];
    });
    this.incidentList.replaceChildren(...this.incidents.map(({ incident }) => h("li", {}, incident.text)));
    setVisible(this.incidentList, this.incidents.length > 0);
  }
}
