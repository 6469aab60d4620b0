import { describe, expect, test } from "vitest";
import vectors from "../../tests/vectors/query.json";
import { makeRegex } from "../src/query/pattern";
import { type Answer, answer, type Tables, tableOf } from "./query-cases";

const { tables, cases } = vectors as { tables: Tables; cases: ({ table: keyof Tables; text: string } & Answer)[] };

describe("the shared cases", () => {
  test.each(cases)("$text", ({ table, text, ...expected }) => {
    expect(answer(tableOf(tables, table), text)).toEqual(expected);
  });
});

test("a pattern that makes a backtracking search exponential takes linear time", () => {
  const { matches } = makeRegex("^(((\\w+)+)+)+!");
  expect(matches("a".repeat(100_000))).toBe(false);
  expect(matches(`${"a".repeat(1000)}!`)).toBe(true);
});
