/** Which data a scene needs. */
import { histogramKey, histogramRequest, imageKey, lastAtOrBefore, type TensorFrames } from "../data/frames";
import { resolveAxes, resolveFixed } from "../data/matrix";
import { seriesKey } from "../data/store";
import { defined } from "../lib/defined";
import type {
  HistogramRequest,
  ImageRequest,
  SectionRequest,
  SeriesLine,
  SeriesRequest,
  SurveyRequest,
  Traits,
} from "../protocol/types";
import { laneCurve } from "./lane-curve";
import type { Scene } from "./scene";
import { selectedCurves } from "./selected-curves";
import type { Session, SurveyView } from "./session";

const BINS = 128;
const CELLS = 4096;
/** Bytes of a bin in a packet, and of a survey that is requested at once. */
const CELL = 9;
const SMALL_SURVEY = 4 << 20;
/** Bytes of the bins in view that are requested, half of what is held. */
const LARGE_SURVEY = 32 << 20;
const MOST_BINS = 3072;
/** Frames that are requested of a tensor; of a longer run, some of its steps. */
const MOST_FRAMES = 1024;

/** Sections of the frames of a tensor. */
export function neededSections(traits: Traits, loaded: TensorFrames | undefined): SectionRequest {
  const { shape, form } = loaded?.plan ?? {};
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

/** Of a long run, few of the steps in view; the range is rounded outwards so that a small zoom or pan requests nothing. */
export function neededPart({ axis, traits }: Scene): { most?: number; from?: number; to?: number } {
  if (axis.steps.length <= MOST_FRAMES) return {};
  const [from, to] = traits.range;
  if (from === undefined || to === undefined || !(to > from)) return { most: MOST_FRAMES };
  const unit = 2 ** (Math.floor(Math.log2(to - from)) - 1);
  return { most: MOST_FRAMES, from: Math.floor(from / unit) * unit, to: Math.ceil(to / unit) * unit };
}

/** Whether all frames have the sections. */
export function isComplete({ plan, steps, frames }: TensorFrames, sections: SectionRequest): boolean {
  const image = plan?.form === "histogram" ? null : sections.image;
  return (
    plan !== undefined &&
    steps.length > 0 &&
    steps.every((step) => {
      const frame = frames.get(step);
      if (!frame) return false;
      if (frame.error || plan.form === "text" || plan.reduced) return true;
      if (sections.hist && !frame.histograms.has(histogramKey(sections.hist))) return false;
      if (image && !frame.images.has(imageKey(image.axes, image.fixed, image.pool))) return false;
      return !sections.update || frame.update !== undefined;
    })
  );
}

/** Whether a saved step has no frame, as most of a long run. */
export const lacksFrame = (loaded: TensorFrames | undefined, step: number): boolean =>
  loaded !== undefined && loaded.steps[lastAtOrBefore(loaded.steps, step)] === step && !loaded.frames.has(step);

/** The bins in view that are not held, with one window on each side, so that a small pan shows what is held. */
export function neededSurvey(
  { traits, run }: Scene,
  view: SurveyView | undefined,
  { store }: Session,
): { request: SurveyRequest; key: unknown } | undefined {
  if (!view || !run?.steps.length) return undefined;
  const { run: index, worker, mode, map_stat: stat } = traits;
  const survey = store.surveys.find(index, worker, mode, stat);
  const [first, end] = [defined(run.steps[0]), defined(run.steps[run.steps.length - 1]) + 1];
  const clip = (step: number) => Math.max(first, Math.min(end, step));
  const [from, to] = [Math.floor(clip(view.from)), Math.ceil(clip(view.to))];
  const span = to - from;
  const [start, stop] = [Math.floor(clip(from - span)), Math.ceil(clip(to + span))];
  const bins = Math.min(MOST_BINS, Math.ceil((stop - start) / 2 ** view.level) + 1);
  const everything = run.names.length * bins * CELL <= SMALL_SURVEY;
  // Where not all bins in view can be held, those of the poster are shown.
  if (!everything && view.tensors.length * bins * CELL > LARGE_SURVEY) return undefined;
  const most = everything ? 1 : Math.max(1, Math.floor(SMALL_SURVEY / (bins * CELL)));
  const missing: number[] = [];
  for (const tensor of view.tensors) {
    if (missing.length === most) break;
    if (!survey?.covers(tensor, view.level, from, to)) missing.push(tensor);
  }
  if (!missing.length) return undefined;
  const tensors = everything ? [] : missing;
  const request = { what: "survey" as const, run: index, worker, mode, stat, tensors, from: start, to: stop, bins };
  // While a run grows, the kernel pushes the new bins of the last request.
  return { request, key: [{ ...request, to: stop === end ? "end" : stop }, survey?.edition] };
}

const panelShown = ({ _kind, panels }: Traits) => _kind === "scalars" || panels.includes("scalars");

/** The curves in view: what decides whether they are requested, and the request if one is missing. */
export function neededSeries(scene: Scene, session: Session): { key: unknown; request: SeriesRequest | undefined } {
  const lines = neededCurves(scene, session);
  const clock = scene.traits.x_axis !== "step" && panelShown(scene.traits);
  const missing = lines.filter((line) => {
    const held = session.store.series.get(seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat));
    return !held || (clock && held.began === undefined);
  });
  const request = missing.length ? { what: "series" as const, lines, ...(clock && { clock }) } : undefined;
  return { key: [missing, clock], request };
}

function neededCurves(scene: Scene, session: Session): SeriesLine[] {
  const { traits } = scene;
  const panel = panelShown(traits) ? selectedCurves(scene, session) : [];
  if (traits._kind !== "explorer") return panel;
  const lane = laneCurve(scene);
  const other = scene.compared && scene.compared.run !== traits.run ? { run: scene.compared.run } : undefined;
  const lines = [lane, lane && other && { ...lane, ...other }, ...session.curvesInView, ...panel].filter(
    (line) => line !== undefined,
  );
  return [
    ...new Map(
      lines.map((line) => [seriesKey(line.run, line.tensor, line.worker, line.mode, line.stat), line]),
    ).values(),
  ];
}
