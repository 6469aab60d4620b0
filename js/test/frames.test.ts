import { describe, expect, test } from "vitest";
import { catalog, packetsOf, truth } from "../demo/recorded";
import {
  type Image,
  imageKey,
  imageValue,
  lastAtOrBefore,
  nearestIndex,
  pixelText,
  statistic,
} from "../src/data/frames";
import { resolveAxes, resolveFixed } from "../src/data/matrix";
import { firedSteps, Store } from "../src/data/store";
import { colourPixels } from "../src/draw/heatmap";
import { table } from "../src/lib/palette";
import { decode, encode } from "../src/protocol/packet";
import type { CatalogHead, FramesHead } from "../src/protocol/types";
import { sliceText } from "../src/session/python-code";
import { resolveStep } from "../src/session/scene";
import { rulesPacket, stepsPacket } from "./packets";

const GRADIENT = "gradient/fc3.weight";

describe("frames", () => {
  test("contain the statistics of each step", async () => {
    const store = new Store();
    store.addPackets(await packetsOf({ what: "frames", tensor: GRADIENT }));
    const held = store.frames(0, GRADIENT, "");
    const x = truth(`0/${GRADIENT}/10`);
    const frame = held.frameAt(10);
    expect(statistic(frame, "max")).toBe(x.max);
    expect(statistic(frame, "l1")).toBeCloseTo(x.l1, 9);
    expect([...(frame?.counts ?? [])]).toEqual([x.size, x.nan, x.inf, 0, x.zero]);
    const hist = frame?.histograms.get("linear/shared");
    expect((hist?.counts.reduce((a, b) => a + b, 0) ?? 0) + (hist?.below ?? 0) + (hist?.above ?? 0)).toBe(x.size);
    const image = frame?.images.get(imageKey([0, 1], [0, 0], "maxabs")) as Image;
    const step = (image.hi - image.lo) / 252;
    expect(Math.abs(imageValue(image, 5) - (x.cells["0, 5"] as number))).toBeLessThanOrEqual(step);
    expect(held.steps.length).toBe(121);
    expect(held.loadedSteps().length).toBe(121);
  });

  test("a step that is not loaded is replaced by the latest earlier loaded one", () => {
    const store = new Store();
    const head: FramesHead = { kind: "frames", run: 0, tensor: "t", worker: "", edition: 1, errors: {} };
    store.addPackets([encode(head, { step: ["f8", [2], [0, 40]] })]);
    expect(store.frames(0, "t", "").frameAt(30)?.step).toBe(0);
    expect(store.frames(0, "t", "").frameAt(1000)?.step).toBe(40);
  });

  test("say of which steps only a sample was kept", () => {
    const store = new Store();
    const head: FramesHead = { kind: "frames", run: 0, tensor: "t", worker: "", edition: 1, errors: {} };
    store.addPackets([encode(head, { step: ["f8", [2], [0, 40]], sampled: ["f8", [2, 2], [0, 0, 4096, 1]] })]);
    const held = store.frames(0, "t", "");
    expect(held.frameAt(0)?.sampled).toBeUndefined();
    expect(held.frameAt(40)?.sampled).toEqual({ elements: 4096, estimated: true });
  });

  test("a step without an image has none beside steps that have one", () => {
    const store = new Store();
    const image = { axes: [0, 1], fixed: [], pool: "maxabs" as const, rows: 1, cols: 1 };
    const head: FramesHead = { kind: "frames", run: 0, tensor: "t", worker: "", edition: 1, errors: {}, image };
    const none = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
    store.addPackets([
      encode(head, {
        step: ["f8", [3], [0, 1, 2]],
        image: ["u1", [3, 1, 1], [7, 0, 255]],
        image_range: ["f8", [3, 2], [0, 1, ...none, Number.NaN, Number.NaN]],
      }),
    ]);
    const held = store.frames(0, "t", "");
    expect([0, 1, 2].map((step) => held.frames.get(step)?.images.size)).toEqual([1, 0, 1]);
  });

  test("a lower edition does not replace a higher one", () => {
    const store = new Store();
    const head = (edition: number): FramesHead => ({
      kind: "frames",
      run: 0,
      tensor: "t",
      worker: "",
      edition,
      errors: {},
      hist: { scale: "linear", edges: "shared" },
    });
    const send = (edition: number, count: number) =>
      store.addPackets([
        encode(head(edition), { step: ["f8", [1], [5]], edges: ["f8", [2], [0, 1]], hist: ["u4", [1, 1], [count]] }),
      ]);
    send(1, 7);
    send(0, 3);
    expect(store.frames(0, "t", "").frameAt(5)?.histograms.get("linear/shared")?.counts[0]).toBe(7);
    send(1, 8);
    expect(store.frames(0, "t", "").frameAt(5)?.histograms.get("linear/shared")?.counts[0]).toBe(8);
  });

  test("a logged image has four bytes per pixel and is drawn unchanged", () => {
    const store = new Store();
    const head: FramesHead = {
      kind: "frames",
      run: 0,
      tensor: "samples",
      worker: "",
      edition: 1,
      errors: {},
      image: { axes: [0, 1], fixed: [0, 0, 0], pool: "maxabs", rows: 1, cols: 2 },
    };
    const pixels = [1, 2, 3, 255, 9, 9, 9, 128];
    store.addPackets([
      encode(head, {
        step: ["f8", [1], [5]],
        image: ["u1", [1, 1, 2, 4], pixels],
        image_range: ["f8", [1, 2], [Number.NaN, Number.NaN]],
      }),
    ]);
    const image = store
      .frames(0, "samples", "")
      .frameAt(5)
      ?.images.get(imageKey([0, 1], [0, 0, 0], "maxabs")) as Image;
    expect([image.rgba, image.height, image.width]).toEqual([true, 1, 2]);
    expect(pixelText(image, 0)).toBe("red 1, green 2, blue 3");
    expect(pixelText(image, 1)).toBe("grey 9, alpha 128");
    expect([...colourPixels(image, table("viridis", false), [0, 1]).data]).toEqual(pixels);
  });

  test("an invalid packet is reported and the others are added", async () => {
    const store = new Store();
    store.addPackets([new ArrayBuffer(20), await catalog()]);
    expect(store.packetError).toMatch(/invalid packet/);
    expect(store.runs.get(0)?.steps.length).toBe(121);
  });

  test("sections that do not match the steps are ignored", () => {
    const store = new Store();
    store.addPackets([
      encode(
        { kind: "frames", run: 0, tensor: "t", worker: "", edition: 0, errors: {} },
        {
          step: ["f8", [2], [1, 2]],
          stats: ["f8", [1, 18], new Float64Array(18)],
          counts: ["f8", [2, 4], new Float64Array(8)],
        },
      ),
    ]);
    expect(store.frames(0, "t", "").frameAt(1)).toMatchObject({ step: 1 });
    expect(store.frames(0, "t", "").frameAt(1)?.stats).toBeUndefined();
  });

  test("image codes decode to NaN, infinities and the range", () => {
    const image = {
      data: Uint8Array.from([255, 253, 254, 0, 252, 126]),
      height: 1,
      width: 6,
      lo: -1,
      hi: 1,
      edition: 0,
    };
    expect([0, 1, 2, 3, 4, 5].map((i) => imageValue(image, i))).toEqual([Number.NaN, -Infinity, Infinity, -1, 1, 0]);
  });
});

