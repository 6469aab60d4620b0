/** All keys, and what they do. */
import { h } from "../../lib/dom";

const KEYS: readonly (readonly [string, string])[] = [
  ["\u2190 \u2192 \u2191 \u2193", "move in the map, or by one step on the axis"],
  ["1\u20139", "type a step"],
  ["Enter", "open the inspector"],
  ["Esc", "go back"],
  ["n p", "next, previous finding"],
  [". ,", "next, previous firing of a rule"],
  ["w s", "zoom in, out"],
  ["a d", "pan"],
  ["f", "zoom to the selection"],
  ["0", "all steps"],
  ["Space", "play"],
  ["l", "loop the selection"],
  ["b", "bookmark the step"],
  ["c x m v", "set B, swap A and B, A \u2212 B, blink"],
  ["/", "query tensors"],
  ["t", "table of the rows"],
  ["e", "full screen"],
  ["?", "this list"],
];

export class KeyList {
  readonly el = h(
    "dl",
    { class: "smdw-keys" },
    ...KEYS.flatMap(([key, does]) => [
      h("dt", {}, ...key.split(" ").map((each) => h("kbd", {}, each))),
      h("dd", {}, does),
    ]),
  );
}
