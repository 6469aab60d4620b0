"""Evaluate rules on a run, for use in a terminal or as a CI gate.

Examples:
  smdwidgets check runs/mlp
  smdwidgets check runs/mlp --rules VanishingGradient,LossNotDecreasing --param VanishingGradient.threshold=1e-6
  smdwidgets check s3://bucket/job/debug-output --config rules.json --junit rules.xml

Exit codes: 0 no rule fired, 1 a rule fired, 2 an error occurred (no such run or rule, an invalid parameter, a rule that
raised, a timeout, a run without a step, or a rule requested by name that found nothing to judge)
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
from smdwidgets.rules.creation import make_rule
from smdwidgets.rules.evaluation import Evaluation
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial, create_trial

_EMPTY = "The run has no step, so that no rule could judge anything"
#: How many seconds `--follow` waits for the run to start, unless --timeout is given.
WAIT_TO_BEGIN = 600.0


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command to its parser."""
    parser.add_argument("run", nargs="?", help="the run: a directory or an s3:// address")
    parser.add_argument(
        "--rules", metavar="A,B", help="rule names (default: every built-in rule without required parameters)"
    )
    parser.add_argument(
        "--param",
        action="append",
        default=[],
        metavar="RULE.NAME=VALUE",
        help="a rule parameter; repeatable",
    )
    parser.add_argument(
        "--config", metavar="FILE", help="read rules from a JSON file in the format of a SageMaker training request"
    )
    parser.add_argument(
        "--allow-custom", action="store_true", help="allow --config to execute the rule files that it names"
    )
    parser.add_argument("--start-step", type=int, default=0, metavar="N", help="first step (default: 0)")
    parser.add_argument("--end-step", type=int, metavar="N", help="end step (exclusive)")
    parser.add_argument(
        "--follow", action="store_true", help="wait for the run to start, and evaluate new steps until it ends"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="stop after this time; exit code 2 if steps remain unjudged",
    )
    parser.add_argument("--stop-training", action="store_true", help="request that training stops when a rule fires")
    parser.add_argument(
        "--allow-unjudged",
        action="store_true",
        help="do not fail if the run has no step or a named rule finds nothing to judge",
    )
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="write the result as JSON to FILE or to standard output"
    )
    parser.add_argument(
        "--junit", nargs="?", const="-", metavar="FILE", help="write the result as JUnit XML to FILE or standard output"
    )
    parser.add_argument("--list", action="store_true", help="list the rules and their parameters, and exit")


def run(args: argparse.Namespace) -> int:
    """Evaluate the rules and report the result."""
    if args.list:
        print(_list())
        return 0
    if args.run is None:
        raise SMDebugValueError("missing argument RUN; give a directory or s3:// address, or --list to list the rules")
    if args.json == args.junit == "-":
        raise SMDebugValueError("--json and --junit cannot both write to standard output; give one of them a file")
    trial = _open_trial(args)
    runner = RuleRunner(trial, start_step=args.start_step, end_step=args.end_step, follow=args.follow)
    named = _add_rules(runner, trial, args)
    if not len(runner):
        raise SMDebugValueError("no rules to evaluate; name at least one with --rules or --config")
    if args.stop_training:
        for evaluation in runner:
            evaluation.rule.actions = Actions(*evaluation.rule.actions, StopTraining())
    in_time = _wait(runner, args.timeout)
    result = Result(runner, named, args.allow_unjudged, in_time)
    if args.json is not None:
        _write(args.json, json.dumps(result.to_json(), indent=2) + "\n")
    if args.junit is not None:
        _write(args.junit, result.to_junit())
    if "-" not in (args.json, args.junit):
        print(result.text(sys.stdout.encoding))
    return result.exit_code


def _open_trial(args: argparse.Namespace) -> Trial:
    if not args.follow:
        check_not_empty(args.run)
        return create_trial(args.run)
    # The run may not exist yet: CI can start the training and this command together.
    return create_trial(args.run, wait=WAIT_TO_BEGIN if args.timeout is None else args.timeout)


