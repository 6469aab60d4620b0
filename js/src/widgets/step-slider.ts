/** The step slider: ticks at saved steps, marks of rule firings and incidents, playback, follow, step input. */

import { nearestIndex } from "../data/frames";
import type { Axis } from "../data/store";
import { drawTrack, INCIDENT, trackScale } from "../draw/timeline";
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
} from "../lib/dom";
import { count, plural } from "../lib/format";
import { type IncidentInfo, MODES, type ModeName } from "../protocol/types";
import { resolveStep, type Scene } from "../session/session";
import { Figure } from "./figure";
import type { Context, Part } from "./part";

const SPEEDS = [1, 2, 5, 10, 25, 60, 200];

export class StepSlider implements Part {
  readonly el: HTMLElement;
  readonly #figure: Figure;
  readonly #track: HTMLElement;
  readonly #thumb: HTMLElement;
  readonly #play: HTMLButtonElement;
  readonly #box: HTMLInputElement;
  readonly #lastLabel: HTMLElement;
  readonly #modeLabel: HTMLElement;
  readonly #mode: Select;
  readonly #speed: Select;
  readonly #follow: Toggle;
  readonly #newSteps: HTMLButtonElement;
  #axis: Axis | undefined;
  #scene: Scene | undefined;
  #hover: number | undefined;
  #drawn = "";
  #state = new Uint8Array(0);
  #stateKey = "";
  #firedSteps: Float64Array = new Float64Array(0);
  #firedKey = "";
  /** incidents of the axis, with their positions on it */
  #incidents: readonly { at: number; incident: IncidentInfo }[] = [];
  readonly #incidentList = h("ul", { class: "smdw-sr", "aria-label": "Incidents" });
  #incidentsKey = "";
  /** latest step when following stopped */
  #lastSeenStep = Number.NaN;
  #playing = false;
  #lastTick = 0;
  /** the input holds a number that was typed and not committed */
  #editing = false;
  #widthsKey = "";
  #modeShown: ModeName = "";

