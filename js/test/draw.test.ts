import { describe, expect, test, vi } from "vitest";
import type { Frame, Histogram } from "../src/data/frames";
import {
  cellAt,
  cellTicks,
  clampWindow,
  colourPixels,
  drawHeatmap,
  layoutHeatmap,
  zoomWindow,
} from "../src/draw/heatmap";
import { binAt, drawHistogram, type HistogramPicture, layoutHistogram } from "../src/draw/histogram";
import {
  drawRidge,
  drawStrip,
  type HistoryPicture,
  layoutHistory,
  ridgeFrames,
  stripPixels,
} from "../src/draw/history";
import { drawLines, extent, type LinesPicture, layoutLines, tracePoints } from "../src/draw/lines";
import { kindOf, notFiniteColour, notFiniteRanges, notFiniteText } from "../src/draw/not-finite";
import { drawOutcomes } from "../src/draw/outcomes";
import { CanvasPen } from "../src/draw/pen";
import { drawStatistics, type StatisticsPicture } from "../src/draw/statistics";
import { SvgPen } from "../src/draw/svg-pen";
import { drawTrack, trackScale } from "../src/draw/timeline";
import { NOT_FINITE } from "../src/lib/colour";
import { table } from "../src/lib/palette";
import { linear } from "../src/lib/scale";
import { theme } from "./theme";

const size = { width: 400, height: 200 };
const pen = () => new SvgPen(size, theme, () => "data:,");
/** Edges from -2 to 2, or of magnitudes up to 2, at shares from 0 to 1. */
const EDGES: Record<Histogram["scale"], (share: number) => number> = {
  linear: (share) => 4 * share - 2,
  log: (share) => 2 * 10 ** (-7 * (1 - share)),
  symlog: (share) => Math.sign(share - 0.5) * 2e-4 * Math.expm1(Math.abs(2 * share - 1) * Math.log1p(1e4)),
};
const values = Float64Array.from({ length: 1000 }, (_, i) => Math.sin(i) * 2);
const hist = (scale: Histogram["scale"] = "linear"): Histogram => {
  const edges = Float64Array.from({ length: 33 }, (_, i) => EDGES[scale](i / 32));
  const counts = new Uint32Array(32);
  for (const value of values) {
    const x = scale === "log" ? Math.abs(value) : value;
    const bin = edges.findLastIndex((edge) => edge <= x);
    if (bin >= 0) counts[Math.min(bin, 31)] = (counts[Math.min(bin, 31)] as number) + 1;
  }
  return { scale, edges, counts, below: 0, above: 0, edition: 0 };
};
const frame = (step: number, h = hist()): Frame => ({
  step,
  histograms: new Map([["k", h]]),
  images: new Map(),
  counts: Float64Array.from([1000, 0, 0, 0, 0]),
});
const picture = (over: Partial<HistogramPicture> = {}): HistogramPicture => ({
  hist: hist(),
  frame: frame(0),
  compared: undefined,
  comparedFrame: undefined,
  mirrored: false,
  domain: [-2, 2],
  top: 100,
  logCounts: false,
  hover: -1,
  source: "",
  marked: [],
  colour: "#06c",
  comparedColour: "#f80",
  emptyMessage: "nothing here",
  ...over,
});

test("a canvas measures a text once in each font", () => {
  const measureText = vi.fn((text: string) => ({ width: 6 * text.length }));
  const context = { canvas: {}, measureText, setTransform: () => {}, clearRect: () => {} };
  const canvas = new CanvasPen(context as unknown as CanvasRenderingContext2D);
  for (let frame = 0; frame < 10; frame++) {
    canvas.begin(400, 200, 1, theme);
    for (const label of ["100", "200"]) expect(canvas.measure(label, { fill: "" })).toBe(18);
  }
  expect(measureText).toHaveBeenCalledTimes(2);
  canvas.measure("100", { fill: "", size: 20 });
  expect(measureText).toHaveBeenCalledTimes(3);
});

