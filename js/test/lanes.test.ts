import { describe, expect, test } from "vitest";
import type { Frame } from "../src/data/frames";
import { type HistoryPicture, layoutStripLane, stripPixels } from "../src/draw/history";
import { drawAxis, drawCurve, envelope, firingSegments, type LaneCurve, laneScale, modeBands } from "../src/draw/lanes";
import { SvgPen } from "../src/draw/svg-pen";
import { table } from "../src/lib/palette";
import { makeStepAxis, StepAxis } from "../src/lib/step-axis";
import { theme } from "./theme";

const axis = new StepAxis(-0.5, 99.5, 100, 1100);
const curve = (over: Partial<LaneCurve> = {}): LaneCurve => ({
  x: [0, 1, 2],
  y: [1, 2, 3],
  dots: [],
  notFinite: [],
  logY: false,
  ...over,
});
const outcomes = (steps: Record<number, number>) =>
  new Map(Object.entries(steps).map(([at, code]) => [Number(at), code]));

describe("envelope", () => {
  test("a column of pixels keeps its lowest and highest values and their mean", () => {
    const narrow = new StepAxis(0, 100, 0, 10);
    const x = Array.from({ length: 100 }, (_, i) => i);
    const y = x.map((i) => (i === 55 ? 40 : i === 57 ? -40 : 1));
    const { px, lo, mid, hi } = envelope({ x, y }, narrow);
    expect(px).toHaveLength(10);
    expect([lo[5], hi[5]]).toEqual([-40, 40]);
    expect(mid[5]).toBeCloseTo(0.8);
    expect([lo[4], mid[4], hi[4]]).toEqual([1, 1, 1]);
  });

  test("values that are not finite end a part of the curve", () => {
    const { px } = envelope({ x: [0, 1, 2, 3, 4, 5], y: [1, 1, Number.NaN, Number.NaN, 1, 1] }, axis);
    expect(px.map((at) => (Number.isNaN(at) ? null : Math.round(at)))).toEqual([105, 115, null, 145, 155]);
  });
});

describe("firings", () => {
  test("adjacent judged steps are one segment, whatever steps lie between them", () => {
    // Every 20th step is judged.
    const found = firingSegments(outcomes({ 0: 1, 20: 2, 40: 2, 60: 1, 80: 2 }), axis);
    expect(found.map(({ first, last, share }) => [first, last, share])).toEqual([
      [20, 40, 1],
      [80, 80, 1],
    ]);
  });

  test("segments closer than 3 pixels merge and tell the share of steps that fired", () => {
    const narrow = new StepAxis(0, 1000, 0, 100);
    const every = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [i, i % 4 === 0 ? 2 : 1]));
    const found = firingSegments(outcomes(every), narrow);
    expect(found).toHaveLength(1);
    expect(found[0]?.share).toBeCloseTo(0.25, 2);
    expect(found[0]?.from).toBeLessThanOrEqual(0);
    expect(found[0]?.to).toBeGreaterThanOrEqual(99.6);
  });

  test("a single firing of a long run is at least 3 pixels wide", () => {
    const wide = new StepAxis(0, 100_000, 0, 500);
    const all = Object.fromEntries(Array.from({ length: 1000 }, (_, i) => [i * 100, i === 500 ? 2 : 1]));
    const [only] = firingSegments(outcomes(all), wide);
    expect((only?.to ?? 0) - (only?.from ?? 0)).toBeGreaterThanOrEqual(3);
  });

  test("a rule that did not fire, or judged nothing, has no segment", () => {
    expect(firingSegments(outcomes({ 0: 1, 1: 1 }), axis)).toEqual([]);
    expect(firingSegments(outcomes({ 0: 3, 1: 4 }), axis)).toEqual([]);
    expect(firingSegments(new Map(), axis)).toEqual([]);
  });
});

test("steps of one mode are one band, without gaps between bands", () => {
  const steps = Array.from({ length: 100 }, (_, i) => i);
  const modes = steps.map((step) => (step % 50 >= 40 ? 2 : 1));
  const bands = modeBands(steps, modes, axis);
  expect(bands.map(({ mode }) => mode)).toEqual([1, 2, 1, 2]);
  bands.forEach((band, i) => {
    const next = bands[i + 1];
    if (next) expect(next.from).toBeCloseTo(band.to);
  });
  expect(bands[1]?.from).toBeCloseTo(axis.x(39.5));
});

