// @vitest-environment node
import { describe, expect, test } from "vitest";
import { fullRange, makeStepAxis } from "../src/lib/step-axis";

describe("step axis", () => {
  const steps = Float64Array.from({ length: 121 }, (_, i) => 10 * i);

  test("all steps are between the gutter and the minimap, with half a step on each side", () => {
    const axis = makeStepAxis([], steps, 1000);
    expect([axis.left, axis.right]).toEqual([236, 936]);
    expect([axis.from, axis.to]).toEqual([-5, 1205]);
    expect(axis.x(-5)).toBe(236);
    expect(axis.x(1205)).toBe(936);
    for (const step of steps) expect(axis.step(axis.x(step))).toBeCloseTo(step, 9);
  });

  test("a range is shown as it is", () => {
    const axis = makeStepAxis([100, 200], steps, 500);
    expect([axis.left, axis.right]).toEqual([120, 436]);
    expect(axis.x(100)).toBe(120);
    expect(axis.x(150)).toBe(278);
    expect(makeStepAxis([200, 100], steps, 500).from).toBe(-5);
  });

  test("an axis of one step, or of none, has a width", () => {
    expect(fullRange([7])).toEqual([6.5, 7.5]);
    expect(fullRange([])).toEqual([-0.5, 0.5]);
    expect(makeStepAxis([], [], 0).x(0)).toBeCloseTo(96.5);
  });

  test("two steps that are far apart leave most of the width to the steps between them", () => {
    expect(fullRange([0, 120])).toEqual([-10, 130]);
  });
});
