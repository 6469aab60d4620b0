// @vitest-environment node
/** Names of tensors in tests/vectors/names.json, which Python reads, too. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { addKindLetters, firstTensor, type KindLetter, SCALARS } from "../src/lib/tensor-names";

const table = JSON.parse(readFileSync(new URL("../../tests/vectors/names.json", import.meta.url), "utf8"));
const python = readFileSync(new URL("../../python/smdwidgets/naming/tensors.py", import.meta.url), "utf8");

test("kinds of rows", () => {
  for (const { name, collection, row } of table.tensors) {
    const letters: KindLetter[] = [];
    addKindLetters(letters, [name], new Map(collection ? [[collection, [0]]] : []));
    expect(letters, name).toEqual([row]);
  }
});

test("the first tensor", () => {
  for (const { names, collections, tensor } of table.first)
    expect(firstTensor(names, new Map(Object.entries(collections)))).toBe(tensor);
});

test("collections of scalars are those of Python", () => {
  const [, list = ""] = /^SCALAR_COLLECTIONS: Final = \((.*)\)$/m.exec(python) ?? [];
  expect([...list.matchAll(/"(\w+)"/g)].map(([, name]) => name)).toEqual(SCALARS);
});
