// @vitest-environment node
/** Work that an explorer of very many tensors or steps does, counted: it follows what has changed and what is seen. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { Store } from "../src/data/store";
import { SurveyBlock, Surveys } from "../src/data/survey";
import { LineMaker, StepBins, WholeRows } from "../src/data/survey-lines";
import { Summaries } from "../src/data/survey-summary";
import { envelope } from "../src/draw/lanes";
import { MapModel, type MapRow } from "../src/lib/map-rows";
import { StepAxis } from "../src/lib/step-axis";
import { DEFAULTS } from "../src/protocol/types";
import { complete } from "../src/query/complete";
import { tensorWords } from "../src/query/tensors";
import { neededSurvey } from "../src/session/needs";
import type { Scene } from "../src/session/scene";
import type { Session } from "../src/session/session";
import { noise } from "./map-noise";
import { surveyPacket } from "./packets";

afterEach(() => vi.restoreAllMocks());

const PARTS = ["attn.q", "attn.k", "mlp.up", "mlp.down", "norm"];
/** As a kernel sorts them: gradients before weights, in natural order. */
const namesOf = (layers: number) =>
  ["gradient/", ""].flatMap((start) =>
    Array.from({ length: layers }, (_, layer) =>
      PARTS.map((part) => `${start}model.layers.${layer}.${part}.weight`),
    ).flat(),
  );
/** The list, and how often its entries were read. */
function counted<T>(list: T[]): { list: T[]; reads: () => number } {
  let reads = 0;
  const get = (target: T[], key: string | symbol) => {
    if (typeof key === "string" && /^\d/.test(key)) reads++;
    return Reflect.get(target, key);
  };
  return { list: new Proxy(list, { get }), reads: () => reads };
}
const described = (rows: readonly MapRow[]) =>
  rows.map(({ key, label, letter, tensors }) => [key, label, letter, tensors]);

describe("names that arrive in parts", () => {
  const experts = Array.from({ length: 80 }, (_, i) => [
    `model.layers.3.experts.${i}.w1`,
    `model.layers.3.router.${i}`,
  ]).flat();
  const names = [...namesOf(30), ...experts, "loss", "head.weight"];
  const collections = new Map([
    ["weights", names.flatMap((name, i) => (name.startsWith("model") ? [i] : []))],
    ["losses", [names.indexOf("loss")]],
  ]);

  test("give the same rows as names that come at once", () => {
    const whole = new MapModel(names, collections);
    const unfolded = new Set(whole.foldable);
    for (const size of [1, 7, 100, 333]) {
      const list: string[] = [];
      const parts = new MapModel(list, collections);
      for (let at = 0; at < names.length; at += size) {
        list.push(...names.slice(at, at + size));
        parts.extend();
        parts.rows(new Set(parts.foldable));
      }
      parts.extend();
      expect(parts.order).toEqual(whole.order);
      expect(described(parts.rows(unfolded))).toEqual(described(whole.rows(unfolded)));
      expect(described(parts.flatRows(parts.order))).toEqual(described(whole.flatRows(whole.order)));
    }
  });

  test("are read once", () => {
    const { list, reads } = counted<string>([]);
    const model = new MapModel(list, new Map());
    const all = namesOf(1000);
    for (let at = 0; at < all.length; at += 500) {
      list.push(...all.slice(at, at + 500));
      model.extend();
      expect(model.order).toHaveLength(list.length);
    }
    expect(reads()).toBeLessThan(4 * all.length);
    const before = reads();
    expect(model.rows(new Set())).toHaveLength(1000);
    expect(model.flatRows(model.order)).toHaveLength(all.length);
    expect(model.indexOf(all[123] as string)).toBe(123);
    expect(reads()).toBe(before);
  });
});

const TENSORS = 2000;
const STEPS = Float64Array.from({ length: 64 }, (_, i) => i);

