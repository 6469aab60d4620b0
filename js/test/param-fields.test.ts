import { describe, expect, test } from "vitest";
import type { Param, ParamSpec } from "../src/protocol/types";
import { asText, inWords, isChanged, limits, parse } from "../src/widgets/rules/param-fields";

const spec = (kind: ParamSpec["kind"], more: Partial<ParamSpec> = {}): ParamSpec => ({
  name: "p",
  kind,
  default: 0,
  text: "0",
  doc: "",
  unit: "",
  ...more,
});
const entered = (param: ParamSpec, value: string) => parse(param, { value, checked: false });

describe("parameters of a rule", () => {
  test("their labels are words", () => {
    expect(["tensor_regex", "min_rise", "regex", "depth"].map(inWords)).toEqual([
      "Tensor pattern",
      "Min rise",
      "Pattern",
      "Depth",
    ]);
  });

  test("numbers are parsed and checked against the limits", () => {
    const share = spec("real", { minimum: 0, maximum: 1 });
    expect(["0.5", " 1e-7 ", "\u22121", "2", "", "x"].map((text) => entered(share, text))).toEqual([
      0.5,
      1e-7,
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect(["3", "3.5"].map((text) => entered(spec("integer", { minimum: 1, maximum: null }), text))).toEqual([
      3,
      undefined,
    ]);
    expect(entered(spec("real", { minimum: null, maximum: null }), "\u22121")).toBe(-1);
  });

  test("an empty field of an optional parameter is null", () => {
    const optional = spec("integer", { minimum: 0, maximum: null, optional: true });
    expect(["", "None", "4"].map((text) => entered(optional, text))).toEqual([null, null, 4]);
    expect(entered(spec("choice", { choices: ["TRAIN"], optional: true }), "")).toBe(null);
    expect(entered(spec("choice", { choices: ["TRAIN"], optional: true }), "TRAIN")).toBe("TRAIN");
  });

  test("flags are booleans; lists are sent as text", () => {
    expect(parse(spec("flag"), { value: "on", checked: true })).toBe(true);
    expect(entered(spec("patterns"), "a{1,2},b")).toBe("a{1,2},b");
    expect([asText(["a", "b"]), asText([0.5, 1]), asText(null), asText("inf")]).toEqual(["a,b", "0.5,1", "", "inf"]);
  });

  test("a value is compared with the default by content", () => {
    const param: Param = { ...spec("words", { default: ["a"] }), value: ["a"] };
    expect(isChanged(param)).toBe(false);
    expect(isChanged({ ...param, value: [] })).toBe(true);
    expect(isChanged({ ...spec("real", { default: null }), value: 0 })).toBe(true);
  });

  test("limits are named", () => {
    const of = (minimum: number | null, maximum: number | null) => limits(spec("real", { minimum, maximum }));
    expect([of(0, 1), of(0, null), of(null, 5), of(null, null)]).toEqual([
      "from 0 to 1",
      "at least 0",
      "at most 5",
      "",
    ]);
  });
});
