// @vitest-environment node
import { expect, test } from "vitest";
import { Store } from "../src/data/store";
import { codeValue, FLAG, Surveys } from "../src/data/survey";
import { Summaries } from "../src/data/survey-summary";
import { noise } from "./map-noise";
import { surveyPacket } from "./packets";

test("a summary has the worst value, all flags and the onset of each tensor, also after bins were appended", () => {
  const random = noise(3);
  const calm = Array.from({ length: 64 }, () => random() * 0.8);
  const loud = calm.map((value, i) => (i >= 40 && i < 44 ? -9 - (i % 2) : value));
  const store = new Store({ surveys: new Surveys() });
  const jump = Uint8Array.from(calm, (_, i) => (i >= 40 && i < 44 ? FLAG.sudden : 0));
  const flag = [jump, Uint8Array.from(calm, (_, i) => (i === 50 ? FLAG.infinite : 0))];
  store.addPackets([surveyPacket([2, 0], [loud, calm], { flag })]);
  const summaries = new Summaries();
  const of = () => summaries.of(store.surveys.find(0, "", "", "surprise"), 3);
  const first = of();
  expect(codeValue("surprise", first.code[2] as number)).toBeCloseTo(-10, 1);
  expect([...first.sudden]).toEqual([Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 40]);
  expect([...first.notFinite]).toEqual([50, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]);
  expect([...first.flag]).toEqual([FLAG.infinite, 0, FLAG.sudden]);
  expect([...first.score].map((score) => score >= 0)).toEqual([true, false, true]);
  store.addPackets([surveyPacket([0], [[30]], { first: 64, flag: [[FLAG.sudden]] })]);
  expect(codeValue("surprise", of().code[0] as number)).toBeCloseTo(30, 1);
  expect(of().sudden[0]).toBe(64);
});
