"""Evaluate the rules named on the command line, and format their results."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

from smdwidgets._text import did_you_mean, shown
from smdwidgets.cli._check_run import RunResult
from smdwidgets.cli._junit import Case, Outcome
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules import BUILTIN, Rule, RuleRunner
from smdwidgets.rules.actions import Actions, StopTraining
from smdwidgets.rules.builtin import CreateXgboostReport, SelectingRule, SimilarAcrossRuns, StalledTrainingRule
from smdwidgets.rules.creation import make_rule
from smdwidgets.rules.evaluation import Evaluation
from smdwidgets.rules.findings import step_text
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial

#: What `--rules` takes for every built-in rule that needs no parameters.
ALL = "all"
#: Outcome and type of a test case, by the outcome of the rule.
_OUTCOMES: dict[str, tuple[Outcome, str]] = {
    "fired": ("failure", "RuleEvaluationConditionMet"),
    "error": ("error", ""),
    "nothing": ("skipped", ""),
    "passed": ("passed", ""),
}


def check_rules(trial: Trial, args: argparse.Namespace) -> RuleResult:
    """Evaluate the requested rules over the run."""
    runner = RuleRunner(trial, start_step=args.start_step, end_step=args.end_step, follow=args.follow)
    named = _add_rules(runner, trial, args)
    if not len(runner):
        raise SMDebugValueError("no rules to evaluate; name at least one with --rules or --config")
    if args.stop_training:
        for evaluation in runner:
            evaluation.rule.actions = Actions(*evaluation.rule.actions, StopTraining())
    return RuleResult(runner, named, args.allow_unjudged, wait_for_rules(runner, args.timeout))


def _add_rules(runner: RuleRunner, trial: Trial, args: argparse.Namespace) -> bool:
    """Add the requested rules to the runner.

    Returns whether each was requested by its own name, so that it must find something to judge.
    """
    parameters = _parameters(args.param)
    if args.config:
        configured = RuleRunner.from_json(trial, args.config, allow_custom=args.allow_custom)
        for evaluation in configured:
            changed = parameters.pop(evaluation.name, {})
            runner.add(make_rule(evaluation.rule, trial, changed), name=evaluation.name)
    names = [name.strip() for name in (args.rules or "").split(",") if name.strip()]
    every = ALL in names
    for name in without_required_parameters(parameters) if every else names:
        runner.add(name, **parameters.pop(name, {}))
    if parameters:
        wrong = next(iter(parameters))
        known = [evaluation.name for evaluation in runner]
        raise SMDebugValueError(
            f"invalid --param: rule {wrong!r} is not among the rules to evaluate.{did_you_mean(wrong, known)} "
            f"Rules to evaluate: {', '.join(known)}"
        )
    return not every


def without_required_parameters(parameters: dict[str, dict[str, str]]) -> list[str]:
    """Return the names of the rules that need no parameters or were given some."""
    configured = {name for name in parameters if name in BUILTIN}
    required = {name for name, rule in BUILTIN.items() if issubclass(rule, SelectingRule) and rule.needs_selector}
    required |= {SimilarAcrossRuns.__name__, CreateXgboostReport.__name__, StalledTrainingRule.__name__}
    return [name for name in BUILTIN if name in configured or name not in required]


def _parameters(given: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in given:
        path, equals, value = each.partition("=")
        rule, dot, name = path.rpartition(".")
        if not equals or not dot or not rule or not name:
            raise SMDebugValueError(f"invalid --param {shown(each)}; expected RULE.NAME=VALUE")
        found.setdefault(rule.strip(), {})[name.strip()] = value
    return found


def wait_for_rules(runner: RuleRunner, timeout: float | None = None) -> bool:
    """Evaluate all steps and show progress; return False on timeout."""
    end = None if timeout is None else time.monotonic() + timeout
    with Progress("rules") as progress:
        runner.start()
        try:
            while not runner.wait(0.2):
                progress.update(*runner.progress)
                if end is not None and time.monotonic() >= end:
                    runner.stop(timeout=5.0)
                    return False
        except KeyboardInterrupt:
            runner.stop(timeout=5.0)
            raise
    return True


class RuleResult(RunResult):
    """The result of all rules."""

    def __init__(self, runner: RuleRunner, must_judge: bool, allow_unjudged: bool, in_time: bool) -> None:
        super().__init__(runner.trial, allow_unjudged, in_time)
        self.evaluations = runner.evaluations
        self.summary = runner.summary()
        self.must_judge = must_judge and not allow_unjudged

    def unjudged(self, evaluation: Evaluation) -> bool:
        """Whether a rule that must judge found nothing to judge."""
        return self.must_judge and not evaluation.judged and not evaluation.fired

    @property
    def exit_code(self) -> int:
        """Exit code: 0 no rule fired, 1 a rule fired, 2 an error occurred."""
        if any(each.fired for each in self.evaluations):
            return 1
        if (
            not self.in_time
            or self.empty
            or any(each.errors or self.unjudged(each) or each.status == "Error" for each in self.evaluations)
        ):
            return 2
        return 0

    def _judgements(self) -> dict[str, Any]:
        return {
            "diagnosis": None,
            "rules": [
                {
                    **{
                        key: value
                        for key, value in summary.items()
                        if key not in ("LastModifiedTime", "RuleEvaluationJobArn")
                    },
                    "parameters": _plain(evaluation.rule),
                    "steps": evaluation.done,
                    "judged": evaluation.judged,
                    "errors": evaluation.errors,
                    "fired": evaluation.snapshot().firings_total,
                    "first_fired": evaluation.first_firing.step if evaluation.first_firing else None,
                    "finding": evaluation.finding.to_json() if evaluation.finding else None,
                }
                for evaluation, summary in zip(self.evaluations, self.summary, strict=True)
            ],
        }

    def _cases(self) -> list[Case]:
        """Return one test case per rule."""
        return [self._case(each) for each in self.evaluations]

    def _case(self, evaluation: Evaluation) -> Case:
        kind, message = self._outcome(evaluation)
        details = evaluation.status_details() if kind in ("fired", "error") else ""
        outcome, type_ = _OUTCOMES[kind]
        return Case("rules", evaluation.name, outcome, message, details, type_)

    def _lines(self, marks: dict[str, str]) -> list[str]:
        """Return one line per rule, and a summary."""
        width = max(len(each.name) for each in self.evaluations)
        lines = []
        for evaluation in self.evaluations:
            kind, message = self._outcome(evaluation)
            lines.append(f"{marks[kind]} {evaluation.name:<{width}}  {message}")
            for action, why in evaluation.rule.actions.failures:
                lines.append(f"  {'':<{width}}  action {action.name} failed: {why}")
        fired = sum(each.fired for each in self.evaluations)
        steps = max(each.done for each in self.evaluations)
        lines.append(f"{fired} of {len(self.evaluations)} rules fired over {steps} steps of {self.trial.path}")
        return lines

    def _outcome(self, evaluation: Evaluation) -> tuple[str, str]:
        """Return the key of the mark, and the message."""
        if first := evaluation.first_firing:
            total = evaluation.snapshot().firings_total
            at = step_text(self.trial, first.step or 0)
            return "fired", f"fired at {at} ({total} of {evaluation.judged} judged steps): {first.message}"
        if evaluation.errors:
            return "error", evaluation.message
        if not evaluation.judged:
            return ("error" if self.unjudged(evaluation) else "nothing"), evaluation.message
        return "passed", f"{evaluation.judged} steps judged"


def _plain(rule: Rule) -> dict[str, Any]:
    formatted = getattr(rule, "formatted", None)
    return dict(formatted()) if formatted is not None else {}
