/** The status of a rule as the panel shows it. */
import type { RuleState } from "../../data/store";

export type RuleLabel = "Found" | "Clear" | "Not judged" | "Running" | "Paused" | "Stopped" | "Failed";

export function ruleLabel({ info, judged }: Pick<RuleState, "info" | "judged">): RuleLabel {
  switch (info.status) {
    case "IssuesFound":
      return "Found";
    case "NoIssuesFound":
      return judged ? "Clear" : "Not judged";
    case "InProgress":
      return info.paused ? "Paused" : "Running";
    case "Error":
      return "Failed";
    default:
      return "Stopped";
  }
}

export const RULE_ICONS: Record<RuleLabel, string> = {
  Running: "\u25d4",
  Paused: "\u2016",
  Clear: "\u2713",
  "Not judged": "\u2013",
  Found: "\u25b2",
  Failed: "\u2715",
  Stopped: "\u25a0",
};