describe("histogram", () => {
  test.each(["linear", "symlog", "log"] as const)("binAt finds each bin at its pixels (%s)", (scale) => {
    const h = hist(scale);
    const layout = layoutHistogram(picture({ hist: h, domain: [h.edges[0] as number, h.edges[32] as number] }), size);
    if (!layout) throw new Error("no layout");
    for (let i = 0; i < 32; i++)
      expect(binAt(layout, h, (layout.x(h.edges[i] as number) + layout.x(h.edges[i + 1] as number)) / 2)).toBe(i);
    expect(binAt(layout, h, 0)).toBe(-1);
  });
  test("non-finite counts are drawn beside the bins", () => {
    const p = pen();
    drawHistogram(p, size, theme, picture({ frame: { ...frame(0), counts: Float64Array.from([1000, 170, 3, 0, 0]) } }));
    expect(p.toString()).toContain(">NaN<");
    expect(p.toString()).toContain(">170<");
    expect(p.toString()).toContain(">+Inf<");
    expect(p.toString()).not.toContain("\u2212Inf");
  });
  test("an empty histogram shows the reason", () => {
    const p = pen();
    drawHistogram(p, size, theme, picture({ hist: undefined }));
    expect(p.toString()).toContain("nothing here");
  });
});

describe("histograms over steps", () => {
  const strip = (over: Partial<HistoryPicture> = {}): HistoryPicture => ({
    frames: [frame(0), frame(50), frame(100)],
    notFinite: [],
    key: "k",
    domain: [-2, 2],
    range: [0, 100],
    step: 50,
    table: table("density", false),
    label: String,
    version: "",
    emptyMessage: "none",
    ...over,
  });
  test("a strip column shows the latest step at or before it, darkest at the largest bin", () => {
    const one = hist();
    one.counts.fill(0);
    one.counts[31] = 10;
    const p = strip({ frames: [frame(0), frame(50, one)] });
    const layout = layoutHistory(p, size, false);
    if (!layout) throw new Error("no layout");
    const pixels = stripPixels(p, layout);
    const alpha = (x: number, y: number) => pixels.data[4 * (y * pixels.width + x) + 3];
    expect(alpha(10, pixels.height - 2)).toBe(255);
    expect(alpha(pixels.width - 10, 1)).toBe(255);
    expect(alpha(pixels.width - 10, pixels.height - 2)).toBe(0);
    drawStrip(pen(), size, theme, p, pixels);
  });
  test("the steps with values that are not finite are marked, and the first one is named", () => {
    const colour = notFiniteColour("nan");
    const p = pen();
    const layout = layoutHistory(strip(), size, false);
    if (!layout) throw new Error("no layout");
    const notFinite = notFiniteRanges([0, 50, 100], (i) => (i ? "nan" : undefined));
    drawStrip(p, size, theme, strip({ notFinite }), stripPixels(strip(), layout));
    expect(p.toString()).toContain(">NaN from step 50<");
    expect(p.toString()).toContain(colour);
    const without = pen();
    drawStrip(without, size, theme, strip(), stripPixels(strip(), layout));
    expect(without.toString()).not.toContain(colour);
    const ridge = pen();
    drawRidge(ridge, size, theme, strip({ notFinite }));
    expect(ridge.toString()).toContain(colour);
  });
  test("ranges of steps are split where the kind of value changes", () => {
    const y = [1, Number.NaN, Number.NaN, 2, Infinity, -Infinity];
    const ranges = notFiniteRanges([0, 10, 20, 30, 40, 50], (i) => kindOf(y[i] as number));
    expect(ranges.map(({ kind, first, last }) => [kind, first, last])).toEqual([
      ["nan", 10, 20],
      ["posInf", 40, 40],
      ["negInf", 50, 50],
    ]);
    expect(notFiniteText(ranges)).toBe("NaN at steps 10\u201320");
    expect(notFiniteText(ranges.slice(1))).toBe("+Inf at step 40");
    expect(notFiniteText(ranges.slice(2))).toBe("\u2212Inf from step 50");
  });
  test("a ridge plot shows few outlines, including the current step", () => {
    const frames = Array.from({ length: 500 }, (_, i) => frame(i));
    const shown = ridgeFrames(strip({ frames, step: 333 }), 12);
    expect(shown.length).toBeLessThanOrEqual(13);
    expect(shown.map((each) => each.step)).toContain(333);
    expect([shown[0]?.step, shown.at(-1)?.step]).toEqual([0, 499]);
  });
});

