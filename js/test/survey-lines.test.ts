// @vitest-environment node
import { describe, expect, test } from "vitest";
import { Store } from "../src/data/store";
import { codeValue, FLAG, Surveys } from "../src/data/survey";
import { LineMaker, STATE, StepBins, usualGap } from "../src/data/survey-lines";
import type { MapStat } from "../src/protocol/types";
import { surveyPacket } from "./packets";

const steps = (n: number, every = 1) => Float64Array.from({ length: n }, (_, i) => i * every);
/** Values of pixels; a dash was not saved, a dot is unread, a blank is empty. */
function drawn(store: Store, tensors: number[], bins: StepBins, stat: MapStat = "surprise") {
  const line = new LineMaker(store.surveys, store.surveys.find(0, "", "", stat), bins).make(tensors);
  const text = [...line.state].map((state, p) =>
    state === STATE.value ? Math.round(codeValue(stat, line.value[p] as number)) : { 0: "-", 1: " ", 2: "." }[state],
  );
  return { text: text.join(), line };
}
const holding = (...packets: ArrayBuffer[]) => {
  const store = new Store({ surveys: new Surveys() });
  store.addPackets(packets);
  return store;
};

test("a tensor that has no numbers is empty when all is read", () => {
  const { surveys } = new Store({ surveys: new Surveys() });
  const bins = new StepBins(steps(4), -0.5, 3.5, 4);
  expect([...new LineMaker(surveys, undefined, bins).make([0]).state]).toEqual(Array(4).fill(STATE.unread));
  const read = new LineMaker(surveys, undefined, bins, 1, STATE.blank);
  expect([...read.make([0]).state]).toEqual(Array(4).fill(STATE.blank));
});

describe("bins of steps", () => {
  test("cover the view without gaps, each step half way to its neighbours", () => {
    const { bin, x0, x1, first, last } = new StepBins(steps(5, 10), -5, 45, 50).at(2);
    expect([...bin]).toEqual([0, 2, 5, 7, 10]);
    expect([...x0]).toEqual([0, 10, 20, 30, 40]);
    expect([...x1]).toEqual([10, 20, 30, 40, 50]);
    expect([...first]).toEqual([...last]);
  });
  test("stop where the run saved nothing for long", () => {
    const { x0, x1 } = new StepBins([0, 1, 2, 50, 51], -0.5, 51.5, 52).at(0);
    expect([...x0]).toEqual([0, 1, 2, 50, 51]);
    expect([...x1]).toEqual([1, 2, 4, 51, 52]);
  });
  test("have a pixel each, even if there are more of them", () => {
    const { bin, x0, x1, steps: counts } = new StepBins(steps(100), -0.5, 99.5, 10).at(1);
    expect(bin).toHaveLength(50);
    expect([...counts].every((n) => n === 2)).toBe(true);
    bin.forEach((_, i) => {
      expect((x1[i] as number) - (x0[i] as number)).toBeGreaterThan(0);
    });
    expect(Math.max(...x1)).toBe(10);
  });
  test("of a part of the run are those in view", () => {
    const { bin, x0, x1 } = new StepBins(steps(100_000), 500, 510, 100).at(0);
    expect(bin.length).toBeLessThan(14);
    expect(x0[Array.from(bin).indexOf(505)]).toBe(45);
    expect(x1[Array.from(bin).indexOf(505)]).toBe(55);
  });
  test("usual gaps are the median ones", () => {
    expect(usualGap([0, 10, 20, 900, 910])).toBe(10);
    expect(usualGap([3])).toBe(1);
  });
});

describe("lines", () => {
  const bins = new StepBins(steps(8), -0.5, 7.5, 8);

  test("of a module are the worst of its tensors; no anomaly is lost when bins share a pixel", () => {
    const flag = [[0, 0, 0, 0, 0, 0, FLAG.nan, 0], new Uint8Array(8)];
    const store = holding(
      surveyPacket(
        [0, 1],
        [
          [1, 1, 1, -9, 1, 1, 1, 1],
          [2, -2, 0, 5, 0, 0, 0, 0],
        ],
        { flag },
      ),
    );
    expect(drawn(store, [0], bins).text).toBe("1,1,1,-9,1,1,1,1");
    expect(drawn(store, [0, 1], bins).text).toBe("2,-2,1,-9,1,1,1,1");
    const { text, line } = drawn(store, [0, 1], new StepBins(steps(8), -0.5, 7.5, 2));
    expect(text).toBe("-9,1");
    expect([...line.flag]).toEqual([0, FLAG.nan]);
    expect(line.n[0]).toBe(8);
  });

  test("a finer block is drawn over a coarse one, where it has data", () => {
    const store = holding(
      surveyPacket([0], [[8, 4, 2, 9]], { level: 1, poster: true }),
      surveyPacket([0], [[3, 5]], { first: 2 }),
    );
    expect(drawn(store, [0], bins).text).toBe("8,8,3,5,2,2,9,9");
  });

  test("a tensor that is saved less often stands until it is due, and a long gap is marked", () => {
    const x = Number.NaN;
    const store = holding(surveyPacket([0], [[5, x, 6, x, x, x, x, x]]), surveyPacket([1], [[1, 1, x, 1, 1, 1, 1, 1]]));
    expect(drawn(store, [0], bins).text).toBe("5,5,6,6,-,-,-,-");
    const wide = new LineMaker(store.surveys, store.surveys.find(0, "", "", "surprise"), bins, 6).make([0]);
    expect([...wide.state].filter((state) => state === STATE.value)).toHaveLength(6);
    // A gap shorter than two steps is not worth a mark.
    expect(drawn(store, [1], bins).text).toBe("1,1, ,1,1,1,1,1");
  });

  test("a tensor without data is unread, a step that only failed has no value", () => {
    const flag = [[0, FLAG.error, FLAG.unread, 0]];
    const x = Number.NaN;
    const store = holding(surveyPacket([0], [[1, x, x, 1]], { flag }));
    expect(drawn(store, [0], new StepBins(steps(4), -0.5, 3.5, 4)).text).toBe("1, ,.,1");
    expect(drawn(store, [7], bins).text).toBe(".,.,.,.,.,.,.,.");
    expect(drawn(new Store({ surveys: new Surveys() }), [7], bins).text).toBe(".,.,.,.,.,.,.,.");
  });

  test("of a size is the value farthest from the tensor's usual one", () => {
    const store = holding(surveyPacket([0], [[1, 1, 1, 1, 1, 1, 900, 90]], { stat: "size" }));
    const { line } = drawn(store, [0], new StepBins(steps(8), -0.5, 7.5, 2), "size");
    expect(codeValue("size", line.value[1] as number) / 900).toBeCloseTo(1, 2);
  });
});
