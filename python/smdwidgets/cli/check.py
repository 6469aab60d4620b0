"""Run rules over a run: a gate for a training job, in a terminal or in CI.

Examples:
  smdwidgets check runs/mlp
  smdwidgets check runs/mlp --rules VanishingGradient,LossNotDecreasing --param VanishingGradient.threshold=1e-6
  smdwidgets check s3://bucket/job/debug-output --config rules.json --junit rules.xml

Exit codes: 0 no rule fired, 1 a rule fired, 2 it could not be told (no such run or rule, a wrong parameter, a rule that
raised, or a rule asked for by name that found nothing to judge)
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from smdwidgets._text import did_you_mean, shown
from smdwidgets.cli._run import check_not_empty, plain
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.rules import BUILTIN, Rule, RuleRunner, describe
from smdwidgets.rules.actions import Actions, StopTraining
from smdwidgets.rules.builtin import CreateXgboostReport, SelectingRule, SimilarAcrossRuns, StalledTrainingRule
from smdwidgets.rules.evaluation import Evaluation
from smdwidgets.rules.making import make_rule
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial, create_trial

#: How many seconds `--follow` waits for a run to begin, where no --timeout is given.
WAIT_TO_BEGIN = 600.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declares what the command takes."""
    parser.add_argument("run", nargs="?", help="the run: a directory or an s3:// address")
    parser.add_argument(
        "--rules", metavar="A,B", help="names of rules; without it every built-in rule that needs no parameter"
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="RULE.NAME=VALUE",
        help="a parameter of a rule; may be given often",
    )
    parser.add_argument("--config", metavar="FILE", help="rules from JSON, as in a training request")
    parser.add_argument("--allow-custom", action="store_true", help="let --config execute rule files that it names")
    parser.add_argument("--start-step", type=int, default=0, metavar="N", help="the first step to judge")
    parser.add_argument("--end-step", type=int, metavar="N", help="the step to end before")
    parser.add_argument("--follow", action="store_true", help="wait for the run to begin, and go on until it has ended")
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="end after this long; what is not judged by then is exit code 2",
    )
    parser.add_argument("--stop-training", action="store_true", help="ask the training to stop when a rule fires")
    parser.add_argument(
        "--allow-unjudged", action="store_true", help="a named rule that finds nothing to judge is no failure"
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="the result as JSON, to a file or to standard output"
    )
    parser.add_argument("--junit", nargs="?", const="-", metavar="FILE", help="the result as JUnit XML, likewise")
    parser.add_argument("--list", action="store_true", help="list rules and their parameters, and end")


def run(args: argparse.Namespace) -> int:
    """Runs the rules and tells what they found."""
    if args.list:
        print(_list())
        return 0
    if args.run is None:
        raise SMDebugValueError("Which run? Give its directory or s3:// address; --list lists the rules.")
    if args.json == args.junit == "-":
        raise SMDebugValueError("--json and --junit can't both go to standard output: give one of them a file.")
    trial = _opened(args)
    runner = RuleRunner(trial, start_step=args.start_step, end_step=args.end_step, follow=args.follow)
    named = _add_rules(runner, trial, args)
    if not len(runner):
        raise SMDebugValueError("No rule to run.")
    if args.stop_training:
        for evaluation in runner:
            evaluation.rule.actions = Actions(*evaluation.rule.actions, StopTraining())
    in_time = _wait(runner, args.timeout)
    result = Result(runner, named and not args.allow_unjudged, in_time)
    if args.json is not None:
        _write(args.json, json.dumps(result.to_json(), indent=2) + "\n")
    if args.junit is not None:
        _write(args.junit, result.to_junit())
    if "-" not in (args.json, args.junit):
        print(result.text(sys.stdout.encoding))
    return result.exit_code


def _opened(args: argparse.Namespace) -> Trial:
    if not args.follow:
        check_not_empty(args.run)
        return create_trial(args.run)
    # It may be about to begin: CI starts the training and its guard together.
    return create_trial(args.run, wait=WAIT_TO_BEGIN if args.timeout is None else args.timeout)


def _add_rules(runner: RuleRunner, trial: Trial, args: argparse.Namespace) -> bool:
    """Adds the rules asked for; whether they were asked for by name."""
    parameters = _parameters(args.param)
    if args.config:
        configured = RuleRunner.from_json(trial, args.config, allow_custom=args.allow_custom)
        for evaluation in configured:
            changed = parameters.pop(evaluation.name, {})
            runner.add(make_rule(evaluation.rule, trial, changed), name=evaluation.name)
    names = [name.strip() for name in (args.rules or "").split(",") if name.strip()]
    defaults = not names and not args.config
    for name in names or (_by_default(parameters) if defaults else ()):
        runner.add(name, **parameters.pop(name, {}))
    if parameters:
        wrong = next(iter(parameters))
        known = [evaluation.name for evaluation in runner]
        raise SMDebugValueError(
            f"--param {wrong}.…: no rule of this name is to run.{did_you_mean(wrong, known)} To run: {', '.join(known)}."
        )
    return not defaults


def _by_default(parameters: dict[str, dict[str, str]]) -> list[str]:
    """Rules that can run without being told anything, and those that are told something."""
    told = {name for name in parameters if name in BUILTIN}
    needy = {name for name, rule in BUILTIN.items() if issubclass(rule, SelectingRule) and rule.needs_selector}
    needy |= {SimilarAcrossRuns.__name__, CreateXgboostReport.__name__, StalledTrainingRule.__name__}
    return [name for name in BUILTIN if name in told or name not in needy]