describe("a run", () => {
  test("grows by appended steps", () => {
    const store = new Store();
    store.addPackets([stepsPacket(-10, 100, { append: false, tensors: ["a", "b"] })]);
    store.addPackets([stepsPacket(100, 200)]);
    const run = store.runs.get(0);
    expect(run?.steps.length).toBe(21);
    expect(run?.names).toHaveLength(2);
    expect(store.modeOf(0, 190)).toEqual({ mode: 2, modeStep: 10 });
  });

  test("has one axis per mode, numbered by mode steps", async () => {
    const store = new Store();
    store.addPackets([await catalog()]);
    const axis = store.axis(0, "EVAL");
    expect([...axis.steps].slice(0, 3)).toEqual([90, 190, 290]);
    expect([...axis.labels].slice(0, 3)).toEqual([0, 10, 20]);
    expect(resolveStep(axis, -1)).toBe(1190);
    expect(resolveStep(axis, 250)).toBe(190);
    expect(resolveStep(store.axis(3, ""), 1)).toBeNaN();
  });

  test("a rules packet adds outcomes and findings, and a restart clears them", async () => {
    const store = new Store();
    store.addPackets(await packetsOf({ what: "hello" }));
    expect(store.rules.get("0/ExplodingTensor")?.outcomes.get(700)).toBe(2);
    expect(store.rules.get("0/ExplodingTensor")?.findings.get(720)?.[0]?.message).toMatch(/holds NaN/);
    const info = store.rules.get("0/ExplodingTensor")?.info;
    if (!info) throw new Error("no rule");
    store.addPackets([encode({ kind: "rules", append: true, rules: [{ ...info, firings: [], restarted: true }] })]);
    expect(store.rules.get("0/ExplodingTensor")?.outcomes.size).toBe(0);
    expect(store.rules.size).toBe(4);
  });
});