describe("labels", () => {
  const box = { x: 100, y: 4, width: 1000, height: 39 };
  test.each([[[0.24, 2.3]], [[1e-9, 3e-9]], [[5, 5]], [[-3, 1000]]])("a curve from %j has at least two labels", (y) => {
    const { labels } = laneScale(curve({ x: [0, 1], y }), axis, box);
    expect(labels.length).toBeGreaterThanOrEqual(2);
    for (const { at } of labels) {
      expect(at).toBeGreaterThanOrEqual(box.y - 1);
      expect(at).toBeLessThanOrEqual(box.y + box.height + 1);
    }
  });

  test("only values in view determine the scale", () => {
    const zoomed = new StepAxis(1.5, 2.5, 100, 1100);
    const { y } = laneScale(curve({ x: [0, 2, 2.4], y: [1e6, 1, 2] }), zoomed, box);
    expect(y.domain).toEqual([1, 2]);
  });

  test("numbers of the axis do not overlap each other or the handle, and the last step is named", () => {
    const pen = new SvgPen({ width: 1200, height: 20 }, theme, () => "");
    const steps = Array.from({ length: 100 }, (_, i) => i);
    const covered: [number, number] = [axis.x(50) - 16, axis.x(50) + 16];
    const size = { width: 1200, height: 20 };
    drawAxis(pen, size, theme, { axis, steps, covered, incidents: [], compare: undefined });
    const texts = [...pen.toString().matchAll(/<text x="([\d.]+)"[^>]*>([\d,]+)</g)].map(([, x, text]) => ({
      x: Number(x),
      text: text as string,
    }));
    expect(texts.map(({ text }) => text)).toContain("99");
    expect(texts.map(({ text }) => text)).not.toContain("50");
    const boxes = texts
      .map(({ x, text }) => [x - 3 * text.length, x + 3 * text.length] as const)
      .sort((a, b) => a[0] - b[0]);
    boxes.forEach(([from], i) => {
      if (i) expect(from).toBeGreaterThan((boxes[i - 1] as readonly [number, number])[1]);
    });
  });
});

describe.each([1440, 900, 500])("at %i pixels", (width) => {
  const steps = Float64Array.from({ length: 500 }, (_, i) => i);
  const shared = makeStepAxis([], steps, width);

  test("ten steps are at the same place in the curve, the lanes and the strip", () => {
    const histogram = {
      scale: "linear" as const,
      edges: Float64Array.from([0, 1, 2]),
      counts: Uint32Array.from([1, 1]),
      below: 0,
      above: 0,
      edition: 0,
    };
    const frames = [...steps].map(
      (step): Frame => ({ step, histograms: new Map([["k", histogram]]), images: new Map() }),
    );
    const picture: HistoryPicture = {
      frames,
      notFinite: [],
      key: "k",
      domain: [0, 2],
      range: [shared.from, shared.to],
      step: 0,
      table: table("density", false),
      label: String,
      version: "1",
      emptyMessage: "",
    };
    const box = { x: shared.left, y: 0, width: shared.right - shared.left, height: 40 };
    const strip = layoutStripLane(picture, shared, box);
    expect(strip && stripPixels(picture, strip).width).toBe(Math.round(box.width));
    for (const step of [0, 1, 37, 100, 199, 250, 333, 371, 450, 499]) {
      const x = shared.x(step);
      expect(Math.abs((strip?.x(step) as number) - x)).toBeLessThanOrEqual(0.5);
      const [fired] = firingSegments(
        outcomes(Object.fromEntries([...steps].map((at) => [at, at === step ? 2 : 1]))),
        shared,
      );
      expect(Math.abs(((fired?.from ?? 0) + (fired?.to ?? 0)) / 2 - x)).toBeLessThanOrEqual(0.5);
      const modes = [...steps].map((at) => (at === step ? 2 : 1));
      const band = modeBands(steps, modes, shared).find(({ mode }) => mode === 2);
      expect(Math.abs(((band?.from ?? 0) + (band?.to ?? 0)) / 2 - x)).toBeLessThanOrEqual(0.5);
      const pen = new SvgPen({ width, height: 48 }, theme, () => "");
      drawCurve(pen, theme, curve({ x: [step], y: [1] }), shared, { ...box, height: 39 });
      const dot = /<rect x="([\d.-]+)" y="[\d.-]+" width="3" height="3"/.exec(pen.toString());
      expect(Math.abs(Number(dot?.[1]) + 1.5 - x)).toBeLessThanOrEqual(0.5);
      // Saved steps are found again at their places.
      expect(shared.step(x)).toBeCloseTo(step, 6);
    }
  });
});

test("the curve of B is dashed in its colour, and both fit on one scale", () => {
  const pen = new SvgPen({ width: 1200, height: 60 }, theme, () => "");
  const box = { x: 100, y: 4, width: 1000, height: 40 };
  const both = curve({ compared: { x: [0, 1, 2], y: [1, 2, 9], colour: "#c60", own: "#06c" } });
  drawCurve(pen, theme, both, axis, box);
  const drawn = pen.toString();
  const [dashed] = drawn.match(/<path[^>]*stroke="#c60"[^>]*>/) ?? [];
  expect(dashed).toContain("stroke-dasharray");
  expect(drawn).toMatch(/<path[^>]*stroke="#06c"/);
  expect(laneScale(both, axis, box).y.domain[1]).toBeGreaterThanOrEqual(9);
});
