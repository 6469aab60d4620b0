/** Requests the data that is in view and not loaded, each set once. */
import { imageKey, type TensorFrames } from "../data/frames";
import { partingKey } from "../data/store";
import { defined } from "../lib/defined";
import { Memo } from "../lib/memo";
import type { KernelRequest, Role, SectionRequest, TensorRef } from "../protocol/types";
import { comparedRuns, isComparing, sameTensor, tensorOfB } from "./comparison";
import { framesSlot } from "./connection";
import { neededDifference } from "./difference-need";
import { isComplete, lacksFrame, neededPart, neededSections, neededSeries, neededSurvey } from "./needs";
import { Opening } from "./opening";
import { usesValues } from "./query-view";
import { Resource } from "./resource";
import type { Scene } from "./scene";
import type { Session } from "./session";
import { ViewDefaults } from "./view-defaults";

/** Milliseconds without a change of the view before finer data is requested. */
const REST = 120;
/** Milliseconds between two requests of the same query while a run grows. */
const RENEWAL = 2000;

export class DataRequester {
  readonly #defaults: ViewDefaults;
  readonly #opening: Opening;
  readonly #frames: Record<Role, Resource>;
  /** what is requested of a tensor, but for the part of a long run */
  readonly #content: Record<Role, Memo> = { main: new Memo(), compare: new Memo() };
  /** the single frame of the step at which the view rests, of long runs */
  readonly #exact: Record<Role, Resource>;
  readonly #difference: Resource;
  readonly #parting: Resource;
  readonly #survey: Resource;
  readonly #query: Resource;
  readonly #series: Resource;
  /** by run of a table */
  readonly #opened = new Map<number, Resource>();
  #renewing = false;

  constructor(
    private readonly session: Session,
    private readonly signal: AbortSignal,
  ) {
    this.#defaults = new ViewDefaults(session);
    this.#opening = new Opening(session);
    const frames = (role: Role) => new Resource(session, framesSlot(role), signal);
    const exact = (role: Role) => new Resource(session, `${framesSlot(role)}/exact`, signal, { rest: REST });
    this.#frames = { main: frames("main"), compare: frames("compare") };
    this.#exact = { main: exact("main"), compare: exact("compare") };
    this.#difference = new Resource(session, "diff", signal, { rest: REST, cancelsAtOnce: true });
    this.#parting = new Resource(session, "bisect", signal, { rest: REST, cancelsAtOnce: true });
    this.#survey = new Resource(session, "survey", signal, { rest: REST });
    this.#query = new Resource(session, "query", signal, { rest: REST });
    this.#series = new Resource(session, "series", signal);
  }

  update(scene: Scene): void {
    const { traits } = scene;
    const { exported } = this.session; // such a page has all that it can show
    if (!exported) this.#open(scene);
    this.#defaults.update(scene);
    this.#opening.update(scene);
    if (exported) return;
    if (traits._kind === "inspector" || traits._kind === "explorer") {
      this.#requestFrames("main", scene, traits, scene.step);
      if (isComparing(traits)) {
        // Which step is B's is known once its steps are.
        const { savedStep = Number.NaN } = scene.compared ?? {};
        const near = Number.isNaN(savedStep) ? (traits.compare.step ?? scene.step) : savedStep;
        this.#requestFrames("compare", scene, tensorOfB(traits), near);
      } else this.#frames.compare.cancel();
      this.#requestDifference(scene);
    }
    if (traits._kind === "explorer") {
      const need = neededSurvey(scene, this.session.surveyView, this.session);
      if (need) this.#survey.update(need.key, () => need.request);
      else this.#survey.skip();
      this.#requestQuery(scene);
      this.#requestParting(scene);
    }
    const series = neededSeries(scene, this.session);
    this.#series.update(series.key, () => series.request);
  }