describe("heat map", () => {
  test("the colour map covers the range; NaN and infinities have separate colours", () => {
    const image = {
      data: Float32Array.from([-1, 1, 5, Number.NaN, Infinity, -Infinity]),
      width: 3,
      height: 2,
      lo: 0,
      hi: 0,
      edition: 0,
    };
    const { data } = colourPixels(image, table("viridis", false), [-1, 1]);
    const at = (i: number) => [...data.slice(4 * i, 4 * i + 3)];
    expect(at(0)).toEqual([0x44, 0x01, 0x54]);
    expect(at(1)).toEqual([0xfd, 0xe7, 0x25]);
    expect(at(2)).toEqual(at(1));
    expect([at(3), at(4), at(5)]).toEqual([NOT_FINITE.nan, NOT_FINITE.posInf, NOT_FINITE.negInf]);
  });
  test("statistics of a range of steps are clipped to the plot area", () => {
    const x = Float64Array.from({ length: 100 }, (_, i) => i);
    const picture: StatisticsPicture = {
      rows: [{ name: "mean", curves: [{ x, y: x, colour: "#06c" }], log: false, now: ["7"], written: String }],
      logX: false,
      range: [40, 60],
      cut: true,
      step: 99,
      emptyMessage: "",
    };
    const svg = pen();
    drawStatistics(svg, size, theme, picture);
    const bounds = [
      ...svg.toString().matchAll(/<clipPath id="(\w+)"><rect x="([\d.-]+)" y="[\d.-]+" width="([\d.-]+)"/g),
    ];
    const drawn = [...svg.toString().matchAll(/<g clip-path="url\(#(\w+)\)">(.*?)<\/g>/gs)];
    const curves = drawn.filter(([, , inside]) => inside?.includes("#06c"));
    expect(svg.toString().replaceAll(/<g clip-path.*?<\/g>/gs, "")).not.toContain("#06c");
    for (const [, id] of curves) {
      const [, , left, width] = bounds.find((each) => each[1] === id) as RegExpExecArray;
      expect(Number(left)).toBeGreaterThanOrEqual(100);
      expect(Number(left) + Number(width)).toBeLessThanOrEqual(size.width - 80);
    }
    expect(curves.length).toBeGreaterThan(0);
  });
  test("a narrow matrix keeps a minimum width; an image keeps its aspect ratio", () => {
    const size = { width: 500, height: 260 };
    const of = (rows: number, cols: number, rgba = false) => layoutHeatmap([0, rows, 0, cols], size, rgba);
    expect(of(5000, 3).width).toBe(72);
    expect(of(3, 5000).height).toBe(72);
    expect(of(256, 128).width).toBeCloseTo(of(256, 128).height / 2, 5);
    expect(of(64, 64).width).toBeCloseTo(of(64, 64).height, 5);
    expect(of(256, 48).width).toBe(96);
    expect(of(200, 2, true).width).toBeCloseTo(of(200, 2, true).height / 100, 5);
  });
  test("the colour bar says both ends of the scale, with three digits", () => {
    const paper = pen();
    const image = {
      width: 2,
      height: 2,
      data: Float32Array.from([-0.03712, 0, 0, 0.4126]),
      lo: -0.03712,
      hi: 0.4126,
      edition: 0,
    };
    drawHeatmap(paper, size, theme, {
      layers: [{ pixels: colourPixels(image, table("viridis", false), [-0.03712, 0.4126]), covers: [0, 2, 0, 2] }],
      ...{ window: [0, 2, 0, 2], table: table("viridis", false), domain: [-0.03712, 0.4126] },
      ...{ hover: undefined, marked: undefined, dim: false, emptyMessage: "" },
    });
    const texts = [...paper.toString().matchAll(/<text[^>]*>([^<]*)</g)].map((found) => found[1]);
    expect(texts).toContain("0.413");
    expect(texts).toContain("\u22120.0371");
  });

  test("an axis of cells has labels at both ends, if they fit", () => {
    const room = () => 40;
    expect(cellTicks(0, 90, 70, room)).toEqual([0, 89]);
    expect(cellTicks(0, 90, 30, room)).toEqual([0]);
    expect(cellTicks(0, 1, 300, room)).toEqual([0]);
    expect(cellTicks(0, 2, 80, room)).toEqual([0, 1]);
    expect(cellTicks(0, 1000, 400, room)).toEqual([0, 100, 200, 300, 400, 500, 600, 700, 800, 900]);
    expect(cellTicks(10.5, 20.5, 400, room)[0]).toBeGreaterThanOrEqual(10);
  });
  test("cellAt inverts the layout, zooming keeps the cell under the pointer, windows stay inside", () => {
    const window = [10, 20, 100, 140] as const;
    const box = layoutHeatmap(window, size);
    expect(cellAt(window, box, box.x + 0.1, box.y + 0.1)).toEqual([10, 100]);
    expect(cellAt(window, box, box.x + box.width - 0.1, box.y + box.height - 0.1)).toEqual([19, 139]);
    expect(cellAt(window, box, 0, 0)).toBeUndefined();
    const zoomed = zoomWindow(window, 0.5, [12, 110], 50, 200);
    expect(zoomed).toEqual([11, 16, 105, 125]);
    expect(clampWindow([-5, 5, 190, 230], 50, 200)).toEqual([0, 10, 160, 200]);
    expect(clampWindow([0, 0, 0, 0], 1, 1)).toEqual([0, 1, 0, 1]);
  });
});

