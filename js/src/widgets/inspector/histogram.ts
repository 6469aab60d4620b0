import {
  availableHistogramKey,
  type Frame,
  type Histogram,
  histogramDomain,
  histogramRequest,
  sameBins,
} from "../../data/frames";
import { binAt, drawHistogram, type HistogramPicture, layoutHistogram } from "../../draw/histogram";
import { defined } from "../../lib/defined";
import { field, Segments, Select, Toggle } from "../../lib/dom";
import { count, num, percent, plural, truncate } from "../../lib/format";
import type { HistogramScale } from "../../protocol/types";
import { framesSlot } from "../../session/connection";
import { pythonValue } from "../../session/python-code";
import type { Scene } from "../../session/scene";
import { describeFrame, emptyReason, frameSummary, sampleText } from "../common/frame-text";
import { PicturePanel, type Rows } from "../common/panel";
import type { Context } from "../common/part";
import { ComparisonLegend, comparisonColours } from "../compare/legend";

const SCALES = [
  ["linear", "Linear"],
  ["symlog", "Symlog"],
  ["log", "Log |x|"],
] as const;

function largestCount(hist: Histogram | undefined): number {
  let top = 0;
  if (hist) for (const n of hist.counts) if (n > top) top = n;
  return top;
}

/** Which of the bars are estimates, and from what. */
function sourceText({ main, compared }: Scene): string {
  const [a, b] = [sampleText(main?.frame), sampleText(compared?.frame)];
  if (!compared) return a;
  return a === b ? a && `both ${a}` : [a && `A ${a}`, b && `B ${b}`].filter(Boolean).join(" \u00b7 ");
}

export class HistogramPanel extends PicturePanel {
  readonly #scale: Segments<HistogramScale>;
  readonly #bins: Select;
  readonly #log: Toggle;
  readonly #legend = new ComparisonLegend();
  #picture: HistogramPicture | undefined;
  #scene: Scene | undefined;
  #hover = -1;

