import { expect, test } from "vitest";
import { cannedRules, rules } from "../demo/canned";
import { Store } from "../src/data/store";
import type { RuleStatus } from "../src/protocol/types";
import { ruleLabel } from "../src/widgets/rule-status";

function label(status: RuleStatus, outcome: number) {
  const store = new Store();
  const [rule] = cannedRules();
  if (!rule) throw new Error("no rule");
  store.addPackets([rules([{ ...rule, info: { ...rule.info, status }, outcome: () => outcome }])]);
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
  const [rule] = cannedRules();
  if (!rule) throw new Error("no rule");
  const info = { ...rule.info, status: "NoIssuesFound" as const };
  store.addPackets([rules([{ ...rule, info, outcome: () => 3 }])]);
  store.addPackets([rules([{ ...rule, info, outcome: (step) => (step === 0 ? 1 : 0) }], true)]);
  store.addPackets([rules([{ ...rule, info, outcome: () => 0 }], true)]);
  expect([...store.rules.values()].map(ruleLabel)).toEqual(["Clear"]);
});
