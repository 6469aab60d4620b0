// @vitest-environment node
import { describe, expect, test } from "vitest";
import { Store } from "../src/data/store";
import { codeOf, codeValue, FLAG, Surveys } from "../src/data/survey";
import { surveyPacket } from "./packets";

const find = (store: Store) => {
  const found = store.surveys.find(0, "", "", "surprise");
  if (!found) throw new Error("no survey");
  return found;
};
const cells = (store: Store, tensor: number, name: "hi" | "flag" = "hi") => {
  const block = find(store).blocks.at(-1);
  const start = (block?.rows.get(tensor) ?? 0) * (block?.stride ?? 0);
  return [...(block?.array(name)?.subarray(start, start + (block?.bins ?? 0)) ?? [])];
};

describe("codes", () => {
  test.each([
    ["size", 0.0712],
    ["l2", 1e-12],
    ["update", 3e5],
  ] as const)("%s keeps a value to 0.2 percent", (stat, value) => {
    expect(Math.abs(codeValue(stat, codeOf(stat, value)) / value - 1)).toBeLessThan(0.002);
  });
  test("zero, no value, shares and surprise", () => {
    expect(codeOf("size", 0)).toBe(1);
    expect(codeValue("size", 1)).toBe(0);
    expect(codeValue("size", 0)).toBeNaN();
    expect(codeOf("zeros", Number.NaN)).toBe(0);
    expect(codeValue("zeros", codeOf("zeros", 1))).toBe(1);
    expect(codeValue("zeros", codeOf("zeros", 0))).toBe(0);
    expect(codeValue("surprise", codeOf("surprise", -3.25))).toBeCloseTo(-3.25, 2);
    expect(codeValue("surprise", codeOf("surprise", 1e9))).toBe(64);
  });
});

describe("packets", () => {
  test("bins that are appended grow the block, and replace those it has", () => {
    const store = new Store({ surveys: new Surveys() });
    store.addPackets([
      surveyPacket(
        [4, 7],
        [
          [1, 2, 3],
          [4, 5, 6],
        ],
        { append: false, first: 10 },
      ),
    ]);
    store.addPackets([
      surveyPacket(
        [7, 4],
        [
          [60, 70],
          [30, 40],
        ],
        { first: 12 },
      ),
    ]);
    expect(find(store).blocks).toHaveLength(1);
    const code = (x: number) => codeOf("surprise", x);
    expect(cells(store, 4)).toEqual([1, 2, 30, 40].map(code));
    expect(cells(store, 7)).toEqual([4, 5, 60, 70].map(code));
    store.addPackets([surveyPacket([4], [[9, 9]], { first: 8 })]);
    expect(cells(store, 4)).toEqual([9, 9, 1, 2, 30, 40].map(code));
    expect(cells(store, 7).slice(2)).toEqual([4, 5, 60, 70].map(code));
    // Cells without data are not saved.
    expect(cells(store, 7).slice(0, 2)).toEqual([0, 0]);
  });

  test("levels and posters lie side by side, the finest last", () => {
    const store = new Store({ surveys: new Surveys() });
    store.addPackets([
      surveyPacket([0], [[1, 2, 3, 4]], { append: false, level: 0 }),
      surveyPacket([0], [[4, 4]], { level: 1, poster: true }),
      surveyPacket([0], [[3, 4]], { level: 1 }),
    ]);
    expect(find(store).blocks.map(({ level, poster }) => [level, poster])).toEqual([
      [1, true],
      [1, false],
      [0, false],
    ]);
    expect(find(store).covers(0, 1, 0, 4)).toBe(true);
    expect(find(store).covers(0, 0, 0, 4)).toBe(true);
    expect(find(store).covers(0, 0, 0, 5)).toBe(false);
    expect(find(store).covers(1, 1, 0, 4)).toBe(false);
  });

  test("a later edition replaces everything, an earlier one is ignored, and a restarted run has no survey", () => {
    const store = new Store({ surveys: new Surveys() });
    store.addPackets([surveyPacket([0], [[1]], { edition: 3 }), surveyPacket([1], [[1]], { edition: 2 })]);
    expect(find(store).blocks).toHaveLength(1);
    const version = find(store).version;
    store.addPackets([surveyPacket([1], [[5]], { edition: 4, flag: [[FLAG.nan]] })]);
    expect(find(store).blocks).toHaveLength(1);
    expect(find(store).version).toBeGreaterThan(version);
    expect(cells(store, 1, "flag")).toEqual([FLAG.nan]);
    store.surveys.drop(0);
    expect(store.surveys.find(0, "", "", "surprise")).toBeUndefined();
  });

  test("what is kept has a limit, and the poster remains", () => {
    const store = new Store({ surveys: new Surveys() });
    store.addPackets([surveyPacket([0], [[1]], { level: 12, poster: true })]);
    const shape = [1000, 1000];
    const codes = { data: new Uint16Array(1_000_000), shape };
    const tensor = { data: Uint32Array.from({ length: 1000 }, (_, i) => i), shape: [1000] };
    const flag = { data: new Uint8Array(1_000_000), shape };
    const head = {
      kind: "survey",
      run: 0,
      worker: "",
      mode: "",
      stat: "surprise",
      first: 0,
      edition: 0,
      append: true,
    } as const;
    for (let level = 0; level < 9; level++)
      store.surveys.add({ ...head, level }, { tensor, lo: codes, mid: codes, hi: codes, n: codes, flag });
    const { blocks } = find(store);
    expect(blocks.reduce((sum, block) => sum + block.bytes, 0)).toBeLessThanOrEqual(64 << 20);
    expect(blocks[0]?.poster).toBe(true);
    expect(blocks.at(-1)?.level).toBe(2);
  });
});
