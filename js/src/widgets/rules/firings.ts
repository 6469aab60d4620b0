/** Goes to what a rule has found. */
import type { RuleState } from "../../data/store";
import { defined } from "../../lib/defined";
import type { Finding } from "../../protocol/types";
import type { Session } from "../../session/session";

/** Goes to a step at which the rule fired, and to the tensor. */
export function goToFiring(session: Session, rule: RuleState, step: number): void {
  const finding = rule.findings.get(step)?.[0];
  if (finding) return goToFinding(session, rule, finding);
  session.state.set({ step, follow: false, run: rule.info.run });
  // Only the first finding and the newest ones are loaded; request others.
  if (rule.outcomes.get(step) !== 2 || session.exported) return;
  void session.connection.request("firing", { what: "firing", rule: rule.info.id, step }).then((answer) => {
    if (!answer?.firings?.length) return;
    rule.findings.set(step, answer.firings);
    if (session.state.get("step") === step) goToFinding(session, rule, defined(answer.firings[0]));
  });
}

/** Goes to the step and tensor of a finding. */
export function goToFinding({ state, store }: Session, { info: { run } }: RuleState, finding: Finding): void {
  // "" selects the first worker.
  const worker = finding.worker === store.runs.get(run)?.head.workers[0] ? "" : finding.worker;
  state.set({
    step: finding.step,
    follow: false,
    run,
    ...(finding.tensor ? { tensor: finding.tensor, worker } : {}),
  });
}