function survey() {
  const random = noise(5);
  const store = new Store({ surveys: new Surveys() });
  const tensors = Array.from({ length: TENSORS }, (_, i) => i);
  const values = tensors.map(() => Array.from({ length: 64 }, () => random()));
  store.addPackets([surveyPacket(tensors, values, { poster: true, append: false })]);
  const found = store.surveys.find(0, "", "", "surprise");
  if (!found) throw new Error("no survey");
  return { store, tensors, survey: found, random };
}

test("bins that arrive are summarised alone", () => {
  const { store, survey: of, random } = survey();
  const read = vi.spyOn(SurveyBlock.prototype, "reader");
  const summaries = new Summaries();
  const first = summaries.of(of, TENSORS);
  expect(read).toHaveBeenCalledTimes(TENSORS);
  expect(summaries.of(of, TENSORS)).toBe(first);
  store.addPackets([surveyPacket([3, 9], [Array.from({ length: 32 }, () => 20), Array.from({ length: 32 }, random)])]);
  const second = summaries.of(of, TENSORS);
  expect(second).not.toBe(first);
  expect(read).toHaveBeenCalledTimes(TENSORS + 2);
  expect(second).toEqual(new Summaries().of(of, TENSORS));
});

test("a row of many tensors is merged once, whatever part of the axis is seen", () => {
  const { store, tensors, survey: of } = survey();
  const read = vi.spyOn(SurveyBlock.prototype, "reader");
  const whole = new WholeRows();
  const line = (from: number, to: number, shared?: WholeRows) =>
    new LineMaker(store.surveys, of, new StepBins(STEPS, from, to, 100), 1, 2, shared).make(tensors);
  whole.update(store.surveys, of, STEPS, 2);
  const all = line(-0.5, 63.5, whole);
  const reads = read.mock.calls.length;
  const zoomed = line(20, 30, whole);
  whole.update(store.surveys, of, STEPS, 2);
  line(50, 63.5, whole);
  expect(read).toHaveBeenCalledTimes(reads);
  expect(all).toEqual(line(-0.5, 63.5));
  expect(zoomed).toEqual(line(20, 30));
  store.addPackets([surveyPacket([3], [Array.from({ length: 64 }, () => 20)])]);
  whole.update(store.surveys, of, STEPS, 2);
  expect(line(20, 30, whole)).toEqual(line(20, 30));
});

test("bins are requested for some of the tensors in view, and not for more than can be held", () => {
  const { store, survey: of } = survey();
  const covers = vi.spyOn(of, "covers");
  const needed = (count: number) => {
    const tensors = Array.from({ length: count }, (_, i) => i);
    const run = { names: Array(100_000), steps: Float64Array.from({ length: 1000 }, (_, i) => i) };
    const scene = { traits: { ...DEFAULTS, map_stat: "surprise" }, run } as unknown as Scene;
    return neededSurvey(scene, { tensors, from: 0, to: 1000, level: 0 }, { store } as unknown as Session);
  };
  const some = needed(2000)?.request.tensors.length as number;
  expect(some).toBeGreaterThan(100);
  expect(some).toBeLessThan(1000);
  expect(covers.mock.calls.length).toBeLessThanOrEqual(some);
  expect(needed(100_000)).toBeUndefined();
  expect(covers.mock.calls.length).toBeLessThanOrEqual(some);
});

test("suggestions look at some of very many names", () => {
  const { list, reads } = counted(namesOf(10_000));
  const subject = { words: tensorWords([]), names: list, note: () => "" };
  const { options } = complete("", 0, subject);
  expect(options.find(({ label }) => label === "weight")?.note).toBe("\u2248 100000");
  expect(reads()).toBeLessThan(10_000);
});

test("a curve of very many steps is read where it is in view", () => {
  const { list: x, reads } = counted(Array.from({ length: 100_000 }, (_, i) => i));
  const axis = new StepAxis(500.5, 520.5, 0, 200);
  expect(envelope({ x, y: x }, axis).mid).toEqual(Array.from({ length: 22 }, (_, i) => 500 + i));
  expect(reads()).toBeLessThan(200);
});
