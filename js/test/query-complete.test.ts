import { describe, expect, test } from "vitest";
import { complete, type Subject } from "../src/query/complete";
import { withPart } from "../src/query/edit";
import { parse } from "../src/query/parse";
import { tensorNote, tensorWords } from "../src/query/tensors";

const names = ["layers.2.q_proj.weight", "layers.10.q_proj.weight", "layers.10.k_proj.bias", "a|b.c", "loss"];
const words = tensorWords(["weights", "my layers"]);
const subject: Subject = { words, names, counts: new Map([["weights", [0, 1]]]), note: tensorNote };
/** A table of columns, as one of runs. */
const columns: Subject = {
  words: {
    keys: ["name", "lr", "val loss", "state", "opt.name", "steps"],
    statistics: [],
    views: [],
    hasSteps: false,
    collections: [],
    isText: () => true,
  },
  names: ["lr_0.1/seed_0", "lr_0.1/seed_1"],
  note: (key) => (key === "lr" ? "hyperparameter" : ""),
  values: (key) => (key === "state" ? ["ended", "not read"] : key === "val loss" ? ["?"] : []),
};
/** The options at the "^" of a text, and the text after the first one is taken. */
function at(marked: string, of = subject): [options: string, taken: string] {
  const text = marked.replace("^", "");
  const { start, end, options } = complete(text, marked.indexOf("^"), of);
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
    ["| change ^", "< <= > >= = != ~", "| change < "],
    ["| change > 3 ^", "and or", "| change > 3 and "],
    ["| size ^", "< <= > >= = != ~", "| size < "],
    ['"a|b" | ze^', "zeros", '"a|b" | zeros '],
    ["/a|b/ | ze^", "zeros", "/a|b/ | zeros "],
    ["q_proj and ^", "layers q_proj weight 10 2 k_proj bias a|b c loss @weights @my layers", "q_proj and layers"],
    ["loss or @w^ | l2", "@weights", "loss or @weights  | l2"],
    ["not (q_proj or lo^)", "loss", "not (q_proj or loss"],
    ["q_proj | not cha^", "change", "q_proj | not change "],
    ["| change > 3 and la^", "last", "| change > 3 and last "],
    ['| name = "a and b" o^', "or", '| name = "a and b" or '],
  ])("of %s", (marked, options, taken) => {
    expect(at(marked)).toEqual([options, taken]);
  });

  test.each([
    ["^", "name lr val loss state opt.name steps lr_0 1 seed_0 seed_1", "name "],
    ["l^", "lr lr_0", "lr "],
    ["v^", "val loss", '"val loss" '],
    ["opt.^", "opt.name", "opt.name "],
    ["lr_0.1/^", "seed_0 seed_1", "lr_0.1/seed_0"],
    ["lr ^", "< <= > >= = != ~ top sort not name lr val loss state opt.name steps and or", "lr < "],
    ["lr < 0.01 | st^", "state steps", "lr < 0.01 | state "],
    ["| steps ^", "< <= > >= = != ~", "| steps < "],
    ["| state = ^", "ended not read", "| state = ended "],
    ["state != n^", "not read", 'state != "not read" '],
    ['"val loss" = ^', "?", '"val loss" = ? '],
    ['"val loss" ^', "< <= > >= = != ~ top sort not name lr val loss state opt.name steps and or", '"val loss" < '],
    ['"val loss^', "", '"val loss'],
    ['"a<b^', "", '"a<b'],
    ["| state < ^", "", "| state < "],
    ["| lr = ^", "", "| lr = "],
    ["| state = ended ^", "and or", "| state = ended and "],
    ["state = ended or (lr < 1 and st^", "state steps", "state = ended or (lr < 1 and state "],
    ["| top 3 by ^", "name lr val loss state opt.name steps", "| top 3 by name "],
    ["| as ^", "", "| as "],
  ])("of %s in a table of columns", (marked, options, taken) => {
    expect(at(marked, columns)).toEqual([options, taken]);
  });

  test("of columns says what they are", () => {
    expect(complete("lr", 1, columns).options[0]).toEqual({ insert: "lr ", label: "lr", note: "hyperparameter" });
    expect(complete("| ch", 4, subject).options[0]?.note).toBe("largest / smallest size");
    expect(complete("| steps", 6, columns).options[0]?.note).toBe("");
  });

  test("every option of a stage leads to text without an unknown word", () => {
    for (const text of ["| ", "| top 3 by ", "| sort by "])
      for (const { insert } of complete(text, text.length, subject).options) {
        const taken = text + insert;
        try {
          parse(taken, words);
        } catch (error) {
          expect(String(error)).toMatch(/after|whole number/);
        }
      }
  });

  test("of an empty text counts name parts and lists collections", () => {
    const { options } = complete("", 0, subject);
    expect(options[0]).toEqual({ insert: "layers", label: "layers", note: "3" });
    expect(options.at(-2)).toEqual({ insert: "@weights ", label: "@weights", note: "2" });
  });

  test("offers stages after the names", () => {
    const { options, start } = complete("q_proj ", 7, subject);
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
  ["change > 2", "view", "as map", "change > 2 | as map"],
  ["loss or (weight and change > 2) | l2", "view", "as map", "loss or (weight and change > 2) | l2 | as map"],
  ["\u{1f600} | l2", "statistic", "size", "\u{1f600} | size"],
] as const)("a part of %s is replaced", (text, kind, part, expected) => {
  expect(withPart(text, parse(text, words), kind, part)).toBe(expected);
});
