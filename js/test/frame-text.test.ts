import { describe, expect, test } from "vitest";
import type { Frame } from "../src/data/frames";
import { isScalar, type TensorView } from "../src/data/tensor-view";
import { describeFrame, frameSummary, sampleText } from "../src/widgets/common/frame-text";

const frame = (stats: number[], counts: number[]): Frame =>
  ({ stats: Float64Array.from(stats), counts: Float64Array.from(counts) }) as unknown as Frame;

test("one value is described in the singular, others in the plural", () => {
  expect(describeFrame(frame([2, 2, 2, 2, 0], [1, 0, 0, 0]))).toMatch(/^1 value from 2 to 2/);
  expect(describeFrame(frame([1, 3, 2, 2, 1], [4, 0, 0, 0]))).toMatch(/^4 values from 1 to 3/);
});

describe("a step with a sample only", () => {
  const sampled = (min: number, estimated: boolean): Frame => ({
    ...frame([min, min, 2, 2, 1], [102400, 0, 0, 0, 0]),
    percentiles: { q: [5, 50, 95], values: Float64Array.from([-1, 2, 5]) },
    shape: [200, 512],
    sampled: { elements: 4096, estimated },
  });

  test("says how many elements were sampled", () => {
    expect(sampleText(sampled(0, false))).toBe("from a sample of 4,096 of 102,400 elements");
    expect(describeFrame(sampled(0, false))).toMatch(
      /^Estimated from a sample of 4,096 .* median 2, 95% 5\. All finite/,
    );
    expect(sampleText(frame([2, 2, 2, 2, 0], [1, 0, 0, 0]))).toBe("");
  });

  test("has quantiles where its least and greatest value are not known", () => {
    expect(frameSummary(sampled(-3, false))).toMatch(/^min \u22123 {3}mean 2/);
    expect(frameSummary(sampled(Number.NaN, true))).toBe("5% \u22121   median 2   95% 5   ");
  });
});

test("a tensor with reductions only is a number if it has one element", () => {
  const view = (elements: number): TensorView =>
    ({
      frame: frame([2, 2, 2, 2, 0], [elements, 0, 0, 0, 0]),
      frames: { plan: { reduced: true, shape: [], form: "number" } },
    }) as unknown as TensorView;
  expect([1, 4096, 0].map((elements) => isScalar(view(elements)))).toEqual([true, false, false]);
});
