"""What `smdwidgets diagnose` does."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from smdwidgets._text import did_you_mean, shown
from smdwidgets.cli._annotations import github, sarif
from smdwidgets.cli._notify import Notifier
from smdwidgets.cli._run import plain
from smdwidgets.cli._terminal import curve, is_terminal, show, width
from smdwidgets.diagnosis import Diagnoser, Diagnosis, diagnose, summaries_of
from smdwidgets.diagnosis.diagnoser import NO_SUCH_SERIES
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.executors import connect
from smdwidgets.finding import CONFIDENCES, Confidence
from smdwidgets.naming.scalars import is_loss
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial, create_trial, create_trials

#: How many seconds `--follow` waits for the run to start.
WAIT_TO_BEGIN = 600.0
#: Losses whose course a terminal shows.
_CURVES = 3


def run(args: argparse.Namespace) -> int:
    """Diagnose the runs and print the results."""
    kinds = _kinds(args.kind)
    if args.notify is not None and not args.follow:
        raise SMDebugValueError("--notify requires --follow")
    if args.follow:
        if args.against:
            raise SMDebugValueError("--follow cannot compare with reference runs; drop --against or --follow")
        if len(args.runs) != 1:
            raise SMDebugValueError(f"--follow takes one run, got {len(args.runs)}")
        results = list(_follow(args, kinds))[-1:]
    else:
        with connect(args.scheduler):
            results = list(_diagnose_all(args, kinds))
    _check_names(kinds, results)
    if args.json:
        print(json.dumps([one.to_json() for one in results], indent=2))
    elif args.sarif:
        print(json.dumps(sarif(results), indent=2))
    elif args.github and results:
        print(github(results))
    return exit_code(results, args.fail_on, args.allow_unjudged)


def exit_code(results: list[Diagnosis], fail_on: Confidence, allow_unjudged: bool) -> int:
    """Return the exit code: 1 for a finding that counts, 2 if nothing can be judged.

    Otherwise 0. A finding that counts takes precedence over a run that cannot be judged.
    """
    counts = CONFIDENCES[: CONFIDENCES.index(fail_on) + 1]
    for one in results:
        listed = one.listed if fail_on == "low" else one.findings
        if any(finding.confidence in counts for finding in listed):
            return 1
    return 2 if not allow_unjudged and not all(one.can_tell for one in results) else 0


def _check_names(kinds: dict[str, str], results: list[Diagnosis]) -> None:
    """Raise an error for a kind of a series that no run has."""
    given = [(one.name, one.reason) for result in results for one in result.unjudged]
    names = {one.name for result in results for one in result.judged}
    names |= {name for name, reason in given if reason != NO_SUCH_SERIES}
    for name in kinds:
        if name not in names:
            raise SMDebugValueError(f"invalid --kind: there is no series {shown(name)}.{did_you_mean(name, names)}")


def _diagnose_all(args: argparse.Namespace, kinds: dict[str, str]) -> Iterator[Diagnosis]:
    trials = [trial for path in args.runs for trial in _open(path)]
    good = summaries_of(args.against)
    for trial in trials:
        with trial, Progress(plain(trial.name, 40)) as progress:
            result = Diagnoser(trial, kinds, args.until, against=good).update(progress.update, last=True)
            curves = [] if _is_for_programs(args) or not is_terminal(sys.stdout) else _curves(trial)
        if len(trials) == 1:
            _check_names(kinds, [result])
        if not _is_for_programs(args):
            _print(result, args.notes, heading=len(trials) > 1, curves=curves)
        yield result


def _open(path: str) -> list[Trial]:
    return list(create_trials(path, skip_bad_index=True).values())


def _follow(args: argparse.Namespace, kinds: dict[str, str]) -> Iterator[Diagnosis]:
    [path] = args.runs
    with create_trial(path, wait=WAIT_TO_BEGIN, skip_bad_index=True) as trial:
        notifier = None if args.notify is None else Notifier(args.notify)
        try:
            for result in diagnose(trial, kinds, args.until, follow=True):
                if notifier is not None:
                    notifier.update(result)
                if not _is_for_programs(args):
                    _print(result, args.notes, heading=False)
                    sys.stdout.flush()
                yield result
        finally:
            if notifier is not None:
                notifier.close()


def _is_for_programs(args: argparse.Namespace) -> bool:
    return bool(args.json or args.sarif or args.github)


def _print(result: Diagnosis, notes: bool, heading: bool, curves: Sequence[str] = ()) -> None:
    if heading:
        print(f"{plain(result.run, 4000)}:")
    lines = [*curves, *result.text(notes, width(sys.stdout)).splitlines()]
    show("\n".join(plain(line, 4000) for line in lines))
    if heading:
        print()


def _curves(trial: Trial) -> list[str]:
    """Return the courses of the first losses of a run, in one line each."""
    names = [name for name in trial.tensor_names() if is_loss(name)][:_CURVES]
    try:
        table = trial.scalars(names)
    except SMDebugError:  # a log has other tensors than scalars
        return []
    series = {name: table["value"][table["name"] == name].astype(float) for name in names}
    return [curve(name, values, sys.stdout.encoding) for name, values in series.items() if len(values) > 1]


def _kinds(given: list[str]) -> dict[str, str]:
    kinds = {}
    for one in given:
        name, equals, kind = one.rpartition("=")
        if not equals or not name:
            raise SMDebugValueError(f"invalid --kind {shown(one)}; expected NAME=KIND, such as foo=loss")
        kinds[name] = kind
    return kinds
