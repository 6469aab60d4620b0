"""A rule: a condition on a run's tensors, asked at each step."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from smdwidgets.exceptions import RuleEvaluationConditionMet
from smdwidgets.rules.actions import Actions, parse_actions, run_path
from smdwidgets.rules.declared import parameters_of
from smdwidgets.rules.findings import Finding, number
from smdwidgets.rules.required import RequiredTensors

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["Rule"]


class Rule(ABC):
    """A condition asked at each step of a run. Write one by giving `invoke_at_step`; True means that it is met.

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

    Both documented forms of the constructor work, `Rule(base_trial, action_str, other_trials=None)` and
    `Rule(base_trial, other_trials=None)`. Arguments of your own should take strings too, since rules are also made from
    JSON. A rule may look at this step and earlier ones; a tensor that is not there raises, and the step is skipped.
    """

    def __init__(
        self,
        base_trial: Trial,
        action_str: str | Trial | Sequence[Trial] | None = "",
        other_trials: Trial | Sequence[Trial] | None = None,
    ) -> None:
        if not isinstance(action_str, str) and action_str is not None:
            # The form without action_str, with its arguments by position.
            other_trials, action_str = action_str, ""
        self.base_trial = base_trial
        self.other_trials: list[Trial] | None = _as_list(other_trials)
        self.trials: list[Trial] = [base_trial, *(self.other_trials or ())]
        self.rule_name = type(self).__name__
        self.logger = logging.getLogger(f"smdwidgets.rules.{self.rule_name}")
        self.actions: Actions = parse_actions(action_str or "")
        self.req_tensors = RequiredTensors(base_trial, self.other_trials)
        #: The tensors at fault at the step last asked.
        self.findings: list[Finding] = []
        #: Why there was nothing to judge at the step last asked, if so.
        self.skipped: str | None = None
        #: Counts over all steps asked so far, and the last findings.
        self.report: dict[str, Any] = {
            "RuleTriggered": 0,
            "Violations": 0,
            "Details": {},
            "Datapoints": 0,
            "RuleParameters": "",
        }

    @abstractmethod
    def invoke_at_step(self, step: int) -> bool:
        """Whether the condition is met at this (global) step."""

    def set_required_tensors(self, step: int) -> None:  # noqa: B027 - need not be given
        """Say which tensors this step needs, by `self.req_tensors.add(name, steps=[step])`. Need not be given."""

    def while_waiting(self, step: int, seconds: float) -> bool:
        """Asked from time to time while no new step comes: the last step seen, and the seconds since. For rules on silence."""
        return False

    def finish(self, last_step: int | None) -> None:  # noqa: B027 - need not be given
        """Called once when the run has ended and every step has been asked about."""

    def blame(
        self,
        tensor: str,
        step: int,
        value: float | None = None,
        limit: float | None = None,
        message: str = "",
        worker: str | None = None,
    ) -> Finding:
        """Note a tensor at fault: it shows in events, reports and beside the step in widgets."""
        if not message:
            message = f"{number(value)} against a limit of {number(limit)}" if limit is not None else number(value)
        finding = Finding(
            tensor,
            int(step),
            None if value is None else float(value),
            None if limit is None else float(limit),
            message,
            worker or None,
        )
        self.findings.append(finding)
        return finding

    def evaluate(self, step: int) -> bool:
        """Ask about one step: whether the condition is met. `findings` and `skipped` say more."""
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

    def invoke(self, step: int) -> None:
        """Ask about one step. When the condition is met the rule's actions run, and `RuleEvaluationConditionMet` is raised."""
        if self.evaluate(step):
            self.act(step)
            raise RuleEvaluationConditionMet(self.rule_name, step)

    def act(self, step: int) -> None:
        """Run the rule's actions, which come once, because of this step."""
        self.actions.run(self.rule_name, step, self.explain(step), run_path(self.base_trial))

    def explain(self, step: int) -> str:
        """What happened at the step last asked, in a sentence."""
        if not self.findings:
            return f"Rule {self.rule_name} fired at step {step}."
        more = f" (and {len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return f"{self.findings[0]}{more}"

    def _note(self, step: int) -> None:
        self.report["RuleTriggered"] += 1
        self.report["Violations"] += max(len(self.findings), 1)
        self.report["RuleParameters"] = ",".join(f"{name}={value}" for name, value in self._told().items())
        self.report["Details"] = {f"step_{step}": [finding.to_json() for finding in self.findings[:20]]}

    def _told(self) -> dict[str, object]:
        """The parameters' present values, as far as the rule keeps them under their names."""
        return {name: getattr(self, name) for name in parameters_of(type(self)) if hasattr(self, name)}

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self._told().items())
        return f"{self.rule_name}({told})"


def _as_list(trials: Trial | Iterable[Trial] | None) -> list[Trial] | None:
    if trials is None:
        return None
    if isinstance(trials, list | tuple):
        return list(trials)
    return [trials]  # type: ignore[list-item]