def _parameters(given: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for each in given:
        path, equals, value = each.partition("=")
        rule, dot, name = path.rpartition(".")
        if not equals or not dot or not rule or not name:
            raise SMDebugValueError(f"--param takes RULE.NAME=VALUE, not {shown(each)}.")
        found.setdefault(rule.strip(), {})[name.strip()] = value
    return found


def _wait(runner: RuleRunner, timeout: float | None) -> bool:
    """Runs to the end, showing how far it is; False if the time was up before."""
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


class Result:
    """What the rules found, in the forms that people and machines read."""

    def __init__(self, runner: RuleRunner, must_judge: bool, in_time: bool) -> None:
        self.trial = runner.trial
        self.evaluations = runner.evaluations
        self.summary = runner.summary()
        self.must_judge = must_judge
        self.in_time = in_time

    def unjudged(self, evaluation: Evaluation) -> bool:
        """Whether a rule found nothing to judge, though it was to."""
        return self.must_judge and not evaluation.judged and not evaluation.fired

    @property
    def exit_code(self) -> int:
        """0 none fired, 1 fired, 2 could not run."""
        if any(each.fired for each in self.evaluations):
            return 1
        if not self.in_time or any(
            each.errors or self.unjudged(each) or each.status == "Error" for each in self.evaluations
        ):
            return 2
        return 0

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {
            "run": str(self.trial.path),
            "exit_code": self.exit_code,
            "ended": bool(self.trial.loaded_all_steps),
            "in_time": self.in_time,
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
                    "findings": [finding.to_json() for finding in evaluation.first_firing.findings[:100]]
                    if evaluation.first_firing
                    else [],
                }
                for evaluation, summary in zip(self.evaluations, self.summary, strict=True)
            ],
        }

    def to_junit(self) -> str:
        """As JUnit XML: a test case a rule."""
        cases = self.evaluations
        suite = ElementTree.Element(
            "testsuite",
            name=_xml(f"smdwidgets check {self.trial.path}"),
            tests=str(len(cases)),
            failures=str(sum(each.fired for each in cases)),
            errors=str(sum(not each.fired and (each.errors > 0 or self.unjudged(each)) for each in cases)),
            skipped=str(
                sum(
                    not each.judged and not each.errors and not self.unjudged(each) and not each.fired for each in cases
                )
            ),
        )
        for evaluation in cases:
            case = ElementTree.SubElement(suite, "testcase", classname="rules", name=_xml(evaluation.name))
            details = _xml(evaluation.status_details())
            message = _xml(self._told(evaluation)[1])
            if evaluation.fired:
                ElementTree.SubElement(
                    case, "failure", message=message, type="RuleEvaluationConditionMet"
                ).text = details
            elif evaluation.errors or self.unjudged(evaluation):
                ElementTree.SubElement(case, "error", message=message).text = details
            elif not evaluation.judged:
                ElementTree.SubElement(case, "skipped", message=message)
        ElementTree.indent(suite)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"

    def text(self, encoding: str | None) -> str:
        """A line a rule, for a person."""
        marks = {"fired": "✗", "passed": "✓", "error": "!", "nothing": "-"}
        try:
            "".join(marks.values()).encode(encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            marks.update(fired="x", passed="+")
        width = max(len(each.name) for each in self.evaluations)
        lines = []
        for evaluation in self.evaluations:
            kind, told = self._told(evaluation)
            lines.append(f"{marks[kind]} {evaluation.name:<{width}}  {told}")
            for action, why in evaluation.rule.actions.failures:
                lines.append(f"  {'':<{width}}  action {action.name} failed: {why}")
        fired = sum(each.fired for each in self.evaluations)
        steps = max(each.done for each in self.evaluations)
        lines.append(f"{fired} of {len(self.evaluations)} rules fired over {steps} steps of {self.trial.path}")
        if not self.in_time:
            lines.append("The time was up before all steps were judged.")
        return "\n".join(plain(line, 4000) for line in lines)

    def _told(self, evaluation: Evaluation) -> tuple[str, str]:
        if first := evaluation.first_firing:
            total = evaluation.snapshot().firings_total
            return "fired", f"fired at step {first.step} ({total} of {evaluation.judged} judged steps): {first.message}"
        if evaluation.errors:
            return "error", evaluation.message
        if not evaluation.judged:
            return ("error" if self.unjudged(evaluation) else "nothing"), evaluation.message
        return "passed", f"{evaluation.judged} steps judged"


def _plain(rule: Rule) -> dict[str, Any]:
    formatted = getattr(rule, "formatted", None)
    return dict(formatted()) if formatted is not None else {}


def _xml(text: str) -> str:
    """Without characters that XML does not take."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)


def _write(where: str, text: str) -> None:
    if where == "-":
        sys.stdout.write(text)
    else:
        Path(where).write_text(text, encoding="utf-8")


def _list() -> str:
    lines = []
    for rule in BUILTIN.values():
        told = describe(rule)
        lines.append(f"{told['name']}: {told['summary']}")
        for parameter in told["parameters"]:
            unit = f" {parameter['unit']}" if parameter["unit"] else ""
            lines.append(f"    {parameter['name']}={parameter['text']}{unit}  {parameter['doc']}")
    return "\n".join(lines)
