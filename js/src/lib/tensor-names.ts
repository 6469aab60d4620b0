/** What a tensor is, from its collections and its name, as `naming/tensors.py` decides it. tests/vectors/names.json has cases. */

import { defined } from "./defined";
import { compareNatural } from "./natural-order";

/** W weights and biases, G gradients, A activations and other tensors, S scalars. */
export type KindLetter = "W" | "G" | "A" | "S";

/** Collections of scalars, those with losses first. */
export const SCALARS = ["losses", "metrics", "scalars", "sm_metrics", "searchable_scalars"];
const GRADIENT = /^gradients?\//;

type Collections = ReadonlyMap<string, readonly number[]>;

/** The name without the word that marks a gradient. */
export const stem = (name: string) => name.replace(GRADIENT, "");

/** Adds the letters of the names that `letters` lacks. */
export function addKindLetters(letters: KindLetter[], names: readonly string[], collections: Collections): void {
  const known = letters.length;
  for (let i = known; i < names.length; i++) letters.push(GRADIENT.test(names[i] as string) ? "G" : "A");
  const mark = (collection: string, letter: KindLetter) => {
    for (const index of collections.get(collection) ?? [])
      if (index >= known && index < names.length) letters[index] = letter;
  };
  for (const collection of SCALARS) mark(collection, "S");
  mark("weights", "W");
  mark("biases", "W");
  mark("gradients", "G");
}

/** The tensor to display first: the first weight by name, else the first gradient, loss, or any tensor. */
export function firstTensor(names: readonly string[], collections: Collections): string {
  const members = ["weights", "gradients", "losses"]
    .map((key) => collections.get(key) ?? [])
    .find((list) => list.length);
  const candidates = members ? members.map((index) => defined(names[index])) : names;
  return candidates.length ? candidates.reduce((a, b) => (compareNatural(b, a) < 0 ? b : a)) : "";
}
