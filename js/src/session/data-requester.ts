/** Requests the data that is in view and not loaded, each set once. */
import { histogramKey, histogramRequest, imageKey, lastAtOrBefore, type TensorFrames } from "../data/frames";
import { resolveAxes, resolveFixed } from "../data/matrix";
import { type Run, seriesKey } from "../data/store";
import { IdleTimer } from "../lib/idle-timer";
import { jsonEqual } from "../lib/json-equal";
import { compareNatural } from "../lib/natural-order";
import type { Form, HistogramRequest, ImageRequest, Role, SectionRequest, SeriesLine, Traits } from "../protocol/types";
import { DifferenceRequester } from "./difference-requester";
import { laneCurve } from "./lane-curve";
import { isComparing, type Place, placeOfB, samePlace } from "./place";
import { usesValues } from "./query-view";
import { selectedCurves } from "./selected-curves";
import type { Scene, Session } from "./session";

const BINS = 128;
const CELLS = 4096;
/** Bytes of a bin in a packet, and of a survey that is requested at once. */
const CELL = 9;
const SMALL_SURVEY = 4 << 20;
const MOST_BINS = 3072;
/** Frames that are requested of a tensor; of a longer run, some of its steps. */
const MOST_FRAMES = 1024;
/** Milliseconds without a change of the view before finer data is requested. */
const REST = 120;
/** Milliseconds between two requests of the same query while a run grows. */
const RENEWAL = 2000;

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

  #survey = "";
  /** runs of a table that were requested, and the run and names in which the tensor in view was looked up */
  readonly #opened = new Set<number>();
  #checked = "";
  readonly #difference: DifferenceRequester;
  readonly #rest: IdleTimer;
  #query = "";
  #renewing = false;
  readonly #queryRest: IdleTimer;
  /** by role: the request of a single frame, and its timer */
  readonly #exact: Record<Role, { key: string; rest: IdleTimer }>;

  constructor(
    private readonly session: Session,
    signal: AbortSignal,
  ) {
    this.#rest = new IdleTimer(signal);
    this.#queryRest = new IdleTimer(signal);
    this.#difference = new DifferenceRequester(session, signal);
    const exact = () => ({ key: "", rest: new IdleTimer(signal) });
    this.#exact = { main: exact(), compare: exact() };
  }

  update(scene: Scene): void {
    const { store, reconnections } = this.session;
    if (this.#reconnections !== reconnections || this.#restarts !== store.restarts) {
      this.#reconnections = reconnections;
      this.#restarts = store.restarts;
      this.#requested.clear();
      this.#series = "";
      this.#survey = "";
      this.#query = "";
      this.#opened.clear();
      this.#difference.reset();
    }
    this.#open(scene);
    this.#follow(scene);
    this.#chooseFirst(scene);
    if (this.session.exported) return; // it has all that it can show
    const { traits } = scene;
    if (traits._kind === "inspector" || traits._kind === "explorer") {
      this.#frames("main", scene, traits, scene.step);
      if (isComparing(traits)) {
        // Which step is B's is known once its steps are.
        const { savedStep = Number.NaN } = scene.compared ?? {};
        const near = Number.isNaN(savedStep) ? (traits.compare.step ?? scene.step) : savedStep;
        this.#frames("compare", scene, placeOfB(traits), near);
      } else if (this.#requested.delete("compare")) this.session.cancel(this.session.framesSlot("compare"));
      this.#difference.update(scene);
    }
    if (traits._kind === "explorer") {
      this.#askSurvey(scene);
      this.#askQuery(scene);
    }
    this.#lines(scene);
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
    if (traits._many && !traits.table && run) {
      // Another run of the table may have other tensors.
      const key = `${traits.run}/${run.namesVersion}`;
      if (key !== this.#checked && run.names.length && !run.names.includes(traits.tensor))
        this.session.state.set({ tensor: firstTensor(run), inspect: false });
      this.#checked = key;
      return;
    }
    const shows = traits._kind === "inspector" || traits._kind === "explorer";
    if (!shows || !run || traits.tensor) return;
    if (run.names.length === 0) this.#empty = true;
    else if (this.#empty) this.session.state.set({ tensor: firstTensor(run) });
  }

  /** Opens the runs of a table that are in view. */
  #open({ traits }: Scene) {
    if (!traits._many || this.session.exported) return;
    const wanted = [
      ...(traits.table ? [] : [traits.run]),
      ...(traits.compare.run === undefined ? [] : [traits.compare.run]),
    ];
    for (const run of this.#opened) if (!wanted.includes(run)) this.#opened.delete(run);
    for (const run of wanted) {
      if (this.#opened.has(run) || this.session.store.runs.has(run)) continue;
      this.#opened.add(run);
      void this.session.request(`open/${run}`, { what: "open", run });
    }
  }

  #frames(role: Role, scene: Scene, { run, tensor, worker }: Place, near: number) {
    if (!tensor || Number.isNaN(near)) return;
    const { store } = this.session;
    const loaded = store.findFrames(run, tensor, worker);
    // A comparison with another step of the same tensor uses the same frames.
    const same = role === "compare" && samePlace({ run, tensor, worker }, scene.traits);
    if (same && this.#requested.delete("compare")) this.session.cancel(this.session.framesSlot("compare"));
    const sections = sectionRequest(scene.traits, loaded?.plan?.shape, loaded?.plan?.form);
    // Of a long run, few of the steps in view, and the one at which the view rests.
    const { range } = scene.traits;
    const part = scene.axis.steps.length > MOST_FRAMES ? { most: MOST_FRAMES, ...aligned(range) } : {};
    const key = JSON.stringify([
      run,
      tensor,
      worker,
      sections.update,
      sections.hist,
      sections.image && imageKey(sections.image.axes, sections.image.fixed, sections.image.pool),
      part,
    ]);
    if ("most" in part) this.#exactFrame(role, near, loaded, { run, tensor, worker }, sections);
    if (same) return;
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
        part,
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
      ...part,
      ...after,
    });
  }

  /** Asks for the bins in view that are not held, once the view has rested. */
  #askSurvey({ traits, run }: Scene) {
    const view = this.session.surveyView;
    if (!view || !run?.steps.length) return;
    const { run: index, worker, mode, map_stat: stat } = traits;
    const survey = this.session.store.surveys.find(index, worker, mode, stat);
    const [first, end] = [run.steps[0] as number, (run.steps.at(-1) as number) + 1];
    const clip = (step: number) => Math.max(first, Math.min(end, step));
    const [from, to] = [Math.floor(clip(view.from)), Math.ceil(clip(view.to))];
    const missing = view.tensors.filter((tensor) => !survey?.covers(tensor, view.level, from, to));
    if (!missing.length) return this.#rest.cancel();
    // One window on each side, so that a small pan shows what is held.
    const span = to - from;
    const [start, stop] = [Math.floor(clip(from - span)), Math.ceil(clip(to + span))];
    const bins = Math.min(MOST_BINS, Math.ceil((stop - start) / 2 ** view.level) + 1);
    const everything = run.names.length * bins * CELL <= SMALL_SURVEY;
    const tensors = everything ? [] : missing.slice(0, Math.max(1, Math.floor(SMALL_SURVEY / (bins * CELL))));
    const request = { run: index, worker, mode, stat, tensors, from: start, to: stop, bins };
    // While a run grows, the kernel pushes the new bins of the last request.
    const key = JSON.stringify([{ ...request, to: stop === end ? "end" : stop }, survey?.edition]);
    if (key === this.#survey) return;
    this.#rest.schedule(REST, () => {
      this.#survey = key;
      void this.session.request("survey", { what: "survey", ...request });
    });
  }

  /** Asks for the exact result of a query by values, once it has rested: the page evaluates it on pooled values. */
  #askQuery({ traits, run, query: { text, query } }: Scene) {
    if (!run?.steps.length || !usesValues(query)) {
      this.#renewing = false;
      return this.#queryRest.cancel();
    }
    const place = { run: traits.run, worker: traits.worker, mode: traits.mode, text };
    const reading = this.session.store.readings.get(traits.run)?.state;
    const key = JSON.stringify([place, run.steps.length, run.namesVersion, reading]);
    if (key === this.#query) return;
    // While a run grows, the answer is renewed from time to time.
    const again = this.session.queryAnswer?.text === text;
    if (again && this.#renewing) return;
    this.#renewing = again;
    this.#queryRest.schedule(again ? RENEWAL : REST, async () => {
      this.#renewing = false;
      this.#query = key;
      const response = await this.session.request("query", { what: "query", ...place });
      if (!response?.rows) return;
      this.session.queryAnswer = { ...place, rows: response.rows };
      this.session.store.notify();
    });
  }

  /** Requests the frame of the step at which the view rests, if it is not among those of a long run. */
  #exactFrame(
    role: Role,
    step: number,
    loaded: TensorFrames | undefined,
    place: { run: number; tensor: string; worker: string },
    want: SectionRequest,
  ) {
    const exact = this.#exact[role];
    const at = loaded ? lastAtOrBefore(loaded.steps, step) : -1;
    const missing = loaded !== undefined && loaded.steps[at] === step && !loaded.frames.has(step);
    const key = JSON.stringify([place, step, want]);
    if (!missing || key === exact.key) return exact.rest.cancel();
    const slot = `${this.session.framesSlot(role)}/exact`;
    exact.rest.schedule(REST, () => {
      exact.key = key;
      void this.session.request(slot, { what: "frames", role, ...place, near: step, want, steps: [step] });
    });
  }

  #lines(scene: Scene) {
    const { series } = this.session.store;
    const lines = wantedCurves(scene, this.session);
    const clock = scene.traits.x_axis !== "step" && panelShown(scene.traits);
    const missing = lines.filter((line) => {
      const held = series.get(seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat));
      return !held || (clock && held.began === undefined);
    });
    const key = JSON.stringify([missing, clock]);
    if (key === this.#series) return;
    this.#series = key;
    if (missing.length) void this.session.request("series", { what: "series", lines, ...(clock && { clock }) });
  }
}

const panelShown = ({ _kind, panels }: Traits) => _kind === "scalars" || panels.includes("scalars");

/** The curves in view. */
function wantedCurves(scene: Scene, session: Session): SeriesLine[] {
  const { traits } = scene;
  const panel = panelShown(traits) ? selectedCurves(scene, session) : [];
  if (traits._kind !== "explorer") return panel;
  const lines = [laneCurve(scene), ...session.curvesInView, ...panel].filter((line) => line !== undefined);
  return [...new Map(lines.map((line) => [JSON.stringify(Object.entries(line).sort()), line])).values()];
}

/** The range in view, rounded outwards so that a small zoom or pan requests nothing. */
function aligned(range: readonly number[]): { from?: number; to?: number } {
  const [from, to] = range;
  if (from === undefined || to === undefined || !(to > from)) return {};
  const unit = 2 ** (Math.floor(Math.log2(to - from)) - 1);
  return { from: Math.floor(from / unit) * unit, to: Math.ceil(to / unit) * unit };
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
