// @vitest-environment node
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Traits } from "../src/protocol/types";
import { decodeState, encodeState, type Known } from "../src/session/state-string";

interface Case {
  about: string;
  text?: string;
  traits: Partial<Traits> | null;
  missing?: string;
}
const file = new URL("../../tests/vectors/state.json", import.meta.url);
const vectors: { runs: string[]; tensors: string[]; steps: number[]; cases: Case[] } = JSON.parse(
  readFileSync(file, "utf-8"),
);

const known: Known = {
  runs: vectors.runs,
  hasTensor: (name) => vectors.tensors.includes(name),
  hasStep: (_, step) => vectors.steps.includes(step),
};

test.each(vectors.cases)("$about", (one) => {
  const text = one.text ?? encodeState(one.traits ?? {}, vectors.runs);
  expect(decodeState(text, known)).toEqual({ traits: one.traits ?? undefined, missing: one.missing ?? "" });
});

test("default values are left out, and the largest of a string that would be too long", () => {
  const bookmarks = [{ step: 1, tensor: "", note: "n".repeat(9000) }];
  const text = encodeState({ bookmarks, tensor: "loss", step: 10, pool: "maxabs", follow: false }, vectors.runs);
  expect(text).toBe("smdw2.eyJzdGVwIjoxMCwidGVuc29yIjoibG9zcyJ9");
});