def _add_rules(runner: RuleRunner, trial: Trial, args: argparse.Namespace) -> bool:
    """Add the requested rules to the runner.

    Returns whether the rules were requested explicitly.
    """
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
            f"invalid --param: rule {wrong!r} is not among the rules to evaluate.{did_you_mean(wrong, known)} "
            f"Rules to evaluate: {', '.join(known)}"
        )
    return not defaults


def _by_default(parameters: dict[str, dict[str, str]]) -> list[str]:
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


def _wait(runner: RuleRunner, timeout: float | None) -> bool:
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


class Result:
    """The result of all rules, as text, JSON or JUnit XML."""

    def __init__(self, runner: RuleRunner, named: bool, allow_unjudged: bool, in_time: bool) -> None:
        self.trial = runner.trial
        self.evaluations = runner.evaluations
        self.summary = runner.summary()
        self.must_judge = named and not allow_unjudged
        #: Whether the run has no step although it must have one.
        self.empty = not allow_unjudged and not self.trial.steps(show_incomplete_steps=True)
        #: What the hook was asked to save and did not get.
        self.notes = list(dict.fromkeys(text for _, text in self.trial.notes()))
        self.in_time = in_time

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

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON-serializable objects."""
        return {
            "run": str(self.trial.path),
            "exit_code": self.exit_code,
            "ended": bool(self.trial.loaded_all_steps),
            "in_time": self.in_time,
            "empty": self.empty,
            "notes": self.notes,
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
        """Return the result as JUnit XML, with one test case per rule."""
        cases = self.evaluations
        suite = ElementTree.Element(
            "testsuite",
            name=_xml(f"smdwidgets check {self.trial.path}"),
            tests=str(len(cases) + self.empty),
            failures=str(sum(each.fired for each in cases)),
            errors=str(self.empty + sum(not each.fired and (each.errors > 0 or self.unjudged(each)) for each in cases)),
            skipped=str(
                sum(
                    not each.judged and not each.errors and not self.unjudged(each) and not each.fired for each in cases
                )
            ),
        )
        for evaluation in cases:
            case = ElementTree.SubElement(suite, "testcase", classname="rules", name=_xml(evaluation.name))
            details = _xml(evaluation.status_details())
            message = _xml(self._outcome(evaluation)[1])
            if evaluation.fired:
                ElementTree.SubElement(
                    case, "failure", message=message, type="RuleEvaluationConditionMet"
                ).text = details
            elif evaluation.errors or self.unjudged(evaluation):
                ElementTree.SubElement(case, "error", message=message).text = details
            elif not evaluation.judged:
                ElementTree.SubElement(case, "skipped", message=message)
        if self.empty:
            case = ElementTree.SubElement(suite, "testcase", classname="run", name="steps")
            ElementTree.SubElement(case, "error", message=_xml(_EMPTY)).text = _xml("\n".join(self.notes))
        if self.notes:
            ElementTree.SubElement(suite, "system-out").text = _xml("\n".join(self.notes))
        ElementTree.indent(suite)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"

    def text(self, encoding: str | None) -> str:
        """Return the result as text, with one line per rule."""
        marks = {"fired": "✗", "passed": "✓", "error": "!", "nothing": "-"}
        try:
            "".join(marks.values()).encode(encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            marks.update(fired="x", passed="+")
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
        lines += [f"Note: {note}" for note in self.notes]
        if self.empty:
            lines.append(f"{_EMPTY} (--allow-unjudged accepts this).")
        if not self.in_time:
            lines.append("Timed out before all steps were judged.")
        return "\n".join(plain(line, 4000) for line in lines)

    def _outcome(self, evaluation: Evaluation) -> tuple[str, str]:
        """Return the key of the mark, and the message."""
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
    """Replace the characters that XML does not allow."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)


def _write(where: str, text: str) -> None:
    if where == "-":
        sys.stdout.write(text)
    else:
        Path(where).write_text(text, encoding="utf-8")


def _list() -> str:
    lines = []
    for rule in BUILTIN.values():
        description = describe(rule)
        lines.append(f"{description['name']}: {description['summary']}")
        for parameter in description["parameters"]:
            unit = f" {parameter['unit']}" if parameter["unit"] else ""
            lines.append(f"    {parameter['name']}={parameter['text']}{unit}  {parameter['doc']}")
    return "\n".join(lines)
