import { describe, expect, test } from "vitest";
import { ModeSteps, StepList } from "../src/data/step-list";

function rows(first: number, count: number) {
  const steps = Float64Array.from({ length: count }, (_, i) => first + i);
  return {
    steps,
    modes: Uint8Array.from(steps, (step) => (step % 10 === 9 ? 2 : 1)),
    modeSteps: steps.map((step) => step / 2),
  };
}

describe("a list of steps", () => {
  test("appends without changing what was read, and follows modes", () => {
    const list = new StepList();
    const evals = new ModeSteps(list, 2);
    list.add(rows(0, 50));
    const before = list.all.steps;
    const first = evals.all.steps;
    for (let step = 50; step < 1000; step++) list.add(rows(step, 1));
    expect(list.length).toBe(1000);
    expect([...before]).toEqual([...rows(0, 50).steps]);
    expect([...first]).toEqual([9, 19, 29, 39, 49]);
    expect([...list.all.steps]).toEqual([...rows(0, 1000).steps]);
    expect([...list.all.modes]).toEqual([...rows(0, 1000).modes]);
    expect(evals.all.steps.length).toBe(100);
    expect([...evals.all.modeSteps]).toEqual([...evals.all.steps].map((step) => step / 2));
    expect(list.edition).toBe(0);
  });

  test("copies little while 100,000 steps are appended one by one", () => {
    const list = new StepList();
    let copied = 0;
    let buffer = list.all.steps.buffer;
    for (let step = 0; step < 100_000; step++) {
      const { length } = list;
      list.add(rows(step, 1));
      if (list.all.steps.buffer !== buffer) copied += length;
      buffer = list.all.steps.buffer;
    }
    expect(copied).toBeLessThan(200_000);
  });

  test("inserts earlier steps and replaces known ones", () => {
    const list = new StepList();
    const evals = new ModeSteps(list, 2);
    list.add(rows(10, 10));
    const before = evals.all.steps;
    list.add({ steps: Float64Array.of(5, 12), modes: Uint8Array.of(2, 2), modeSteps: Float64Array.of(0, 1) });
    expect([...list.all.steps.slice(0, 3)]).toEqual([5, 10, 11]);
    expect(list.edition).toBe(1);
    expect([...evals.all.steps]).toEqual([5, 12, 19]);
    expect([...before]).toEqual([19]);
  });
});