describe("lines", () => {
  const curve = { x: [0, 10, 20, 30], y: [1, Number.NaN, 3, -2], colour: "#000" };
  const lines = (over: Partial<LinesPicture> = {}): LinesPicture => ({
    curves: [curve],
    logX: false,
    logY: false,
    range: undefined,
    step: 20,
    marked: [],
    xLabel: "step",
    emptyMessage: "none",
    ...over,
  });
  test("extent ignores non-finite, out-of-range and, on a log axis, non-positive values", () => {
    expect(extent([curve], undefined, false)).toEqual([-2, 3]);
    expect(extent([curve], undefined, true)).toEqual([1, 3]);
    expect(extent([curve], [0, 20], false)).toEqual([1, 3]);
  });
  test("tracePoints reduces a million points and keeps spikes", () => {
    const n = 1_000_000;
    const y = new Float64Array(n).fill(1);
    y[777_777] = 50;
    const scale = linear(0, n, [0, 400]);
    const points = tracePoints(
      { x: Float64Array.from({ length: n }, (_, i) => i), y },
      scale,
      linear(0, 50, [200, 0]),
      false,
      false,
    );
    expect(points.length).toBeLessThan(400 * 10);
    expect(Math.min(...points.filter((_, i) => i % 2))).toBe(0);
  });
  test("curves are drawn with gaps, on linear and log axes, and without data", () => {
    for (const over of [
      {},
      { logY: true },
      { logX: true },
      { curves: [] },
      { range: [10, 20] as [number, number] },
      { curves: [{ ...curve, smooth: [1, 2, 3, 4] }] },
    ]) {
      const p = pen();
      drawLines(p, size, theme, lines(over));
      expect(p.toString()).not.toContain("NaN");
    }
    expect(layoutLines(lines({ curves: [] }), size)).toBeUndefined();
  });
  test("a curve that is not finite is marked from the step on, whatever the axes", () => {
    const notFinite = notFiniteRanges([2, 3], () => "nan" as const);
    for (const over of [{}, { logX: true }, { range: [0, 2] as [number, number] }]) {
      const p = pen();
      drawLines(p, size, theme, lines({ curves: [{ ...curve, notFinite }], ...over }));
      expect(p.toString()).toContain(">NaN from step 2<");
    }
    const outside = pen();
    drawLines(outside, size, theme, lines({ curves: [{ ...curve, notFinite }], range: [0, 1] }));
    expect(outside.toString()).not.toContain("NaN from");
  });
});