  constructor(private readonly context: Context) {
    const { signal, session, keys } = context;
    this.#figure = new Figure("track", context);
    this.#figure.canvas.setAttribute("aria-hidden", "true");
    this.#thumb = h("div", { class: "smdw-thumb" });
    this.#track = h(
      "div",
      { class: "smdw-track", role: "slider", tabindex: 0, "aria-label": "Step", "aria-orientation": "horizontal" },
      this.#figure.el,
      this.#thumb,
    );
    this.#play = iconButton("play", "Play", () => this.#setPlaying(!this.#playing), signal);
    this.#box = h("input", {
      class: "smdw-input smdw-step-box",
      inputmode: "numeric",
      "aria-label": "Go to step",
      autocomplete: "off",
      spellcheck: "false",
    });
    this.#lastLabel = h("span", { class: "smdw-quiet smdw-of" });
    this.#modeLabel = h("span", { class: "smdw-mode-tag" });
    this.#mode = new Select("Mode", (value) => session.state.set({ mode: value as ModeName }), signal);
    this.#speed = new Select("Playback speed", (value) => session.state.set({ speed: Number(value) }), signal);
    this.#follow = new Toggle("Follow", (on) => (on ? this.#followLatest() : this.#unfollow()), signal);
    this.#follow.el.title = "Follow new steps";
    this.#newSteps = textButton("", () => this.#followLatest(), signal);
    this.#newSteps.classList.add("smdw-fresh");
    reserveWidth(this.#newSteps, [plural(888, "new step")]);
    this.el = h(
      "div",
      { class: "smdw-slider", role: "group", "aria-label": "Step slider" },
      h("div", { class: "smdw-slider-left" }, this.#play),
      this.#track,
      this.#incidentList,
      h(
        "div",
        { class: "smdw-slider-right" },
        h("label", { class: "smdw-step-label" }, h("span", { class: "smdw-quiet" }, "Step"), this.#box),
        this.#lastLabel,
        this.#modeLabel,
        this.#mode.el,
        this.#speed.el,
        this.#follow.el,
        this.#newSteps,
      ),
    );
    keys.on(this.el, (event) => this.#key(event));
    keys.on(this.#box, (event) => this.#boxKey(event));
    this.#box.addEventListener(
      "input",
      () => {
        this.#editing = true;
      },
      { signal },
    );
    this.#box.addEventListener("blur", () => this.#editing && this.#commit(), { signal });
    this.#figure.gestures(
      {
        move: (at) => {
          const next = at && this.#axis ? this.#labelAt(at.x) : undefined;
          if (next !== this.#hover) {
            this.#hover = next;
            context.redraw();
          }
          setAttributes(this.#track, { title: (at && this.#incidentsAt(at.x)) || undefined });
        },
        down: (at) => {
          at.event.preventDefault();
          this.#track.focus({ preventScroll: true });
          this.#setPlaying(false);
          this.#hover = undefined;
          this.#track.classList.add("smdw-dragging");
          this.#goToIndex(this.#indexAt(at.x));
          return (next, done) => {
            if (done) this.#track.classList.remove("smdw-dragging");
            else this.#goToIndex(this.#indexAt(next.x));
          };
        },
      },
      signal,
    );
    signal.addEventListener("abort", () => {
      this.#playing = false;
    });
  }

  update(scene: Scene): void {
    const { axis, traits } = scene;
    this.#scene = scene;
    this.#axis = axis;
    const last = axis.steps.length ? (axis.steps[axis.steps.length - 1] as number) : Number.NaN;
    if (traits.follow || Number.isNaN(this.#lastSeenStep)) this.#lastSeenStep = last;
    const i = this.#index();
    const label = i < 0 ? Number.NaN : (axis.labels[i] as number);
    const modes = [...new Set(scene.run?.modes ?? [])].sort();
    const many = modes.length > 1;
    const mode = i < 0 ? 0 : (axis.modes[i] as number);
    const where = this.context.session.store.modeOf(traits.run, scene.step);
    // A number that is typed while the mode changes counts steps of the earlier mode.
    if (traits.mode !== this.#modeShown) this.#editing = false;
    this.#modeShown = traits.mode;
    if (!this.#editing) this.#box.value = i < 0 ? "" : String(label);
    setText(this.#lastLabel, i < 0 ? "" : `of ${count(axis.labels[axis.labels.length - 1] as number)}`);
    this.#reserveWidths(scene);
    setVisible(
      this.#modeLabel,
      modes.some((each) => each !== 4),
    );
    this.#modeLabel.classList.toggle("smdw-vacant", i < 0 || mode === 4);
    setText(
      this.#modeLabel,
      traits.mode === "" && where ? `${MODES[mode]} ${count(where.modeStep)}` : (MODES[mode] ?? ""),
    );
    this.#modeLabel.dataset.mode = String(mode);
    setVisible(this.#mode.el, many);
    this.#mode.update([["", "All modes"], ...modes.map((m) => [MODES[m] ?? "", MODES[m] ?? ""] as const)], traits.mode);
    const speeds = SPEEDS.includes(traits.speed) ? SPEEDS : [...SPEEDS, traits.speed].sort((a, b) => a - b);
    this.#speed.update(
      speeds.map((s) => [String(s), `${s}/s`]),
      String(traits.speed),
    );
    const running = scene.run?.head.status === "running" || scene.run?.head.status === "stalled";
    this.#follow.update(traits.follow);
    setVisible(this.#follow.el, running);
    let fresh = 0;
    for (let k = axis.steps.length - 1; k >= 0 && (axis.steps[k] as number) > this.#lastSeenStep; k--) fresh++;
    setVisible(this.#newSteps, running || fresh > 0);
    this.#newSteps.classList.toggle("smdw-vacant", traits.follow || fresh === 0);
    setText(this.#newSteps, fresh ? plural(fresh, "new step") : "");
    setAttributes(this.#play, { disabled: axis.steps.length < 2 });
    this.#updateIncidents(scene);
    this.#aria(i, label, mode, where?.modeStep);
    this.#draw(scene, label);
  }

  /** Keeps the width of the track while the step and its mode change. */
  #reserveWidths({ run, traits }: Scene) {
    const key = `${traits.run}/${run?.version}/${traits.mode}`;
    if (key === this.#widthsKey) return;
    this.#widthsKey = key;
    const longest = new Map<number, number>();
    run?.modes.forEach((mode, i) => {
      const step = run.modeSteps[i] as number;
      if (mode !== 4) longest.set(mode, Math.max(longest.get(mode) ?? 0, step));
    });
    reserveWidth(
      this.#modeLabel,
      [...longest].map(([mode, step]) => (traits.mode === "" ? `${MODES[mode]} ${count(step)}` : (MODES[mode] ?? ""))),
    );
  }

  #aria(i: number, label: number, mode: number, modeStep: number | undefined) {
    const axis = this.#axis as Axis;
    const n = axis.labels.length;
    const named = mode && mode !== 4 ? `, ${MODES[mode]} step ${modeStep}` : "";
    const incidents = this.#incidents.filter(({ at }) => at === label).map(({ incident }) => `. ${incident.text}`);
    setAttributes(this.#track, {
      "aria-valuemin": n ? (axis.labels[0] as number) : 0,
      "aria-valuemax": n ? (axis.labels[n - 1] as number) : 0,
      "aria-valuenow": i < 0 ? 0 : label,
      "aria-valuetext":
        i < 0
          ? "no steps saved"
          : `step ${label} of ${axis.labels[n - 1]}${named}, ${i + 1} of ${n} saved${incidents.join("")}`,
      "aria-disabled": n ? undefined : "true",
    });
  }

  /** Places the run's incidents on the axis. Those at steps that were not saved have no mode, so only all modes have them. */
  #updateIncidents({ run, axis, traits }: Scene) {
    const key = `${traits.run}/${traits.mode}/${run?.version}/${this.context.session.store.restarts}`;
    if (key === this.#incidentsKey) return;
    this.#incidentsKey = key;
    const [first, last] = [axis.steps[0], axis.steps.at(-1)];
    this.#incidents = (run?.incidents ?? []).flatMap((incident) => {
      if (first === undefined || last === undefined) return [];
      const i = nearestIndex(axis.steps, incident.step);
      if (axis.steps[i] === incident.step) return [{ at: axis.labels[i] as number, incident }];
      return traits.mode === "" ? [{ at: Math.max(first, Math.min(last, incident.step)), incident }] : [];
    });
    this.#incidentList.replaceChildren(...this.#incidents.map(({ incident }) => h("li", {}, incident.text)));
    setVisible(this.#incidentList, this.#incidents.length > 0);
  }

  /** The texts of the incidents whose marks are at a position of the pointer. */
  #incidentsAt(x: number): string {
    const axis = this.#axis;
    if (!axis) return "";
    const scale = trackScale(axis.labels, this.#figure.size.width);
    const near = this.#incidents.filter(({ at }) => Math.abs(scale(at) - x) <= INCIDENT);
    return near.map(({ incident }) => incident.text).join("\n");
  }

  #draw(scene: Scene, label: number) {
    const { axis, traits, main } = scene;
    const { store } = this.context.session;
    const theme = this.context.theme();
    const width = this.#figure.size.width;
    if (!Number.isNaN(label) && width)
      this.#thumb.style.transform = `translateX(${trackScale(axis.labels, width)(label)}px)`;
    setVisible(this.#thumb, !Number.isNaN(label));
    const stateKey = `${traits.run}/${traits.tensor}/${traits.worker}/${main?.frames.version}/${scene.run?.version}/${store.restarts}/${traits.mode}`;
    if (stateKey !== this.#stateKey) {
      this.#stateKey = stateKey;
      const has = main ? new Set(main.frames.steps) : undefined;
      this.#state = Uint8Array.from(axis.steps, (step) =>
        !has ? 1 : main?.frames.frames.has(step) ? 2 : has.has(step) ? 1 : 0,
      );
    }
    const fired = store.firedSteps(traits.run);
    if (fired.key !== this.#firedKey) {
      this.#firedKey = fired.key;
      this.#firedSteps = fired.steps();
    }
    const compare = traits.compare.step;
    // The canvas does not depend on the thumb, so a drag only moves one element.
    const key = [stateKey, fired.key, this.#incidentsKey, width, this.#hover, compare, JSON.stringify(theme)].join("|");
    if (key === this.#drawn) return;
    this.#drawn = key;
    const toLabel = (step: number) => {
      const at = nearestIndex(axis.steps, step);
      return at >= 0 && axis.steps[at] === step ? (axis.labels[at] as number) : Number.NaN;
    };
    const picture = {
      labels: axis.labels,
      modes: axis.modes,
      state: this.#state,
      fired: this.#firedSteps.map(toLabel).filter((x) => !Number.isNaN(x)),
      incidents: this.#incidents.map(({ at }) => at),
      compare: compare === undefined || Number.isNaN(toLabel(compare)) ? undefined : toLabel(compare),
      hover: this.#hover,
    };
    this.#figure.paint((pen, size, colours) => drawTrack(pen, size, colours, picture), theme);
  }

  /** Index of the current step. It can be ahead of the last frame drawn, because keys repeat faster than frames. */
  #index(): number {
    const axis = this.#axis;
    return axis ? nearestIndex(axis.steps, resolveStep(axis, this.context.session.state.get("step"))) : -1;
  }

  #indexAt(x: number): number {
    const axis = this.#axis;
    if (!axis) return -1;
    return nearestIndex(axis.labels, trackScale(axis.labels, this.#figure.size.width).invert(x));
  }

  #labelAt(x: number): number | undefined {
    const i = this.#indexAt(x);
    return i < 0 ? undefined : this.#axis?.labels[i];
  }

  /** Sets the step and stops following. */
  #goToIndex(index: number) {
    const steps = this.#axis?.steps;
    if (!steps?.length) return;
    const i = Math.max(0, Math.min(steps.length - 1, index));
    this.context.session.state.set({ step: steps[i] as number, follow: false });
  }

  #unfollow() {
    this.context.session.state.set({ follow: false, step: this.#scene?.step ?? -1 });
  }

  #followLatest() {
    const steps = this.#axis?.steps;
    this.#setPlaying(false);
    this.context.session.state.set({ follow: true, step: steps?.length ? (steps[steps.length - 1] as number) : -1 });
  }

  #key(event: KeyboardEvent): boolean {
    const n = this.#axis?.steps.length ?? 0;
    const i = this.#index();
    const page = Math.max(1, Math.round(n / 10));
    const target = event.target instanceof Element ? (event.composedPath()[0] as Element) : null;
    const onTrack = target === this.#track;
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
    if (onTrack && event.key in moves) {
      this.#setPlaying(false);
      this.#goToIndex(moves[event.key] as number);
      return true;
    }
    if (event.key === " " && onTrack) {
      this.#setPlaying(!this.#playing);
      return true;
    }
    if (onTrack && /^\d$/.test(event.key)) {
      this.#box.focus();
      this.#box.value = event.key;
      this.#editing = true;
      return true;
    }
    return false;
  }

  #boxKey(event: KeyboardEvent): boolean {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (event.key === "Enter") this.#commit();
    else if (event.key === "Escape") this.#showStep();
    else if (by) {
      this.#goToIndex(this.#index() + by);
      this.#showStep();
    } else return false;
    return true;
  }

  /** Shows the current step in the input, and drops what was typed. */
  #showStep() {
    this.#editing = false;
    this.#box.value = String(this.#axis?.labels[this.#index()] ?? "");
  }

  #commit() {
    this.#editing = false;
    const value = Number.parseFloat(this.#box.value.replaceAll(",", ""));
    const labels = this.#axis?.labels;
    if (!Number.isFinite(value) || !labels?.length) return this.context.redraw();
    const i = nearestIndex(labels, value);
    if (i !== this.#index()) this.#goToIndex(i);
    this.#box.value = String(labels[i]);
  }

  #setPlaying(on: boolean) {
    if (on === this.#playing) return;
    this.#playing = on;
    this.#play.replaceChildren(icon(on ? ICONS.pause : ICONS.play));
    setAttributes(this.#play, { "aria-label": on ? "Pause" : "Play", title: on ? "Pause" : "Play" });
    if (!on) return;
    if (this.#index() === (this.#axis?.steps.length ?? 0) - 1) this.#goToIndex(0);
    this.#lastTick = performance.now();
    requestAnimationFrame((now) => this.#tick(now));
  }

  #tick(now: number) {
    if (!this.#playing || !this.#scene) return;
    const each = 1000 / Math.max(0.1, this.#scene.traits.speed);
    const due = Math.floor((now - this.#lastTick) / each);
    if (due > 0) {
      this.#lastTick += due * each;
      const i = this.#index();
      const last = (this.#axis?.steps.length ?? 0) - 1;
      this.#goToIndex(Math.min(last, i + due));
      if (i + due >= last) return this.#setPlaying(false);
    }
    requestAnimationFrame((next) => this.#tick(next));
  }
}
