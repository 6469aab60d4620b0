import { expect, test } from "vitest";
import { Store } from "../src/data/store";
import type { RuleStatus } from "../src/protocol/types";
import { ruleLabel } from "../src/widgets/rules/status";
import { rulesPacket } from "./packets";

function label(status: RuleStatus, outcome: number) {
  const store = new Store();
  store.addPackets([rulesPacket([{ info: { status }, outcomes: outcome ? { 0: outcome } : {} }])]);
  return [...store.rules.values()].map(ruleLabel)[0];
}

test.each([
  ["NoIssuesFound", 1, "Clear"],
  ["NoIssuesFound", 3, "Not judged"],
  ["NoIssuesFound", 0, "Not judged"],
  ["IssuesFound", 2, "Found"],
  ["InProgress", 1, "Running"],
  ["Error", 4, "Failed"],
  ["Stopping", 1, "Stopped"],
  ["Stopped", 1, "Stopped"],
] as const)("status %s with outcome %i is shown as %s", (status, outcome, shown) => {
  expect(label(status, outcome)).toBe(shown);
});

test("outcomes in appended packets count as judged", () => {
  const store = new Store();
  const info = { status: "NoIssuesFound" as const };
  store.addPackets([rulesPacket([{ info, outcomes: { 0: 3, 10: 3 } }])]);
  store.addPackets([rulesPacket([{ info, outcomes: { 20: 1 } }], true)]);
  store.addPackets([rulesPacket([{ info, outcomes: {} }], true)]);
  expect([...store.rules.values()].map(ruleLabel)).toEqual(["Clear"]);
});
