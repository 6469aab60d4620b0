import { type Frame, nearestIndex } from "../../data/frames";
import { drawRidge, drawStrip, type HistoryPicture, layoutHistory, stepAt, stripPixels } from "../../draw/history";
import { notFiniteText } from "../../draw/not-finite";
import type { Pixels } from "../../draw/pen";
import { defined } from "../../lib/defined";
import { Segments } from "../../lib/dom";
import { count, num, plural, truncate } from "../../lib/format";
import { Memo } from "../../lib/memo";
import { table } from "../../lib/palette";
import { pythonValue } from "../../session/python-code";
import type { Scene } from "../../session/scene";
import { emptyReason, notFiniteCounts } from "../common/frame-text";
import { HistogramHistory } from "../common/histogram-history";
import { PicturePanel, type Rows } from "../common/panel";
import type { Context } from "../common/part";

/** Histograms of all saved steps. */
export class HistoryPanel extends PicturePanel {
  readonly #kind: Segments<"strip" | "ridge">;
  #picture: HistoryPicture | undefined;
  #ridge = false;
  #scene: Scene | undefined;
  readonly #history: HistogramHistory;
  #pixels: Pixels | undefined;
  readonly #pixelsMemo = new Memo();

  constructor(context: Context) {
    super("history", "Histograms over steps", context);
    const { signal, session } = context;
    this.#history = new HistogramHistory(session);
    this.#kind = new Segments<"strip" | "ridge">(
      "Plot type",
      [
        ["strip", "Strip"],
        ["ridge", "Ridge"],
      ],
      (history) => session.state.set({ history }),
      signal,
    );
    this.tools.append(this.#kind.el);
    this.exports(true, () => ({
      name: `${this.#scene?.traits.tensor}-histograms`,
      units: "values over steps, coloured by share of elements",
      rows: () => this.#rows(),
      python: () => pythonValue(session, this.#scene?.main),
    }));
    const step = (x: number, y: number) => {
      const layout = this.#picture && layoutHistory(this.#picture, this.figure.size, this.#ridge);
      if (!layout) return undefined;
      const at = nearestIndex(
        this.#history.frames.map((frame) => frame.step),
        stepAt(layout, this.#ridge, x, y),
      );
      return this.#history.frames[at]?.step;
    };
    this.goesToSteps(step);
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main, axis } = scene;
    const { theme } = this.context;
    this.#ridge = traits.history === "ridge";
    this.#kind.update(traits.history);
    this.note(undefined);
    const history = this.#history;
    history.update(scene);
    const ends = [axis.steps[0] ?? 0, axis.steps[axis.steps.length - 1] ?? 1] as [number, number];
    const colours = theme();
    const picture: HistoryPicture = {
      frames: history.finite ? history.frames : [],
      notFinite: history.notFinite,
      key: history.key,
      domain: history.domain,
      range: traits.range.length === 2 ? (traits.range as [number, number]) : ends,
      step: scene.step,
      table: table("density", colours.dark),
      label: (step) => count(step),
      version: history.version,
      emptyMessage: history.frames.length ? "No finite values" : emptyReason(scene, "histogram"),
    };
    this.#picture = picture;
    const layout = layoutHistory(picture, this.figure.size, false);
    const { width, height } = this.figure.size;
    const inputs = [history.version, width, height, colours.dark, picture.range];
    if (!this.#ridge && layout && this.#pixelsMemo.changed(inputs)) this.#pixels = stripPixels(picture, layout);
    const pixels = this.#pixels;
    const ridge = this.#ridge;
    this.figure.paint(
      (pen, size, paint) =>
        ridge ? drawRidge(pen, size, paint, picture) : drawStrip(pen, size, paint, picture, pixels),
      colours,
    );
    const shown = this.hovered === undefined ? undefined : main?.frames.frames.get(this.hovered);
    this.readout(shown ? `step ${count(shown.step)}   ${range(shown)}` : this.#loaded(main?.frames.steps.length ?? 0));
    const first = this.#history.frames[0];
    const last = this.#history.frames.at(-1);
    const onset = notFiniteText(this.#history.notFinite);
    const description = `Histograms of ${truncate(traits.tensor, 80)} over ${plural(this.#history.frames.length, "step")}. ${onset && `${onset}. `}${first && last ? `At step ${first.step}: ${range(first)}. At step ${last.step}: ${range(last)}.` : ""}`;
    this.figure.describe(description);
    this.summary(description);
  }

  #loaded(saved: number): string {
    const loaded = plural(this.#history.frames.length, "step");
    const text = saved > this.#history.frames.length ? `${loaded} loaded, ${count(saved)} saved` : `${loaded} loaded`;
    return [text, notFiniteText(this.#history.notFinite)].filter(Boolean).join(" \u00b7 ");
  }

  #rows(): Rows | undefined {
    const picture = this.#picture;
    if (!picture?.frames.length) return undefined;
    const rows: Rows = [["step", "from", "to", "count"]];
    for (const frame of picture.frames) {
      const hist = frame.histograms.get(picture.key);
      for (const [i, n] of hist?.counts.entries() ?? [])
        rows.push([frame.step, defined(hist?.edges[i]), defined(hist?.edges[i + 1]), n]);
    }
    return rows;
  }
}

function range(frame: Frame): string {
  return [percentiles(frame), ...notFiniteCounts(frame)].filter(Boolean).join("   ");
}

function percentiles(frame: Frame): string {
  const p = frame.percentiles;
  const at = (q: number) => p?.values[p.q.indexOf(q)];
  const [lo, mid, hi] = [at(5), at(50), at(95)];
  if (lo !== undefined && mid !== undefined && hi !== undefined)
    return `5% ${num(lo)}   median ${num(mid)}   95% ${num(hi)}`;
  return frame.stats ? `min ${num(defined(frame.stats[0]))}   max ${num(defined(frame.stats[1]))}` : "";
}