  /** Opens the runs of a table that are in view. */
  #open({ traits }: Scene) {
    if (!traits._many) return;
    const { runs } = this.session.store;
    const needed = [traits.table ? undefined : traits.run, traits.compare.run].filter((run) => run !== undefined);
    for (const run of this.#opened.keys()) if (!needed.includes(run)) this.#opened.delete(run);
    for (const run of needed) {
      const resource = this.#opened.get(run) ?? new Resource(this.session, `open/${run}`, this.signal);
      this.#opened.set(run, resource);
      if (!runs.has(run)) resource.update(run, () => ({ what: "open", run }));
    }
  }

  #requestFrames(role: Role, scene: Scene, { run, tensor, worker }: TensorRef, near: number) {
    if (!tensor || Number.isNaN(near)) return;
    const { store } = this.session;
    const loaded = store.findFrames(run, tensor, worker);
    const { traits } = scene;
    const want = neededSections(traits, loaded);
    const part = neededPart(scene);
    const place = { run, tensor, worker };
    if (part.most) this.#requestExact(role, near, loaded, place, want);
    // A comparison with another step of the same tensor uses the same frames.
    if (role === "compare" && sameTensor(place, traits)) return this.#frames.compare.cancel();
    // The axes as chosen: those of the tensor are known later, and are the same.
    const image = want.image && imageKey(traits.axes, traits.fixed, traits.pool);
    const content = [place, want.update, want.hist, image];
    const send = (): KernelRequest => {
      const frames = store.frames(run, tensor, worker);
      // The request is sent even if all frames are loaded: the kernel then pushes later steps.
      const after = isComplete(frames, want) ? { after: defined(frames.steps[frames.steps.length - 1]) } : {};
      return { what: "frames", role, ...place, near, want, ...part, ...after };
    };
    // Each message takes a notebook about a frame, so that a zoom or pan sends none before it rests.
    this.#frames[role].update([content, part], send, this.#content[role].changed(content) ? 0 : REST);
  }

  /** Requests the frame of a step if it is not among those of a long run. */
  #requestExact(role: Role, step: number, loaded: TensorFrames | undefined, place: TensorRef, want: SectionRequest) {
    if (!lacksFrame(loaded, step)) return this.#exact[role].skip();
    const request = { what: "frames" as const, role, ...place, near: step, want, steps: [step] };
    this.#exact[role].update(request, () => request);
  }

  #requestDifference(scene: Scene) {
    const need = neededDifference(scene, this.session.store);
    if (!need) return this.#difference.cancel();
    if (need.held) return this.#difference.skip();
    this.#difference.update(need.request, () => need.request);
  }

  /** Asks where the compared runs part: once, and again when a run that has grown has ended. */
  #requestParting({ traits }: Scene) {
    const { store } = this.session;
    const runs = comparedRuns(traits);
    const [a, b] = (runs ?? []).map((run) => store.runs.get(run));
    if (!runs || !a || !b) return this.#parting.cancel();
    const known = store.partings.get(partingKey(...runs));
    if (known && known.step !== null) return this.#parting.skip();
    this.#parting.update([runs, a.head.status, b.head.status, store.restarts], () => {
      const [a, b] = runs;
      return { what: "bisect", a, b };
    });
  }

  /** Requests the exact result of a query by values: the page evaluates it on pooled values. */
  #requestQuery({ traits, run, query: { text, query } }: Scene) {
    if (!run?.steps.length || !usesValues(query)) {
      this.#renewing = false;
      return this.#query.skip();
    }
    const request = { run: traits.run, worker: traits.worker, mode: traits.mode, text };
    const reading = this.session.store.readings.get(traits.run)?.state;
    // While a run grows, the answer is renewed from time to time.
    const renewing = this.session.queryAnswer?.text === text;
    if (renewing && this.#renewing) return;
    const key = [request, run.steps.length, run.namesVersion, reading];
    const send = () => {
      this.#renewing = false;
      return { what: "query" as const, ...request };
    };
    this.#renewing =
      this.#query.update(key, send, renewing ? RENEWAL : REST, ({ rows }) => {
        if (!rows) return;
        this.session.queryAnswer = { ...request, rows };
        this.session.store.notify();
      }) && renewing;
  }
}
