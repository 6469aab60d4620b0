"""Judge a run by its diagnosis, and format the result as `check` does."""

from __future__ import annotations

import argparse
from typing import Any

from smdwidgets.cli._check_run import closing_lines, empty_case, marks_for, notes_of, without_step
from smdwidgets.cli._junit import Case, Outcome, junit
from smdwidgets.cli._run import plain
from smdwidgets.diagnosis import Diagnosis, diagnose
from smdwidgets.diagnosis.findings import about
from smdwidgets.diagnosis.follow import following
from smdwidgets.exceptions import SMDebugValueError
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


class DiagnosisResult:
    """The result of a diagnosis, as text, JSON or JUnit XML."""

    def __init__(self, trial: Trial, diagnosis: Diagnosis, allow_unjudged: bool, in_time: bool) -> None:
        self.trial = trial
        self.diagnosis = diagnosis
        self.empty = not allow_unjudged and without_step(trial)
        self.unjudged = not allow_unjudged and not diagnosis.can_tell
        self.notes = notes_of(trial)
        self.in_time = in_time

    @property
    def exit_code(self) -> int:
        """Exit code: 0 nothing found, 1 findings, 2 nothing could be judged, or a timeout."""
        if self.diagnosis:
            return 1
        return 2 if self.empty or self.unjudged or not self.in_time else 0

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON-serializable objects."""
        return {
            "run": str(self.trial.path),
            "exit_code": self.exit_code,
            "ended": bool(self.trial.loaded_all_steps),
            "in_time": self.in_time,
            "empty": self.empty,
            "notes": self.notes,
            "diagnosis": self.diagnosis.to_json(),
            "rules": [],
        }

    def to_junit(self) -> str:
        """Return the result as JUnit XML, with one failed test case per finding."""
        cases = [
            Case("diagnosis", one.kind, "failure", one.title, f"{one.text}\nTry: {one.try_}\n{about(one)}", "Finding")
            for one in self.diagnosis
        ]
        if self.empty:
            cases.append(empty_case(self.notes))
        elif not cases:
            outcome: Outcome = "passed" if self.diagnosis.can_tell else "error" if self.unjudged else "skipped"
            cases.append(Case("diagnosis", "run", outcome, self.diagnosis.summary))
        return junit(f"smdwidgets check {self.trial.path}", cases, self.notes)

    def text(self, encoding: str | None) -> str:
        """Return the result as text."""
        if self.diagnosis:
            kind = "fired"
        elif self.diagnosis.can_tell:
            kind = "passed"
        else:
            kind = "error" if self.unjudged else "nothing"
        lines = f"{marks_for(encoding)[kind]} {self.diagnosis.text()}".splitlines()
        lines += closing_lines(self.notes, self.empty, self.in_time)
        return "\n".join(plain(line, 4000) for line in lines)
