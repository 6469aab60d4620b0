"""What `smdwidgets diagnose` does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from smdwidgets._text import shown
from smdwidgets.cli._run import check_not_empty, plain
from smdwidgets.diagnosis import Diagnosis, diagnose
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.executors import connect
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial, create_trial, create_trials

#: How many seconds `--follow` waits for the run to start.
WAIT_TO_BEGIN = 600.0


def run(args: argparse.Namespace) -> int:
    """Diagnose the runs and print the results."""
    kinds = _kinds(args.kind)
    if args.follow:
        if len(args.runs) != 1:
            raise SMDebugValueError(f"--follow takes one run, got {len(args.runs)}")
        results = list(_follow(args, kinds))[-1:]
    else:
        with connect(args.scheduler):
            results = list(_diagnose_all(args, kinds))
    if args.json:
        print(json.dumps([one.to_json() for one in results], indent=2))
    return exit_code(results, args.fail_on, args.allow_unjudged)


def exit_code(results: list[Diagnosis], fail_on: str, allow_unjudged: bool) -> int:
    """Return the exit code: 1 for a finding that counts, 2 if nothing can be judged.

    Otherwise 0. A finding that counts takes precedence over a run that cannot be judged.
    """
    counts = {"high": ("high",), "medium": ("high", "medium"), "low": ("high", "medium", "low")}[fail_on]
    for one in results:
        listed = (*one.findings, *one.notes) if fail_on == "low" else one.findings
        if any(finding.confidence in counts for finding in listed):
            return 1
    return 2 if not allow_unjudged and not all(one.can_tell for one in results) else 0


def _diagnose_all(args: argparse.Namespace, kinds: dict[str, str]) -> Iterator[Diagnosis]:
    trials = [trial for path in args.runs for trial in _open(path)]
    for trial in trials:
        with trial, Progress(plain(trial.name, 40)) as progress:
            result = diagnose(trial, kinds, args.until, progress=progress.update)
        if not args.json:
            _print(result, args.notes, heading=len(trials) > 1)
        yield result


def _open(path: str) -> list[Trial]:
    check_not_empty(path)
    return list(create_trials(path, skip_bad_index=True).values())


def _follow(args: argparse.Namespace, kinds: dict[str, str]) -> Iterator[Diagnosis]:
    [path] = args.runs
    with create_trial(path, wait=WAIT_TO_BEGIN, skip_bad_index=True) as trial:
        for result in diagnose(trial, kinds, args.until, follow=True):
            if not args.json:
                _print(result, args.notes, heading=False)
                sys.stdout.flush()
            yield result


def _print(result: Diagnosis, notes: bool, heading: bool) -> None:
    if heading:
        print(f"{plain(result.run, 4000)}:")
    for line in result.text(notes).splitlines():
        print(plain(line, 4000))
    if heading:
        print()


def _kinds(given: list[str]) -> dict[str, str]:
    kinds = {}
    for one in given:
        name, equals, kind = one.rpartition("=")
        if not equals or not name:
            raise SMDebugValueError(f"invalid --kind {shown(one)}; expected NAME=KIND, such as foo=loss")
        kinds[name] = kind
    return kinds
