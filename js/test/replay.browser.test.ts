/** The batch of a finding and its replay, over a recorded conversation and made-up answers. */

import axe from "axe-core";
import { afterEach, describe, expect, test } from "vitest";
import recording from "../../tests/transcripts/replay.json";
import { type Exchange, unpack } from "../demo/recorded";
import { encode } from "../src/protocol/packet";
import type { ReplayHead, ReplayOffer } from "../src/protocol/types";
import { type OpenedExplorer, openExplorer } from "./explorer-helpers";
import { $, button, loaded, until } from "./helpers";

const exchanges = recording as unknown as Exchange[];
const STEP = 12;

let shown: OpenedExplorer | undefined;
afterEach(() => {
  shown?.close();
  shown = undefined;
});

const packetsOf = (exchange: Exchange | undefined) =>
  Promise.all((exchange?.received ?? []).flatMap((each) => each.packets).map(unpack));

/** What the kernel said at the start, and what it pushed when the steps had been executed. */
const atStart = () => packetsOf(exchanges.find(({ sent }) => sent?.what === "hello"));
const pushed = () => packetsOf(exchanges.find(({ sent }) => sent === null));

interface Options {
  offer?: Partial<ReplayOffer>;
  exported?: boolean;
  dark?: boolean;
  width?: number;
}

/** Opens the run with one finding whose batch is known. */
async function open({ offer = {}, exported = false, dark = false, width = 1000 }: Options = {}) {
  shown = openExplorer([...(await atStart()), finding(offer)], {
    ...{ traits: { tensor: "w", step: STEP, follow: false }, width, dark, exported },
    reply: ({ what }) => (what === "replay" ? {} : undefined),
  });
  await loaded(shown.el);
  return shown;
}

const finding = (offer: Partial<ReplayOffer>) =>
  encode({
    ...{ kind: "diagnosis", run: 0, state: "found", summary: "", notes: [], withdrawn: [] },
    findings: [
      {
        ...{ id: "not_finite:w:12", kind: "not_finite", level: "problem", confidence: "proof", tensor: "w" },
        ...{ first: STEP, title: "`w` is NaN", text: "It is.", explains: "", advice: "Look.", about: "problem" },
        replay: { step: STEP, rows: ["302", "88"], more: 14, why_not: "", ...offer },
      },
    ],
  });

const answer = (head: Partial<ReplayHead>) =>
  encode({
    ...{ kind: "replay", run: 0, step: STEP, state: "running", doing: "", done: 0, total: 0, seconds_left: null },
    ...{ message: "", explanation: null, rows: [], changes: [] },
    ...head,
  });

const panel = () => $((shown as OpenedExplorer).el, ".smdw-replay");
const text = (selector: string) => $(panel(), selector).textContent;
const answered = () => until(() => $(panel(), ".smdw-replay-answer").checkVisibility());
const commands = () => (shown as OpenedExplorer).sent.filter(({ what }) => what === "replay");

test("a press on Replay shows the line, the row and that the run heals without it", async () => {
  const { session } = await open();
  expect(text(".smdw-replay-batch")).toBe("Batch of step 12: rows30288and 14 more of the data set");
  button(panel(), "Replay").click();
  expect(commands()).toEqual([{ what: "replay", do: "start", run: 0, step: STEP }]);
  session.store.addPackets(await pushed());
  await until(() => text(".smdw-replay-headline") === "Step 12: aten.div returned NaN (forward)");
  expect(text(".smdw-replay-place")).toBe("model.py:3");
  expect(text("[data-named] code")).toBe("    return x / whole");
  expect(text(".smdw-replay-rows")).toBe("Bad row of the data set:88");
  expect(text(".smdw-replay-outcome")).toBe("\u2713without row 88: heals");
  expect(panel().querySelectorAll(".smdw-replay-outcome path")).toHaveLength(2);
  expect(text(".smdw-replay-verified")).toBe(
    "Executed again: bit-equal, 3 of 3 steps. Losses: dotted as recorded, solid with the change.",
  );
});