test("step lookup", () => {
  expect([-1, 0, 4, 5, 9, 100].map((x) => lastAtOrBefore([0, 5, 10], x))).toEqual([-1, 0, 0, 1, 1, 2]);
  expect([-9, 2, 3, 8, 99].map((x) => nearestIndex([0, 5, 10], x))).toEqual([0, 0, 1, 2, 2]);
  expect(nearestIndex([], 3)).toBe(-1);
});

test("invalid axes and indices default to the last two axes and zeros", () => {
  expect(resolveAxes([], 4)).toEqual([2, 3]);
  expect(resolveAxes([1, 1], 3)).toEqual([1, 2]);
  expect(resolveAxes([2, 0], 3)).toEqual([2, 0]);
  expect(resolveAxes([0, 1], 1)).toEqual([0]);
  expect(resolveAxes([], 0)).toEqual([]);
  expect(resolveAxes([], 3, "image")).toEqual([0, 1]);
  expect(resolveAxes([1, 2], 3, "image")).toEqual([1, 2]);
  expect(resolveAxes([], 2, "image")).toEqual([0, 1]);
  expect(resolveFixed([9, 0, 0], [4, 5, 6])).toEqual([3, 0, 0]);
  expect(resolveFixed([1], [4, 5])).toEqual([0, 0]);
});

test("the slice in view as Python code", () => {
  expect(sliceText(4, [2, 3], [1, 2, 0, 0])).toBe("[1, 2]");
  expect(sliceText(2, [0, 1], [0, 0], [3, 9, 0, 4])).toBe("[3:9, 0:4]");
  expect(sliceText(3, [2, 1], [5, 0, 0])).toBe("[5].T");
  expect(sliceText(1, [0], [0])).toBe("");
});

test("a run that was started again replaces what was loaded of the earlier one", async () => {
  const store = new Store();
  const again = (buffer: ArrayBuffer, restarted_at: number | null) => {
    const { head, arrays } = decode(buffer);
    store.addPacket({ head: { ...head, restarted_at } as CatalogHead, arrays });
  };
  again(await catalog(0), null);
  again(await catalog(1), null);
  const head: FramesHead = { kind: "frames", run: 0, tensor: "fc1.weight", worker: "", edition: 1, errors: {} };
  store.addPackets([0, 1].map((run) => encode({ ...head, run }, { step: ["f8", [1], [0]] })));
  again(stepsPacket(1200, 1210), null);
  expect(store.findFrames(0, "fc1.weight", "")).toBeDefined();
  again(stepsPacket(-10, 50, { append: false }), 1.7e9);
  expect(store.findFrames(0, "fc1.weight", "")).toBeUndefined();
  expect(store.findFrames(1, "fc1.weight", "")).toBeDefined();
  expect([...(store.runs.get(0)?.steps ?? [])]).toEqual([0, 10, 20, 30, 40, 50]);
  expect(store.restarts).toBe(1);
});

test("incidents stay until a packet replaces them or the run is started again", () => {
  const store = new Store();
  const texts = () => store.runs.get(0)?.incidents.map((incident) => incident.text);
  const one = { step: 10, text: "Incident at step 10: NaN in 'w'" };
  store.addPackets([stepsPacket(-10, 20, { append: false })]);
  expect(texts()).toEqual([]);
  store.addPackets([stepsPacket(20, 20, { incidents: [one] }), stepsPacket(20, 30)]);
  expect(texts()).toEqual([one.text]);
  store.addPackets([stepsPacket(30, 30, { incidents: [one, { step: 30, text: "Incident at step 30: SIGUSR1" }] })]);
  expect(texts()).toEqual([one.text, "Incident at step 30: SIGUSR1"]);
  store.addPackets([stepsPacket(-10, 20, { append: false, restarted_at: 1.7e9 })]);
  expect(texts()).toEqual([]);
});

test("fired steps are those of one run", () => {
  const store = new Store();
  const other = { info: { id: "1/Overfit", run: 1 }, outcomes: { 100: 1, 200: 2 } };
  store.addPackets([rulesPacket([{ outcomes: { 100: 2, 200: 1 } }, other])]);
  const fired = (run: number) => [...firedSteps(store.rulesOf(run))];
  expect([fired(0), fired(1)]).toEqual([[100], [200]]);
  store.addPackets([rulesPacket([other])]);
  store.addPackets([rulesPacket([{ outcomes: { 300: 2 } }, other])]);
  expect([fired(0), fired(1)]).toEqual([[300], [200]]);
});