  constructor(context: Context) {
    super("histogram", "Histogram", context);
    const { signal, session } = context;
    this.#scale = new Segments<HistogramScale>(
      "Value axis",
      SCALES,
      (hist_scale) => session.state.set({ hist_scale }),
      signal,
    );
    this.#log = new Toggle("Log counts", (log_counts) => session.state.set({ log_counts }), signal);
    this.#bins = new Select("Bins", (value) => session.state.set({ hist_bins: value as "shared" | "own" }), signal);
    this.tools.append(this.#scale.el, this.#log.el);
    this.menu.append(field("Bins", this.#bins.el));
    this.body.append(this.#legend.el);
    this.exports(true, () => ({
      name: `${this.#scene?.traits.tensor}-histogram-step-${this.#scene?.main?.savedStep}`,
      units: "number of elements by value",
      rows: () => this.#rows(),
      python: () => pythonValue(session, this.#scene?.main),
    }));
    this.figure.gestures(
      {
        move: (at) => {
          const layout = this.#picture && layoutHistogram(this.#picture, this.figure.size);
          const hover = at && layout && this.#picture?.hist ? binAt(layout, this.#picture.hist, at.x) : -1;
          if (hover !== this.#hover) {
            this.#hover = hover;
            context.redraw();
          }
        },
        down: (start) => {
          const layout = this.#picture && layoutHistogram(this.#picture, this.figure.size);
          if (!layout) return undefined;
          return (at, done) => {
            if (Math.abs(at.x - start.x) < 4) {
              if (done) session.state.set({ selection: {} });
              return;
            }
            const ends = [start.x, at.x]
              .map((x) => layout.x.invert(Math.max(layout.box.x, Math.min(layout.box.x + layout.box.width, x))))
              .sort((a, b) => a - b);
            session.state.set({ selection: { kind: "bins", range: ends as [number, number] } });
          };
        },
      },
      signal,
    );
  }

  update(scene: Scene): void {
    this.#scene = scene;
    const { traits, main, compared } = scene;
    const { session, theme } = this.context;
    this.#scale.update(traits.hist_scale);
    this.#log.update(traits.log_counts);
    const comparing = Object.keys(traits.compare).length > 0;
    this.#bins.update(
      comparing
        ? [["shared", "Shared"]]
        : [
            ["shared", "Shared"],
            ["own", "Per step"],
          ],
      comparing ? "shared" : traits.hist_bins,
    );
    this.#bins.el.disabled = comparing;
    this.note(
      session.connection.requests.get(framesSlot("main")) ?? session.connection.requests.get(framesSlot("compare")),
    );
    const wanted = histogramRequest(traits);
    const keys = [main, compared].map((shown) => availableHistogramKey(shown?.frame, wanted));
    const [hist, second] = [main, compared].map((shown, i) =>
      shown?.frame?.counts?.[0] === 0 ? undefined : shown?.frame?.histograms.get(keys[i] as string),
    );
    const shared = wanted.edges === "shared";
    const tops = [main, compared].map((shown, i) =>
      !shown
        ? 0
        : shared
          ? shown.frames.range(`top/${keys[i]}`, (frame) => [largestCount(frame.histograms.get(keys[i] as string))])[1]
          : largestCount([hist, second][i]),
    );
    const domains = [main, compared].map((shown, i) => {
      const own = [hist, second][i];
      if (!shown || !own) return [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY] as const;
      return shared
        ? histogramDomain(shown.frames, keys[i] as string)
        : ([defined(own.edges[0]), defined(own.edges[own.edges.length - 1])] as const);
    });
    const [colour, comparedColour] = comparisonColours(scene, session.store, theme());
    this.#legend.update(scene, session.store, theme());
    this.title(compared ? "Values: A above, B below" : "Histogram");
    const picture: HistogramPicture = {
      hist,
      frame: main?.frame,
      compared: second,
      comparedFrame: compared?.frame,
      mirrored: compared !== undefined,
      domain: [Math.min(...domains.map((d) => d[0])), Math.max(...domains.map((d) => d[1]))],
      top: Math.max(...tops.filter(Number.isFinite), 1),
      logCounts: traits.log_counts,
      hover: this.#hover,
      source: sourceText(scene),
      marked: traits.selection.kind === "bins" ? traits.selection.range : [],
      colour,
      comparedColour,
      emptyMessage: emptyReason(scene, "histogram"),
    };
    this.#picture = picture;
    this.figure.paint((pen, size, colours) => drawHistogram(pen, size, colours, picture), theme());
    this.readout(this.#readoutText(hist, main?.frame));
    const description = `Histogram of ${truncate(traits.tensor, 80)} at step ${main?.frame?.step ?? "none"}. ${describeFrame(main?.frame)}`;
    this.figure.describe(description);
    this.summary(description);
  }

  #readoutText(hist: Histogram | undefined, frame: Frame | undefined): string {
    if (!hist) return "";
    const i = this.#hover;
    if (i >= 0 && i < hist.counts.length) {
      const n = defined(hist.counts[i]);
      const total = frame?.counts?.[0] ?? 0;
      const closed = i === hist.counts.length - 1 ? "]" : ")";
      const compared = this.#picture?.compared;
      const second = sameBins(hist, compared) ? compared?.counts[i] : undefined;
      return `[${num(defined(hist.edges[i]))}, ${num(defined(hist.edges[i + 1]))}${closed}  ${frame?.sampled ? "about " : ""}${plural(n, "value")}, ${percent(total ? n / total : Number.NaN)}${second === undefined ? "" : `  \u00b7  B ${count(second)}`}`;
    }
    return frameSummary(frame);
  }

  #rows(): Rows | undefined {
    const hist = this.#picture?.hist;
    if (!hist) return undefined;
    const second = this.#picture?.compared;
    const same = second?.counts.length === hist.counts.length;
    const rows: Rows = [["from", "to", "count", ...(same ? ["compared_from", "compared_to", "compared_count"] : [])]];
    hist.counts.forEach((n, i) => {
      const row = [defined(hist.edges[i]), defined(hist.edges[i + 1]), n];
      if (same && second) row.push(defined(second.edges[i]), defined(second.edges[i + 1]), defined(second.counts[i]));
      rows.push(row);
    });
    const counts = this.#picture?.frame?.counts;
    rows.push(["", "below", hist.below], ["", "above", hist.above]);
    for (const [i, name] of ["NaN", "+Inf", "-Inf"].entries()) rows.push(["", name, counts?.[i + 1] ?? 0]);
    return rows;
  }
}
