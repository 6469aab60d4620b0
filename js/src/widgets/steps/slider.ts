/** The step slider: ticks at saved steps, marks of rule firings and incidents, and the controls of the step. */

import { nearestIndex } from "../../data/frames";
import { firedSteps } from "../../data/store";
import { drawTrack, INCIDENT, trackScale } from "../../draw/timeline";
import { defined } from "../../lib/defined";
import { h, setAttributes, setVisible } from "../../lib/dom";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import { Figure } from "../common/figure";
import type { Context, Part } from "../common/part";
import { StepControl } from "./control";

export class StepSlider implements Part {
  readonly el: HTMLElement;
  readonly #control: StepControl;
  readonly #figure: Figure;
  readonly #track: HTMLElement;
  readonly #thumb: HTMLElement;
  #hover: number | undefined;
  readonly #drawn = new Memo();
  /** by saved step of the run, whether the tensor in view was saved at it, and whether that is loaded */
  readonly #states = new Memo<Uint8Array>();
  readonly #fired = new Memo<Float64Array>();

  constructor(private readonly context: Context) {
    const { signal, keys } = context;
    const control = new StepControl(context);
    this.#control = control;
    this.#figure = new Figure("track", context);
    this.#figure.canvas.setAttribute("aria-hidden", "true");
    this.#thumb = h("div", { class: "smdw-thumb" });
    this.#track = control.track(this.#figure.el, this.#thumb);
    this.el = h(
      "div",
      { class: "smdw-slider", role: "group", "aria-label": "Step slider" },
      h("div", { class: "smdw-slider-left" }, control.play),
      this.#track,
      control.incidentList,
      h(
        "div",
        { class: "smdw-slider-right" },
        h("label", { class: "smdw-step-label" }, h("span", { class: "smdw-quiet" }, "Step"), control.box),
        control.lastLabel,
        control.modeLabel,
        control.mode.el,
        control.speed.el,
        control.follow.el,
        control.newSteps,
      ),
    );
    keys.on(this.#track, (event) => control.key(event));
    this.#figure.gestures(
      {
        move: (at) => {
          const next = at && this.#labelAt(at.x);
          if (next !== this.#hover) {
            this.#hover = next;
            context.redraw();
          }
          setAttributes(this.#track, { title: (at && this.#incidentsAt(at.x)) || undefined });
        },
        down: (at) => {
          at.event.preventDefault();
          this.#track.focus({ preventScroll: true });
          control.setPlaying(false);
          this.#hover = undefined;
          this.#track.classList.add("smdw-dragging");
          control.goToIndex(this.#indexAt(at.x));
          return (next, done) => {
            if (done) this.#track.classList.remove("smdw-dragging");
            else control.goToIndex(this.#indexAt(next.x));
          };
        },
      },
      signal,
    );
  }

  update(scene: Scene): void {
    this.#control.update(scene);
    this.#draw(scene, this.#control.label);
  }

  /** The texts of the incidents whose marks are at a position of the pointer. */
  #incidentsAt(x: number): string {
    const scale = trackScale(this.#control.labels, this.#figure.size.width);
    const near = this.#control.incidents.filter(({ at }) => Math.abs(scale(at) - x) <= INCIDENT);
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
    const { run, tensor, worker, mode } = traits;
    const frames = [run, tensor, worker, main?.frames.version, scene.run?.version, store.restarts, mode];
    const state = this.#states.of(frames, () => {
      const saved = main ? new Set(main.frames.steps) : undefined;
      return Uint8Array.from(axis.steps, (step) =>
        !saved ? 1 : main?.frames.frames.has(step) ? 2 : saved.has(step) ? 1 : 0,
      );
    });
    const rules = store.rulesOf(traits.run);
    const versions = rules.map(({ info, version }) => [info.id, version]);
    const fired = this.#fired.of([traits.run, versions], () => firedSteps(rules));
    const compare = traits.compare.step;
    // The canvas does not depend on the thumb, so a drag only moves one element.
    if (!this.#drawn.changed([state, fired, this.#control.incidents, width, this.#hover, compare, theme])) return;
    const toLabel = (step: number) => {
      const at = nearestIndex(axis.steps, step);
      return at >= 0 && axis.steps[at] === step ? defined(axis.labels[at]) : Number.NaN;
    };
    const picture = {
      labels: axis.labels,
      modes: axis.modes,
      state,
      fired: fired.map(toLabel).filter((x) => !Number.isNaN(x)),
      incidents: this.#control.incidents.map(({ at }) => at),
      compare: compare === undefined || Number.isNaN(toLabel(compare)) ? undefined : toLabel(compare),
      hover: this.#hover,
    };
    this.#figure.paint((pen, size, colours) => drawTrack(pen, size, colours, picture), theme);
  }

  #indexAt(x: number): number {
    const { labels } = this.#control;
    return nearestIndex(labels, trackScale(labels, this.#figure.size.width).invert(x));
  }

  #labelAt(x: number): number | undefined {
    return this.#control.labels[this.#indexAt(x)];
  }
}
