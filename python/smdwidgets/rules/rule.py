"""Base class of rules: conditions on a run's tensors, evaluated at each step."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from smdwidgets.exceptions import RuleEvaluationConditionMet
from smdwidgets.finding import Evidence
from smdwidgets.rules.actions import Actions, parse_actions, run_path
from smdwidgets.rules.declared import parameters_of
from smdwidgets.rules.findings import number, step_text
from smdwidgets.rules.required import RequiredTensors
from smdwidgets.rules.verdicts import Outcome, Verdicts

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["Rule"]


class Rule(ABC):
    """A condition that is evaluated at each step of a run.

    Subclasses implement `invoke_at_step`, which returns True if the rule fires.

    ::

        class GradientTooSmall(Rule):
            def __init__(self, base_trial, threshold="1e-7"):
                super().__init__(base_trial, other_trials=None)
                self.threshold = float(threshold)

            def invoke_at_step(self, step):
                for name in self.base_trial.tensor_names(step=step, collection="gradients"):
                    mean = self.base_trial.tensor(name).reduction_value(step, "mean", abs=True)
                    if mean < self.threshold:
                        self.blame(name, step, value=mean, limit=self.threshold)
                return bool(self.findings)

        invoke_rule(GradientTooSmall(create_trial("runs/mlp")))

    The constructor accepts both forms that smdebug documents, `Rule(base_trial, action_str, other_trials=None)` and
    `Rule(base_trial, other_trials=None)`. Additional arguments should accept strings, because rules can be created from
    JSON. A rule can read the current step and earlier steps. If a tensor is not available, the exception skips the
    step.
    """

    def __init__(
        self,
        base_trial: Trial,
        action_str: str | Trial | Sequence[Trial] | None = "",
        other_trials: Trial | Sequence[Trial] | None = None,
    ) -> None:
        if not isinstance(action_str, str) and action_str is not None:
            # The form without action_str, with positional arguments.
            other_trials, action_str = action_str, ""
        self.base_trial = base_trial
        self.other_trials: list[Trial] | None = _as_list(other_trials)
        self.trials: list[Trial] = [base_trial, *(self.other_trials or ())]
        self.rule_name = type(self).__name__
        self.logger = logging.getLogger(f"smdwidgets.rules.{self.rule_name}")
        self.actions: Actions = parse_actions(action_str or "")
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        #: What was observed at the last evaluated step. A rule that fires is one `Finding`, with these as evidence.
        self.findings: list[Evidence] = []
        #: Why the last evaluated step was skipped, or None.
        self.skipped: str | None = None
        #: Counts over all evaluated steps, and the latest findings.
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }

    #: What the rule needs before it can be evaluated; empty if nothing.
    incomplete = ""

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Return whether the rule fires at this global step."""

    def set_required_tensors(self, step: int) -> None:  # noqa: B027 - optional
        """Declare the tensors needed at this step. Optional.

        Call `self.req_tensors.add(name, steps=[step])` for each tensor.
        """

    def judge_many(self, steps: Sequence[int]) -> Verdicts | None:
        """Judge consecutive steps at once, with the outcomes of judging them one by one.

        Returns None if the rule judges steps one by one only. Optional.
        """
        return None

    def while_waiting(self, step: int, seconds: float) -> bool:
        """Return whether the rule fires while waiting for a new step.

        Called periodically, for rules that detect stalled runs.

        Args:
            step: the last step seen.
            seconds: time since that step was seen.
        """
        return False

    def finish(self, last_step: int | None) -> None:  # noqa: B027 - optional
        """Called once after the run has ended and all steps were evaluated. Optional."""

    def blame(
        self,
        tensor: str,
        step: int,
        value: float | None = None,
        limit: float | None = None,
        message: str = "",
        worker: str | None = None,
    ) -> Evidence:
        """Add evidence, which is shown in events, reports and widgets."""
        if not message:
            message = f"{number(value)}, limit {number(limit)}" if limit is not None else number(value)
        finding = Evidence(
            message,
            tensor,
            int(step),
            None if value is None else float(value),
            None if limit is None else float(limit),
            worker or "",
        )
        self.findings.append(finding)
        return finding

    def evaluate(self, step: int) -> bool:
        """Evaluate one step and return whether the rule fires.

        Sets `findings` and `skipped`.
        """
        self.findings = []
        self.skipped = None
        self.req_tensors.clear()
        self.set_required_tensors(step)
        self.req_tensors.fetch()
        met = bool(self.invoke_at_step(step))
        self.report["Datapoints"] += 1
        if met:
            self._note(step)
        return met

    def evaluate_many(self, steps: Sequence[int]) -> Verdicts | None:
        """Evaluate consecutive steps at once; None if they must be evaluated one by one."""
        found = self.judge_many(steps)
        if found is None:
            return None
        fired = found.rows(Outcome.FIRED)
        self.report["Datapoints"] += len(steps)
        for row in fired[-1:]:
            self.findings = found.findings(row)
            self._note(steps[row])
        self.report["RuleTriggered"] += max(0, len(fired) - 1)
        self.report["Violations"] += int(found.counts[fired[:-1]].sum())
        last = len(steps) - 1
        self.findings = found.findings(last) if found.outcomes[last] == Outcome.FIRED else []
        self.skipped = found.reason(last) if found.outcomes[last] == Outcome.SKIPPED else None
        return found

    def invoke(self, step: int) -> None:
        """Evaluate one step. If the rule fires, run its actions and raise.

        Raises:
            RuleEvaluationConditionMet: the rule fired.
        """
        if self.evaluate(step):
            self.act(step)
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def act(self, step: int) -> None:
        """Run the rule's actions, which run at the first firing only."""
        self.actions.run(self.rule_name, step, self.explain(step), run_path(self.base_trial))

    def explain(self, step: int) -> str:
        """Describe the firing at the last evaluated step."""
        if not self.findings:
            return f"Rule {self.rule_name} fired at {step_text(self.base_trial, step)}."
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return f"{self.findings[0]}{more}"

    def _note(self, step: int) -> None:
        self.report["RuleTriggered"] += 1
        self.report["Violations"] += max(len(self.findings), 1)
        self.report["RuleParameters"] = ",".join(
            f"{name}={value}" for name, value in self._current_parameters().items()
        )
        self.report["Details"] = {f"step_{step}": [finding.to_json() for finding in self.findings[:20]]}

    def _current_parameters(self) -> dict[str, object]:
        """Return the current values of parameters that are stored as attributes."""
        return {name: getattr(self, name) for name in parameters_of(type(self)) if hasattr(self, name)}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._current_parameters().items())
        return f"{self.rule_name}({arguments})"


def _as_list(trials: Trial | Iterable[Trial] | None) -> list[Trial] | None:
    if trials is None:
        return None
    if isinstance(trials, list | tuple):
        return list(trials)
    return [trials]  # type: ignore[list-item]
