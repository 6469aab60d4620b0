import { expect, test } from "vitest";
import { codeOf, Surveys } from "../src/data/survey";
import { surveyColumns, surveyEnds, surveyPoints } from "../src/data/survey-columns";
import { decode } from "../src/protocol/packet";
import { surveyPacket } from "./packets";

const NONE = Number.NaN;
function survey(rows: number[][], head: Parameters<typeof surveyPacket>[2] = {}) {
  const surveys = new Surveys();
  const packet = decode(
    surveyPacket(
      rows.map((_, i) => i),
      rows,
      { stat: "size", ...head },
    ),
  );
  if (packet.head.kind !== "survey") throw new Error("no survey");
  surveys.add(packet.head, packet.arrays);
  const found = surveys.find(0, "", "", packet.head.stat);
  if (!found) throw new Error("no survey");
  return found;
}
const ROWS = [
  [1, 1, 1, 1],
  [2, 4, 8, 16],
  [2, 2, 0.1, 2],
  [NONE, 3, NONE, NONE],
  [NONE, NONE, NONE, NONE],
];

test("are those of the values within the precision of the codes", () => {
  const columns = surveyColumns(survey(ROWS), 5);
  const expected = {
    first: [1, 2, 2, 3, NONE],
    last: [1, 16, 2, 3, NONE],
    worst: [1, 16, 0.1, 3, NONE],
    largest: [1, 16, 2, 3, NONE],
    change: [1, 8, 20, 1, NONE],
  };
  for (const [name, values] of Object.entries(expected))
    values.forEach((value, i) => {
      const found = columns[name as keyof typeof expected][i] as number;
      if (Number.isNaN(value)) expect(found).toBeNaN();
      else expect(Math.abs(found / value - 1)).toBeLessThan(0.004);
    });
  expect(columns.pooled).toBe(false);
});

test("of a range have its steps only", () => {
  const { first, last, change } = surveyColumns(survey(ROWS), 5, [1, 2]);
  expect(first[1]).toBeCloseTo(4, 1);
  expect(last[1]).toBeCloseTo(8, 1);
  expect(change[1]).toBeCloseTo(2, 2);
});

test("of bins of several steps, and of posters, are pooled", () => {
  expect(surveyColumns(survey(ROWS, { level: 2 }), 5).pooled).toBe(true);
  expect(surveyColumns(survey(ROWS, { poster: true }), 5).pooled).toBe(true);
});

test("of surprise are magnitudes", () => {
  const { worst, first } = surveyColumns(survey([[-2, 1, -9, 3]], { stat: "surprise" }), 1);
  expect(worst[0]).toBeCloseTo(9, 1);
  expect(first[0]).toBeCloseTo(2, 1);
});

test("a value of 0 divides to infinity, and does not end a logarithmic axis", () => {
  const found = survey([[0, 2, 4]]);
  expect(surveyColumns(found, 1).change[0]).toBe(Number.POSITIVE_INFINITY);
  const [low, high] = surveyEnds(found, [0]) as [number, number];
  expect([low, high].map((value) => Math.round(value * 10) / 10)).toEqual([2, 4]);
  expect(surveyEnds(survey([[NONE]]), [0])).toBeUndefined();
});

test("points have the steps of bins and where values are not finite", () => {
  const { x, y, saved, notFinite } = surveyPoints(survey([[1, NONE, 2]], { first: 10, flag: [[0, 1, 0]] }), 0);
  expect([x, saved, notFinite]).toEqual([
    [10, 12],
    [10, 11, 12],
    [undefined, "nan", undefined],
  ]);
  expect(y.map((value) => codeOf("size", value))).toEqual([codeOf("size", 1), codeOf("size", 2)]);
});