describe("timelines", () => {
  test("a track of 100,000 steps draws at most one tick per pixel, and every firing and incident", () => {
    const labels = Float64Array.from({ length: 100_000 }, (_, i) => i);
    const p = pen();
    drawTrack(p, size, theme, {
      labels,
      modes: new Uint8Array(100_000).fill(1),
      state: new Uint8Array(100_000).fill(2),
      fired: [5, 50_000],
      incidents: [50_000, 50_001, 99_999],
      compare: 3,
      hover: 7,
    });
    expect(p.toString().match(/<path/g)?.length).toBeLessThan(420);
    expect(p.toString().match(new RegExp(`fill="${theme.error}"`, "g"))).toHaveLength(2);
    // Two are in one column.
    expect(p.toString().match(new RegExp(`fill="${theme.incident}"`, "g"))).toHaveLength(2);
    expect(trackScale([7], 400)(7)).toBeCloseTo(200, 0);
  });
  test("the most severe outcome of a column is drawn", () => {
    const p = pen();
    drawOutcomes(p, size, theme, {
      outcomes: new Map([
        [50_000, 1],
        [50_001, 2],
        [50_002, 3],
      ]),
      version: 1,
      step: Number.NaN,
      range: [0, 100_000],
    });
    expect(p.toString()).toContain(theme.error);
  });
});

test("SVG escapes text from a run", () => {
  const p = pen();
  p.text(0, 0, `</text><script>alert("1")</script>\u0000\u0007 & '`, { fill: "#000" });
  const parsed = new DOMParser().parseFromString(p.toString(), "image/svg+xml");
  expect(parsed.querySelector("parsererror, script")).toBeNull();
  expect(parsed.querySelector("text")?.textContent).toContain("<script>");
});

describe("axes of time", () => {
  const picture = (over: Partial<LinesPicture>): LinesPicture => ({
    curves: [],
    logX: false,
    logY: false,
    range: undefined,
    step: 0,
    marked: [],
    xLabel: "",
    emptyMessage: "",
    ...over,
  });
  const texts = (over: Partial<LinesPicture>) => {
    const p = pen();
    drawLines(p, size, theme, picture(over));
    return [...p.toString().matchAll(/<text[^>]*>([^<]*)</g)].map(([, text]) => text);
  };
  test.each([
    [10, ["0", "2 s", "4 s", "10 s"]],
    [200, ["0", "1 min", "2 min", "3 min"]],
    [7200, ["0", "30 min", "1 h", "1:30 h", "2 h"]],
    [5 * 86_400, ["0", "1 d", "2 d", "3 d", "4 d", "5 d"]],
  ])("%s seconds have round ticks", (seconds, ticks) => {
    const labels = texts({ axis: "relative", curves: [{ x: [0, seconds], y: [0, 1], colour: "#000" }] });
    expect(labels).toEqual(expect.arrayContaining(ticks));
  });
  test("wall times are those of the browser's time zone", () => {
    const noon = new Date(2026, 0, 5, 12).getTime() / 1000;
    const labels = texts({ axis: "wall", curves: [{ x: [noon, noon + 86_400], y: [0, 1], colour: "#000" }] });
    expect(labels).toEqual(expect.arrayContaining(["18:00", "Jan 6"]));
  });
  test("superseded values are crosses, and the restart has a line", () => {
    const x = Array.from({ length: 40 }, (_, i) => i);
    const y = x.map(() => 1);
    const voided = { x: [10, 11, 30, 31], y: [1, 1, 1, 1] };
    expect(texts({ curves: [{ x, y, colour: "#000", voided }] }).filter((each) => each === "restart")).toHaveLength(2);
    expect(texts({ curves: [{ x, y, colour: "#000" }] })).not.toContain("restart");
  });
});
