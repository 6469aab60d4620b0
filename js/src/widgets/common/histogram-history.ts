/** The histograms of all steps of the tensor in view. */
import {
  availableHistogramKey,
  type Frame,
  finiteness,
  histogramDomain,
  histogramRequest,
  notFiniteKind,
} from "../../data/frames";
import { type NotFiniteRange, notFiniteRanges } from "../../draw/not-finite";
import { MODES } from "../../protocol/types";
import type { Scene } from "../../session/scene";
import type { Session } from "../../session/session";

export class HistogramHistory {
  /** frames with a histogram, ascending by step */
  frames: Frame[] = [];
  notFinite: NotFiniteRange[] = [];
  /** whether any histogram has finite values */
  finite = false;
  /** key of the histograms */
  key = "";
  domain: [number, number] = [0, 1];
  /** changes with the data */
  version = "";

  constructor(private readonly session: Session) {}

  update({ traits, main }: Scene): void {
    this.key = availableHistogramKey(main?.frame, histogramRequest(traits));
    const version = `${traits.run}/${traits.tensor}/${traits.worker}/${traits.mode}/${this.key}/${main?.frames.version}`;
    if (version === this.version) return;
    this.version = version;
    const mode = MODES.indexOf(traits.mode);
    const loaded = main
      ? [...main.frames.loadedSteps()]
          .filter((step) => traits.mode === "" || this.session.store.modeOf(traits.run, step)?.mode === mode)
          .map((step) => main.frames.frames.get(step) as Frame)
      : [];
    this.frames = loaded.filter((frame) => frame.histograms.has(this.key));
    this.notFinite = notFiniteRanges(
      loaded.map((frame) => frame.step),
      (i) => notFiniteKind(loaded[i]),
    );
    this.finite = this.frames.some((frame) => finiteness(frame).finite > 0);
    this.domain = main ? histogramDomain(main.frames, this.key) : [0, 1];
  }
}
