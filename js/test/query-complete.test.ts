import { describe, expect, test } from "vitest";
import { complete } from "../src/query/complete";
import { withPart } from "../src/query/edit";
import { parse } from "../src/query/parse";
import { tensorWords } from "../src/query/tensors";

const names = ["layers.2.q_proj.weight", "layers.10.q_proj.weight", "layers.10.k_proj.bias", "a|b.c", "loss"];
const words = tensorWords(["weights", "my layers"]);
const counts = new Map([["weights", [0, 1]]]);
/** The options at the "^" of a text, and the text after the first one is taken. */
function at(marked: string): [options: string, taken: string] {
  const text = marked.replace("^", "");
  const { start, end, options } = complete(text, marked.indexOf("^"), words, names, counts);
  const first = options[0];
  return [
    options.map(({ label }) => label).join(" "),
    first ? text.slice(0, start) + first.insert + text.slice(end) : text,
  ];
}

describe("completion", () => {
  test.each([
    ["q^", "q_proj", "q_proj"],
    ["layers.10.^", "q_proj k_proj", "layers.10.q_proj"],
    ["layers.*.K^", "k_proj", "layers.*.k_proj"],
    ["a^", "a|b", "a\\|b"],
    ["@^", "@weights @my layers", "@weights "],
    ["@m^", "@my layers", '@"my layers" '],
    ["/q^", "", "/q"],
    ["q_proj | to^", "top", "q_proj | top 12 by "],
    ["q_proj | to^ | l2", "top", "q_proj | top 12 by  | l2"],
    ["| top 3 ^", "by", "| top 3 by "],
    ["| top 3 by cha^", "change", "| top 3 by change "],
    ["| sort by last d^", "desc", "| sort by last desc "],
    ["| as ^", "map curves histograms table", "| as map "],
    ["| change ^", "< <= > >= = !=", "| change < "],
    ["| change > 3 ^", "", "| change > 3 "],
    ["| size ^", "< <= > >= = !=", "| size < "],
    ['"a|b" | ze^', "zeros", '"a|b" | zeros '],
    ["/a|b/ | ze^", "zeros", "/a|b/ | zeros "],
  ])("of %s", (marked, options, taken) => {
    expect(at(marked)).toEqual([options, taken]);
  });

  test("every option of a stage leads to text without an unknown word", () => {
    for (const text of ["| ", "| top 3 by ", "| sort by "])
      for (const { insert } of complete(text, text.length, words, names).options) {
        const taken = text + insert;
        try {
          parse(taken, words);
        } catch (error) {
          expect(String(error)).toMatch(/after|whole number/);
        }
      }
  });

  test("of an empty text counts name parts and lists collections", () => {
    const { options } = complete("", 0, words, names, counts);
    expect(options[0]).toEqual({ insert: "layers", label: "layers", note: "3" });
    expect(options.at(-2)).toEqual({ insert: "@weights ", label: "@weights", note: "2" });
  });

  test("offers stages after the names", () => {
    const { options, start } = complete("q_proj ", 7, words, names);
    expect([start, options[0]?.insert]).toEqual([7, "| top 12 by "]);
  });
});

test.each([
  ["", "view", "as table", "| as table"],
  ["q_proj", "view", "as table", "q_proj | as table"],
  ["q_proj|l2 | as map", "view", "as table", "q_proj | l2 | as table"],
  ["q_proj | as map | l2", "view", "", "q_proj | l2"],
  ["| as map", "view", "", ""],
  ["lr | SIZE", "statistic", "zeros", "lr | zeros"],
  ["change > 2", "view", "as map", "| change > 2 | as map"],
  ["\u{1f600} | l2", "statistic", "size", "\u{1f600} | size"],
] as const)("a part of %s is replaced", (text, kind, part, expected) => {
  expect(withPart(text, parse(text, words), kind, part)).toBe(expected);
});
