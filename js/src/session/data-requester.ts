/** Requests the data that is in view and not loaded, each set once. */
import { histogramKey, histogramRequest, imageKey } from "../data/frames";
import { resolveAxes, resolveFixed } from "../data/matrix";
import { type Run, seriesKey } from "../data/store";
import { jsonEqual } from "../lib/json-equal";
import { compareNatural } from "../lib/natural-order";
import type { Form, HistogramRequest, ImageRequest, Role, SectionRequest, Traits } from "../protocol/types";
import { selectedCurves } from "./selected-curves";
import type { Scene, Session } from "./session";

const BINS = 128;
const CELLS = 4096;

function sectionRequest(traits: Traits, shape: readonly number[] | undefined, form?: Form): SectionRequest {
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
  #restarts = 0;
  /** the run in view has been seen without a tensor */
  #empty = false;

  constructor(private readonly session: Session) {}

  update(scene: Scene): void {
    const { store, reconnections } = this.session;
    if (this.#reconnections !== reconnections || this.#restarts !== store.restarts) {
      this.#reconnections = reconnections;
      this.#restarts = store.restarts;
      this.#requested.clear();
      this.#series = "";
    }
    this.#follow(scene);
    this.#chooseFirst(scene);
    if (this.session.exported) return; // it has all that it can show
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

  /** While following, sets `step` to the latest step at which the tensor in view has a value. */
  #follow({ traits, axis, step, main }: Scene) {
    const last = lastCommonStep(axis.steps, main?.frames.steps ?? []) ?? axis.steps.at(-1);
    if (last === undefined) return;
    if (traits.follow && traits.step !== last) this.session.state.set({ step: last });
    else if (traits.step < 0 && !Number.isNaN(step)) this.session.state.set({ step });
  }

  /**
   * Selects the tensor that the kernel selects when a widget is opened, once a run that had none has one. A tensor is
   * selected here because the kernel can push data, but no state, while a cell runs.
   */
  #chooseFirst({ traits, run }: Scene) {
    const shows = traits._kind === "inspector" || traits._kind === "explorer";
    if (!shows || !run || traits.tensor) return;
    if (run.names.length === 0) this.#empty = true;
    else if (this.#empty) this.session.state.set({ tensor: firstTensor(run) });
  }

  #frames(role: Role, scene: Scene, run: number, worker: string, near: number) {
    const { tensor } = scene.traits;
    if (!tensor || Number.isNaN(near)) return;
    const { store } = this.session;
    const loaded = store.findFrames(run, tensor, worker);
    // A comparison with another step of the same tensor uses the same frames.
    if (role === "compare" && run === scene.traits.run && worker === scene.traits.worker) {
      if (this.#requested.delete("compare")) this.session.cancel(this.session.framesSlot("compare"));
      return;
    }
    const sections = sectionRequest(scene.traits, loaded?.plan?.shape, loaded?.plan?.form);
    const key = JSON.stringify([
      run,
      tensor,
      worker,
      sections.update,
      sections.hist,
      sections.image && imageKey(sections.image.axes, sections.image.fixed, sections.image.pool),
    ]);
    const before = this.#requested.get(role);
    if (before === key) return;
    this.#requested.set(role, key);
    // The shape has just become known; the request already sent means the same axes.
    if (before !== undefined && loaded?.plan && jsonEqual(JSON.parse(before).slice(0, 3), [run, tensor, worker])) {
      const sent = JSON.stringify([
        run,
        tensor,
        worker,
        sections.update,
        sections.hist,
        sections.image && imageKey(scene.traits.axes, scene.traits.fixed, sections.image.pool),
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
        if (sections.hist && !frame.histograms.has(histogramKey(sections.hist))) return false;
        const pictured = frames.plan?.form !== "histogram" && sections.image;
        if (pictured && !frame.images.has(imageKey(pictured.axes, pictured.fixed, pictured.pool))) return false;
        return !sections.update || frame.update !== undefined;
      });
    // The request is sent even if all frames are loaded: the kernel then pushes later steps.
    const after = complete ? { after: frames.steps[frames.steps.length - 1] as number } : {};
    void this.session.request(this.session.framesSlot(role), {
      what: "frames",
      role,
      run,
      tensor,
      worker,
      near,
      want: sections,
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

/** The first weight by name, else the first gradient, loss, or any tensor: `_first_tensor` in widgets/base.py. */
function firstTensor({ names, collections }: Run): string {
  const found = ["weights", "gradients", "losses"]
    .map((each) => collections.get(each) ?? [])
    .find((list) => list.length);
  const among = found ? found.map((index) => names[index] as string) : names;
  return among.reduce((a, b) => (compareNatural(b, a) < 0 ? b : a));
}

/** The largest number in both ascending lists. */
function lastCommonStep(a: ArrayLike<number>, b: ArrayLike<number>): number | undefined {
  let i = a.length - 1;
  let j = b.length - 1;
  while (i >= 0 && j >= 0) {
    const [x, y] = [a[i] as number, b[j] as number];
    if (x === y) return x;
    if (x > y) i--;
    else j--;
  }
  return undefined;
}
