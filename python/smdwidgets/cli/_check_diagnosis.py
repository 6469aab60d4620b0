"""Judge a run by its diagnosis, and format the result as `check` does."""

from __future__ import annotations

import argparse
from typing import Any

from smdwidgets.cli._check_run import RunResult
from smdwidgets.cli._junit import Case, Outcome
from smdwidgets.cli._run import plain
from smdwidgets.diagnosis import Diagnosis, diagnose
from smdwidgets.diagnosis.follow import following
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.finding import about
from smdwidgets.rules.progress import Progress
from smdwidgets.trials import Trial

#: Arguments of `check` that only rules understand.
_OF_RULES = {"param": "--param", "start_step": "--start-step", "stop_training": "--stop-training"}


def check_diagnosis(trial: Trial, args: argparse.Namespace) -> DiagnosisResult:
    """Diagnose the run, until it ends or the time is over if it is followed."""
    for name, option in _OF_RULES.items():
        if getattr(args, name):
            raise SMDebugValueError(f"{option} needs --rules or --config; without them the run is diagnosed")
    until = None if args.end_step is None else args.end_step - 1
    if args.follow:
        *_, diagnosis = following(trial, until=until, timeout=args.timeout)
        in_time = trial.loaded_all_steps
    else:
        with Progress(plain(trial.name, 40)) as progress:
            diagnosis = diagnose(trial, until=until, progress=progress.update)
        in_time = True
    return DiagnosisResult(trial, diagnosis, args.allow_unjudged, in_time)


class DiagnosisResult(RunResult):
    """The result of a diagnosis."""

    def __init__(self, trial: Trial, diagnosis: Diagnosis, allow_unjudged: bool, in_time: bool) -> None:
        super().__init__(trial, allow_unjudged, in_time)
        self.diagnosis = diagnosis
        self.unjudged = not allow_unjudged and not diagnosis.can_tell

    @property
    def exit_code(self) -> int:
        """Exit code: 0 nothing found, 1 findings, 2 nothing could be judged, or a timeout."""
        if self.diagnosis:
            return 1
        return 2 if self.empty or self.unjudged or not self.in_time else 0

    def _judgements(self) -> dict[str, Any]:
        return {"diagnosis": self.diagnosis.to_json(), "rules": []}

    def _cases(self) -> list[Case]:
        """Return one failed test case per finding."""
        if not self.diagnosis and not self.empty:
            outcome: Outcome = "passed" if self.diagnosis.can_tell else "error" if self.unjudged else "skipped"
            return [Case("diagnosis", "run", outcome, self.diagnosis.summary)]
        return [
            Case("diagnosis", one.kind, "failure", one.title, f"{one.text}\nTry: {one.try_}\n{about(one)}", "Finding")
            for one in self.diagnosis
        ]

    def _lines(self, marks: dict[str, str]) -> list[str]:
        if self.diagnosis:
            kind = "fired"
        elif self.diagnosis.can_tell:
            kind = "passed"
        else:
            kind = "error" if self.unjudged else "nothing"
        return f"{marks[kind]} {self.diagnosis.text()}".splitlines()
