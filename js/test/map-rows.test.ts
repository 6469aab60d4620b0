// @vitest-environment node
import { describe, expect, test } from "vitest";
import { compareTrouble, MapModel, type Trouble } from "../src/lib/map-rows";

const model = (names: string[], collections: Record<string, string[]> = {}) =>
  new MapModel(
    names,
    new Map(Object.entries(collections).map(([name, list]) => [name, list.map((each) => names.indexOf(each))])),
  );
const text = (rows: readonly { label: string; letter: string; level: number }[]) =>
  rows.map(({ label, letter, level }) => `${"  ".repeat(level)}${letter && `${letter} `}${label}`);

describe("rows of the map", () => {
  const names = [
    "loss",
    "accuracy",
    "gradient/layers.10.attn.q.weight",
    "layers.10.attn.q.weight",
    "layers.10.mlp.q.weight",
    "layers.10.norm.weight",
    "layers.2.attn.q.weight",
    "layers.2.relu_output_0",
    "embed.weight",
    "norm.weight",
    "norm.bias",
  ];
  const weights = names.filter((name) => /weight|bias/.test(name) && !name.startsWith("gradient"));
  const rows = model(names, { losses: ["loss"], metrics: ["accuracy"], weights });

  test("are in model order, with the modules folded", () => {
    expect(text(rows.rows(new Set()))).toEqual(["W embed.weight", "layers.2", "layers.10", "norm", "scalars"]);
    expect(model(names).foldable).toEqual(["layers.2", "layers.10", "norm"]);
  });

  test("of an unfolded module are weights, gradients, other tensors, by names that differ", () => {
    expect(text(rows.rows(new Set(["layers.10", "layers.2", "scalars"])))).toEqual([
      "W embed.weight",
      "layers.2",
      "  W q.weight",
      "  A relu_output_0",
      "layers.10",
      "  W attn.q.weight",
      "  W mlp.q.weight",
      "  W norm.weight",
      "  G q.weight",
      "norm",
      "scalars",
      "  S accuracy",
      "  S loss",
    ]);
  });

  test("of scalars without tensors are in the modules of their names, until a tensor comes", () => {
    const list = ["norm/fc1", "norm/fc2", "loss"];
    const growing = model(list, { scalars: list });
    expect(text(growing.rows(new Set(["norm"])))).toEqual(["S loss", "norm", "  S fc1", "  S fc2"]);
    list.push("fc1.weight");
    growing.extend();
    expect(text(growing.rows(new Set(["scalars"])))).toEqual([
      "A fc1.weight",
      "scalars",
      "  S loss",
      "  S norm/fc1",
      "  S norm/fc2",
    ]);
  });

  test("of a filter are the tensors that match, in their modules", () => {
    const shown = new Set([3, 6].map((index) => index));
    expect(text(rows.rows(new Set(), shown))).toEqual(["layers.2", "  W q.weight", "layers.10", "  W attn.q.weight"]);
  });

  test("of another order are the tensors alone", () => {
    expect(text(rows.flatRows([3, 0]))).toEqual(["W layers.10.attn.q.weight", "S loss"]);
    expect(rows.moduleOf(3)?.id).toBe("layers.10");
    expect([...rows.order].sort((a, b) => a - b)).toEqual(names.map((_, index) => index));
  });

  test("of a large module are split at the next number", () => {
    const experts = Array.from({ length: 80 }, (_, i) => [
      `layers.3.experts.${i}.w1`,
      `layers.3.experts.${i}.w2`,
    ]).flat();
    const found = model([...experts, "layers.3.norm.weight", "layers.4.norm.weight", "layers.4.norm.bias"]);
    expect(text(found.rows(new Set(["layers.3.experts.2"]))).slice(0, 7)).toEqual([
      "A layers.3.norm.weight",
      "layers.3.experts.0",
      "layers.3.experts.1",
      "layers.3.experts.2",
      "  A w1",
      "  A w2",
      "layers.3.experts.3",
    ]);
    expect(text(found.rows(new Set())).at(-1)).toBe("layers.4");
  });

  test("leave out the start that most modules share", () => {
    const blocks = [0, 1, 2].flatMap((i) => [`model.h.${i}.w`, `model.h.${i}.b`]);
    expect(text(model([...blocks, "model.norm.w", "model.head", "other.w"]).rows(new Set()))).toEqual([
      "h.0",
      "h.1",
      "h.2",
      "A model.head",
      "A norm.w",
      "A other.w",
    ]);
  });

  test("names without parts, and of a single number, have rows", () => {
    expect(text(model(["conv0_weight", "gradient/conv0_weight", "0", "1.2"]).rows(new Set()))).toEqual([
      "A 0",
      "A 1.2",
      "conv0_weight",
    ]);
    expect(model([]).rows(new Set())).toEqual([]);
  });
});

test("trouble is compared by severity, then onset, then amount", () => {
  const of = (severity: number, onset: number, amount: number): Trouble => ({ severity, onset, amount });
  const list = [of(1, 5, 9), of(4, 90, 1), of(1, 5, 12), of(0, Number.POSITIVE_INFINITY, 2), of(2, 3, 1), of(4, 80, 1)];
  expect(list.sort(compareTrouble).map(({ severity, onset, amount }) => [severity, onset, amount])).toEqual([
    [4, 80, 1],
    [4, 90, 1],
    [2, 3, 1],
    [1, 5, 12],
    [1, 5, 9],
    [0, Number.POSITIVE_INFINITY, 2],
  ]);
});