test("a chip tries a change, keeps the focus, and does nothing while steps are executed", async () => {
  const { session } = await open();
  session.store.addPackets(await pushed());
  await answered();
  const chip = button(panel(), "clip 1");
  chip.focus();
  chip.click();
  expect(commands()).toEqual([{ what: "replay", do: "try", run: 0, step: STEP, change: "clip" }]);
  const head = session.store.replays.get(`0/${STEP}`) as ReplayHead;
  session.store.addPackets([encode({ ...head, state: "running", doing: "trying: clip 1", done: 1, total: 3 })]);
  await until(() => text(".smdw-replay-state") === "Trying: clip 1: 1 of about 3 steps");
  expect(document.activeElement?.textContent).toBe("clip 1");
  button(panel(), "lr \u00d7 0.1").click();
  expect(commands()).toHaveLength(1);
  button(panel(), "Stop").click();
  expect(commands().at(-1)).toEqual({ what: "replay", do: "stop", run: 0, step: STEP });
  const curve = { steps: [10, 11, 12], values: [1, 1, null] };
  const outcome = { heals: false, text: "clip 1: stays", recorded: curve, changed: curve };
  const changes = head.changes.map((each) => (each.id === "clip" ? { ...each, outcome } : each));
  session.store.addPackets([encode({ ...head, changes })]);
  const tried = await until(() => panel().querySelector<HTMLElement>('[data-change="clip"][data-heals="false"]'));
  expect(document.activeElement).toBe(tried);
  expect(tried.textContent).toBe("\u2717clip 1: stays");
});

describe("states", () => {
  test("progress has a number and an estimate, or moves by itself", async () => {
    const { session } = await open();
    session.store.addPackets([answer({ doing: "beginning" })]);
    await until(() => text(".smdw-replay-state") === "Beginning");
    const bar = $<HTMLProgressElement>(panel(), "progress");
    expect([bar.hidden, bar.position]).toEqual([false, -1]);
    session.store.addPackets([answer({ doing: "looking", done: 3, total: 12, seconds_left: 8.6 })]);
    await until(() => text(".smdw-replay-state") === "Looking: 3 of about 12 steps, about 9 s left");
    expect(bar.position).toBe(0.25);
    expect(button(panel(), "Replay again").hidden).toBe(true);
  });

  test("a reason is in the place of the button", async () => {
    await open({ offer: { why_not: "this process did not train" } });
    expect(text(".smdw-replay-why")).toBe("Replay: this process did not train");
    expect(button(panel(), "Replay").hidden).toBe(true);
    expect(text(".smdw-replay-batch")).toContain("302");
  });

  test("a failure is shown, and what was known stays away", async () => {
    const { session } = await open({ offer: { rows: [], more: 0 } });
    expect(text(".smdw-replay-batch")).toBe("Batch of step 12: rows not known");
    session.store.addPackets([answer({ state: "failed", message: "a cell is running" })]);
    await until(() => text(".smdw-replay-state") === "a cell is running");
    expect($(panel(), ".smdw-replay-state").classList.contains("smdw-error")).toBe(true);
    expect($(panel(), ".smdw-replay-answer").hidden).toBe(true);
    session.store.addPackets([answer({ state: "stopped" })]);
    await until(() => text(".smdw-replay-state") === "Stopped");
    expect(button(panel(), "Replay again").hidden).toBe(false);
  });

  test("a saved page keeps the answer, and offers nothing that needs the kernel", async () => {
    const { session } = await open({ exported: true });
    expect(text(".smdw-replay-why")).toBe("Replay needs the kernel that trained");
    session.store.addPackets(await pushed());
    await until(() => text(".smdw-replay-outcome") === "\u2713without row 88: heals");
    const names = [...panel().querySelectorAll("button")].filter((each) => each.checkVisibility());
    expect(names.map((each) => each.textContent)).toEqual(["Hide"]);
  });

  test("the answer can be hidden", async () => {
    const { session } = await open();
    session.store.addPackets(await pushed());
    await answered();
    const hide = button(panel(), "Hide the answer");
    hide.click();
    await until(() => $(panel(), ".smdw-replay-answer").hidden);
    expect(hide.getAttribute("aria-expanded")).toBe("false");
    button(panel(), "Show the answer").click();
    await until(() => !$(panel(), ".smdw-replay-answer").hidden);
  });
});

test.each([
  ["light", false, 1000],
  ["dark", true, 1000],
  ["narrow", false, 600],
])("is accessible and fits, %s", async (_, dark, width) => {
  const { el, session } = await open({ dark, width });
  session.store.addPackets(await pushed());
  await answered();
  const { violations } = await axe.run(panel(), { rules: { region: { enabled: false } } });
  expect(violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`)).toEqual([]);
  const [outer, inner] = [$(el, ".smdw-explorer"), panel()].map((each) => each.getBoundingClientRect());
  expect(inner?.right).toBeLessThanOrEqual((outer?.right ?? 0) + 1);
  expect(panel().scrollWidth).toBeLessThanOrEqual(panel().clientWidth);
});
