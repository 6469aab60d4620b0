/** Where two runs part: the mark on the axis of steps, and the sentence beside the choice of B. */

import axe from "axe-core";
import { afterEach, expect, test } from "vitest";
import { encode } from "../src/protocol/packet";
import type { DivergenceHead } from "../src/protocol/types";
import { type OpenedExplorer, openExplorer } from "./explorer-helpers";
import { $, loaded, until } from "./helpers";
import { catalogPacket, madeRun, NAN_TENSOR } from "./map-helpers";

let shown: OpenedExplorer | undefined;
afterEach(() => {
  shown?.close();
  shown = undefined;
});

const TEXT = "First difference at step 371: 'k_proj' = 1 and 2";
const packet = (head: Partial<DivergenceHead> = {}) =>
  encode({
    ...{ kind: "divergence", a: 0, b: 1, step: 371, tensor: NAN_TENSOR, text: TEXT, meaning: "the seed differs" },
    ...head,
  });
const mark = () => $((shown as OpenedExplorer).el, ".smdw-parting");
const asked = () => (shown as OpenedExplorer).sent.filter(({ what }) => what === "bisect");

/** An explorer of two runs, whose kernel answers the question for the first difference. */
async function open(answer: ArrayBuffer | undefined, { dark = false, exported = false, traits = {} } = {}) {
  const run = madeRun(false, 2);
  const packets = [catalogPacket(run), catalogPacket(run, { run: 1, name: "second" })];
  shown = openExplorer(exported && answer ? [...packets, answer] : packets, {
    ...{ dark, exported, traits: { tensor: "loss", step: 20, follow: false, compare: { run: 1 }, ...traits } },
    reply: ({ what }) => {
      if (what !== "bisect" || !answer) return undefined;
      shown?.session.store.addPackets([answer]);
      return {};
    },
  });
  await loaded(shown.el);
  return shown;
}

test("the first difference of two runs is a mark on the axis that a press shows", async () => {
  const { el, session } = await open(packet());
  await until(() => mark().checkVisibility());
  expect(asked()).toEqual([{ what: "bisect", a: 0, b: 1 }]);
  expect(mark().textContent).toMatch(/^≠ .*k_proj/);
  expect(mark().title).toBe(`B = second. ${TEXT}\nthe seed differs`);
  const axis = $(el, ".smdw-axis").getBoundingClientRect();
  // The mark is in the second half, so that its text ends at its line.
  const line = axis.left + session.scene(axis.width).stepAxis.x(371);
  expect(Math.abs(mark().getBoundingClientRect().right - line)).toBeLessThan(2);
  mark().focus();
  expect(document.activeElement === mark() || el.contains(mark())).toBe(true);
  expect(mark().tabIndex).toBe(0);
  mark().click();
  expect(session.state.all()).toMatchObject({ step: 371, tensor: NAN_TENSOR, inspect: true, follow: false });
});

test("without a difference there is no mark, and the choice of B says so", async () => {
  const { el, session } = await open(packet({ step: null, tensor: "", text: "No difference", meaning: "" }), {
    traits: { inspect: true },
  });
  const says = () => [...el.querySelectorAll(".smdw-compare-fault")].map((each) => each.textContent);
  await until(() => says().includes("No difference"));
  expect(mark().checkVisibility()).toBe(false);
  session.state.set({ compare: { step: 3 } });
  await until(() => !says().includes("No difference"));
  expect(asked()).toHaveLength(1);
});

test("while the kernel looks for it, the choice of B says so", async () => {
  const { el } = await open(undefined, { traits: { inspect: true } });
  await until(() => el.textContent?.includes("Looking for the first difference"));
  expect(mark().checkVisibility()).toBe(false);
});

test.each([false, true])("a saved page has the mark, which is accessible (dark: %s)", async (dark) => {
  const { el } = await open(packet(), { exported: true, dark });
  await until(() => mark().checkVisibility());
  expect(asked()).toEqual([]);
  const { violations } = await axe.run($(el, ".smdw-axis"), { rules: { region: { enabled: false } } });
  expect(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
});
