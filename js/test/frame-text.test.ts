import { expect, test } from "vitest";
import type { Frame } from "../src/data/frames";
import { describeFrame } from "../src/widgets/common/frame-text";

const frame = (stats: number[], counts: number[]): Frame =>
  ({ stats: Float64Array.from(stats), counts: Float64Array.from(counts) }) as unknown as Frame;

test("one value is described in the singular, others in the plural", () => {
  expect(describeFrame(frame([2, 2, 2, 2, 0], [1, 0, 0, 0]))).toMatch(/^1 value from 2 to 2/);
  expect(describeFrame(frame([1, 3, 2, 2, 1], [4, 0, 0, 0]))).toMatch(/^4 values from 1 to 3/);
});
