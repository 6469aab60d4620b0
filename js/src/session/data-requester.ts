/** Decides what to ask the kernel for, from what is in view and what is already held. Asks once, and again only for more. */
import { histogramKey, histogramRequest, imageKey } from "../data/frames";
import { resolveAxes, resolveFixed } from "../data/matrix";
import { seriesKey } from "../data/store";
import { jsonEqual } from "../lib/json-equal";
import type { Form, HistogramRequest, ImageRequest, Role, SectionRequest, Traits } from "../protocol/types";
import { selectedCurves } from "./selected-curves";
import type { Scene, Session } from "./session";

const BINS = 128;
const CELLS = 4096;

export function sectionRequest(traits: Traits, shape: readonly number[] | undefined, form?: Form): SectionRequest {
  const shows = (name: Traits["panels"][number]) => traits.panels.includes(name);
  const hist: HistogramRequest | null =
    shows("histogram") || shows("history") ? { bins: BINS, ...histogramRequest(traits) } : null;
  const image: ImageRequest | null = shows("heatmap")
    ? {
        axes: shape ? resolveAxes(traits.axes, shape.length, form) : traits.axes,
        fixed: shape ? resolveFixed(traits.fixed, shape) : traits.fixed,
        pool: traits.pool,
        cells: CELLS,
      }
    : null;
  return {
    stats: true,
    update: traits.stats.includes("update_ratio") && shows("statistics"),
    hist,
    image,
    percentiles: hist !== null,
  };
}

export class DataRequester {
  readonly #requested = new Map<Role, string>();
  #series = "";
  #reconnections = 0;

  constructor(private readonly session: Session) {}

  update(scene: Scene): void {
    if (this.#reconnections !== this.session.reconnections) {
      this.#reconnections = this.session.reconnections;
      this.#requested.clear();
      this.#series = "";
    }
    this.#follow(scene);
    const { traits } = scene;
    if (traits._kind === "inspector" || traits._kind === "explorer") {
      this.#frames("main", scene, traits.run, traits.worker, scene.step);
      if (Object.keys(traits.compare).length)
        this.#frames(
          "compare",
          scene,
          traits.compare.run ?? traits.run,
          traits.compare.worker ?? traits.worker,
          traits.compare.step ?? scene.step,
        );
      else if (this.#requested.delete("compare")) this.session.cancel(this.session.framesSlot("compare"));
    }
    if (traits._kind === "scalars" || traits.panels.includes("scalars")) this.#lines(scene);
  }

  /** The step trait goes along with the newest step while following. */
  #follow({ traits, axis, step }: Scene) {
    const last = axis.steps[axis.steps.length - 1];
    if (last === undefined) return;
    if (traits.follow && traits.step !== last) this.session.state.set({ step: last });
    else if (traits.step < 0 && !Number.isNaN(step)) this.session.state.set({ step });
  }

  #frames(role: Role, scene: Scene, run: number, worker: string, near: number) {
    const { tensor } = scene.traits;
    if (!tensor || Number.isNaN(near)) return;
    const { store } = this.session;
    const held = store.findFrames(run, tensor, worker);
    // The same tensor under both roles (another step of it) is one set of frames.
    if (role === "compare" && run === scene.traits.run && worker === scene.traits.worker) {
      if (this.#requested.delete("compare")) this.session.cancel(this.session.framesSlot("compare"));
      return;
    }
    const want = sectionRequest(scene.traits, held?.plan?.shape, held?.plan?.form);
    const key = JSON.stringify([
      run,
      tensor,
      worker,
      want.update,
      want.hist,
      want.image && imageKey(want.image.axes, want.image.fixed, want.image.pool),
    ]);
    const before = this.#requested.get(role);
    if (before === key) return;
    this.#requested.set(role, key);
    // The shape has just become known: the question that was sent meant the same axes.
    if (before !== undefined && held?.plan && jsonEqual(JSON.parse(before).slice(0, 3), [run, tensor, worker])) {
      const sent = JSON.stringify([
        run,
        tensor,
        worker,
        want.update,
        want.hist,
        want.image && imageKey(scene.traits.axes, scene.traits.fixed, want.image.pool),
      ]);
      if (sent === before) return;
    }
    const frames = store.frames(run, tensor, worker);
    const complete =
      frames.plan !== undefined &&
      frames.steps.length > 0 &&
      frames.steps.every((step) => {
        const frame = frames.frames.get(step);
        if (!frame) return false;
        if (frame.error || frames.plan?.form === "text" || frames.plan?.reduced) return true;
        if (want.hist && !frame.histograms.has(histogramKey(want.hist))) return false;
        const pictured = frames.plan?.form !== "histogram" && want.image;
        if (pictured && !frame.images.has(imageKey(pictured.axes, pictured.fixed, pictured.pool))) return false;
        return !want.update || frame.update !== undefined;
      });
    // A page without a kernel shows what it holds. A kernel is asked even when all is here: it then pushes what is saved later.
    if (this.session.exported && frames.frames.size) return;
    const after = complete ? { after: frames.steps[frames.steps.length - 1] as number } : {};
    void this.session.request(this.session.framesSlot(role), {
      what: "frames",
      role,
      run,
      tensor,
      worker,
      near,
      want,
      ...after,
    });
  }

  #lines(scene: Scene) {
    const lines = selectedCurves(scene, this.session);
    const missing = lines.filter(
      (line) => !this.session.store.series.has(seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat)),
    );
    const key = JSON.stringify(missing);
    if (key === this.#series) return;
    this.#series = key;
    if (missing.length) void this.session.request("series", { what: "series", lines });
  }
}
