/** The axis of steps with its handle, incidents and bookmarks. A drag moves the step. */

import { drawAxis, INCIDENT_MARK } from "../../draw/lanes";
import { capturePointer, h, setAttributes, setText, setVisible } from "../../lib/dom";
import { count } from "../../lib/format";
import { Memo } from "../../lib/memo";
import type { Scene } from "../../session/scene";
import { Deferred } from "../common/deferred";
import { Figure } from "../common/figure";
import type { Context, Part } from "../common/part";
import type { StepControl } from "../steps/control";
import type { Bookmarks } from "./bookmarks";
import type { PartingMark } from "./parting";

export class AxisStrip implements Part {
  readonly el: HTMLElement;
  readonly #figure: Figure;
  readonly #thumb = h("div", { class: "smdw-thumb" });
  readonly #track: HTMLElement;
  readonly #bookmarks: Deferred<Bookmarks>;
  readonly #parting: Deferred<PartingMark>;
  readonly #drawn = new Memo();
  #scene: Scene | undefined;

  constructor(
    private readonly context: Context,
    private readonly control: StepControl,
    gutter: HTMLElement,
    /** called with the position of the pointer, or undefined when it leaves */
    private readonly pointed: (x: number | undefined) => void,
  ) {
    this.#figure = new Figure("axis", context);
    this.#figure.canvas.setAttribute("aria-hidden", "true");
    this.#track = control.track();
    const marks = () => import("./marks");
    this.#bookmarks = new Deferred(context, async () => new (await marks()).Bookmarks(context));
    this.#parting = new Deferred(context, async () => new (await marks()).PartingMark(context));
    this.el = h(
      "div",
      { class: "smdw-axis" },
      this.#figure.el,
      gutter,
      this.#track,
      this.#bookmarks.el,
      this.#parting.el,
      this.#thumb,
      control.incidentList,
    );
    // 0 shows all steps.
    context.keys.on(this.#track, (event) => event.key !== "0" && control.key(event));
    this.#moveByTrack();
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { stepAxis } = scene;
    const { bookmarks, compare } = scene.traits;
    // A mark that was removed is not shown any more.
    if (bookmarks.length) this.#bookmarks.use((part) => part.update(scene));
    else this.#bookmarks.part?.update(scene);
    if (compare.run !== undefined) this.#parting.use((part) => part.update(scene));
    else this.#parting.part?.update(scene);
    const label = this.control.label;
    const at = stepAxis.x(scene.step);
    const inside = at >= stepAxis.left - 0.5 && at <= stepAxis.right + 0.5;
    setVisible(this.#thumb, !Number.isNaN(label) && inside);
    setText(this.#thumb, Number.isNaN(label) ? "" : count(label));
    if (inside) this.#thumb.style.transform = `translateX(${at}px) translateX(-50%)`;
    this.#draw(scene);
  }

  /** Marks the current step, or removes its mark. */
  bookmark(): void {
    const { session } = this.context;
    const { step, traits } = session.scene();
    if (Number.isNaN(step)) return;
    const others = traits.bookmarks.filter((each) => each.step !== step);
    const added = others.length === traits.bookmarks.length;
    const bookmarks = added ? [...others, { step, tensor: traits.tensor, note: "" }] : others;
    session.state.set({ bookmarks: bookmarks.sort((a, b) => a.step - b.step) });
  }

  #draw({ stepAxis: axis, axis: shown, step, traits }: Scene) {
    const half = this.#thumb.hidden ? 0 : 8 + 3.6 * (this.#thumb.textContent?.length ?? 0);
    const at = axis.x(step);
    const compare = traits.compare.step;
    const covered = half ? ([at - half, at + half] as const) : undefined;
    const incidents = this.control.incidents.map((each) => each.at);
    const theme = this.context.theme();
    const { steps } = shown;
    if (!this.#drawn.changed([axis.ends, steps, covered, incidents, compare, theme, this.#figure.size])) return;
    const picture = { axis, steps, covered, incidents, compare };
    this.#figure.paint((pen, size, paint) => drawAxis(pen, size, paint, picture), theme);
  }

  #moveByTrack() {
    const { signal } = this.context;
    const go = (event: PointerEvent) => {
      const scene = this.#scene;
      if (!scene) return;
      const box = this.#track.getBoundingClientRect();
      this.control.goToLabel(scene.stepAxis.step(scene.stepAxis.left + event.clientX - box.left));
    };
    let dragging = false;
    this.#track.addEventListener(
      "pointerdown",
      (event) => {
        if (event.button !== 0) return;
        event.preventDefault();
        this.#track.focus({ preventScroll: true });
        this.control.setPlaying(false);
        // During a drag the line below shows the tensor at the step.
        this.pointed(undefined);
        dragging = true;
        this.#track.classList.add("smdw-dragging");
        capturePointer(this.#track, event);
        go(event);
      },
      { signal },
    );
    this.#track.addEventListener(
      "pointermove",
      (event) => {
        if (dragging) return go(event);
        const x = (this.#scene?.stepAxis.left ?? 0) + event.clientX - this.#track.getBoundingClientRect().left;
        const axis = this.#scene?.stepAxis;
        const near = this.control.incidents.filter(({ at }) => axis && Math.abs(axis.x(at) - x) <= INCIDENT_MARK + 1);
        setAttributes(this.#track, { title: near.map(({ incident }) => incident.text).join("\n") || undefined });
        this.pointed(x);
      },
      { signal },
    );
    this.#track.addEventListener("pointerleave", () => this.pointed(undefined), { signal });
    const end = () => {
      dragging = false;
      this.#track.classList.remove("smdw-dragging");
    };
    this.#track.addEventListener("pointerup", end, { signal });
    this.#track.addEventListener("pointercancel", end, { signal });
    this.#track.addEventListener("dblclick", () => this.context.session.state.set({ range: [] }), { signal });
  }
}
