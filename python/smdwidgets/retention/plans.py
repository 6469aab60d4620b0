"""Choose the values of old runs that are deleted, and delete them."""

from __future__ import annotations

import math
import os
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from smdwidgets.diagnosis import diagnose
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.hooks.writing.capture_log import CaptureLog
from smdwidgets.hooks.writing.thinning import Thinning
from smdwidgets.modes import ModeKeys
from smdwidgets.retention.saved_steps import SavedStep, saved_steps
from smdwidgets.retention.usage import files_of, runs_of
from smdwidgets.run_table.discovery import FoundRun
from smdwidgets.trials import Trial
from smdwidgets.trials.smdebug.thinned import ThinnedSteps

#: Records of at most this many bytes stay: losses, learning rates, reductions.
SMALL: Final = 1024
#: Saved steps that stay before and after the first and the last step of a finding.
BESIDE_FINDING: Final = 2
#: Seconds without a write after which a run without an end marker is not being written.
QUIET: Final = 24 * 3600.0


@dataclass(frozen=True)
class RunPlan:
    """What is deleted of one run."""

    name: str
    path: str
    #: Bytes of all files of the run.
    size: int
    #: Saved steps whose values are deleted.
    steps: tuple[SavedStep, ...] = ()
    #: Bytes that are freed.
    freed: int = 0
    #: Every how many saved steps one keeps its values; 0: none but the protected ones.
    every: int = 1
    #: Steps that keep their values, by reason.
    protected: Mapping[str, int] = field(default_factory=dict)
    #: Why no file of the run is deleted, or "".
    skipped: str = ""


@dataclass(frozen=True)
class Plan:
    """What is deleted of all runs below a directory.

    Nothing is deleted before :meth:`apply`.
    """

    runs: tuple[RunPlan, ...]

    @property
    def size(self) -> int:
        """Bytes of all runs."""
        return sum(run.size for run in self.runs)

    @property
    def freed(self) -> int:
        """Bytes that are freed."""
        return sum(run.freed for run in self.runs)

    def apply(self, progress: Callable[[int, int], object] | None = None) -> int:
        """Delete the values, and return the number of steps whose values were deleted.

        It can be interrupted at any time: each step is whole or thinned. A plan made afterwards continues. A run to
        which something was written since the plan was made is left as it is.
        """
        total, done = sum(len(run.steps) for run in self.runs), 0
        for run in self.runs:
            if run.steps and _is_written(run.path, run.size):
                continue
            for step in run.steps:
                _delete(run, step)
                done += 1
                if progress is not None:
                    progress(done, total)
        return done


def plan(
    path: str | os.PathLike[str],
    *,
    older_than: float = 0.0,
    budget: int | None = None,
    every: int = 10,
    keep_findings: bool = True,
    without_statistics: bool = False,
) -> Plan:
    """Choose the values to delete of the runs of hooks below a directory.

    Losses and other small values stay, and so do statistics, incidents, the first and the last step, and the steps
    around findings of the diagnosis. A run that is being written is left as it is.

    Args:
        path: the directory of a run, or of several.
        older_than: seconds since the last write of the runs that are thinned.
        budget: bytes that all runs may take. The oldest runs are thinned first, and no more than needed. None: all are.
        every: without a budget, one of this many saved steps keeps its values.
        keep_findings: diagnose each run, and keep the steps around the findings.
        without_statistics: thin runs that have no file of statistics, too. Their statistics are lost at these steps.

    >>> plan("runs", older_than=30 * 86400).freed                 # doctest: +SKIP
    """
    if every < 1:
        raise SMDebugValueError(f"every must be at least 1, got {every}")
    runs = sorted(runs_of(path), key=lambda run: run.written)
    sizes = {run.path: sum(size for _, size in files_of(run.path)) for run in runs}
    excess = math.inf if budget is None else sum(sizes.values()) - budget
    plans = []
    for run in runs:
        size = sizes[run.path]
        if excess <= 0:
            plans.append(RunPlan(run.name, run.path, size, skipped="the runs fit the budget"))
            continue
        one = _plan(run, size, older_than, every if budget is None else 0, excess, keep_findings, without_statistics)
        excess -= one.freed
        plans.append(one)
    return Plan(tuple(plans))


def _plan(
    run: FoundRun,
    size: int,
    older_than: float,
    every: int,
    excess: float,
    keep_findings: bool,
    without_statistics: bool,
) -> RunPlan:
    age = time.time() - run.written
    reason = "only runs of hooks are thinned" if run.kind != "smdebug" else ""
    if not reason and age < older_than:
        reason = "it was written more recently"
    if reason:
        return RunPlan(run.name, run.path, size, skipped=reason)
    try:
        with closing(run.open()) as trial:
            if trial.reader.run.end_age() is None and age < QUIET:
                return RunPlan(run.name, run.path, size, skipped="it is being written")
            statistics = trial.reader.run.statistics_file()
            if not without_statistics and (statistics is None or not statistics.size()[1]):
                reason = "it has no file of statistics, which would be lost"
                return RunPlan(run.name, run.path, size, skipped=reason)
            every_step = list(saved_steps(run.path))
            saved = [step for step in every_step if _freed(step)]
            protected = _protected(trial, saved, keep_findings)
    except (SMDebugError, OSError) as error:
        return RunPlan(run.name, run.path, size, skipped=f"it cannot be read: {error}")
    reasons = dict(Counter(protected.values()))
    # Steps that were thinned before count, too, so that a second plan keeps the same ones.
    numbers = sorted({step.step for step in every_step} | ThinnedSteps(run.path).steps())
    spacing = every or 1
    chosen: list[SavedStep] = []
    freed = 0
    while True:
        if not every:
            spacing = spacing * 2 if spacing < len(saved) else 0
        regular = set(numbers[::spacing]) if spacing else set()
        chosen = [step for step in saved if step.step not in protected and step.step not in regular]
        freed = sum(map(_freed, chosen))
        if every or not spacing or freed >= excess:
            break
    return RunPlan(run.name, run.path, size, tuple(chosen), freed, spacing, reasons)


def _freed(step: SavedStep) -> int:
    return sum(length for _, length in step.lengths if length > SMALL)


def _protected(trial: Trial, saved: Iterable[SavedStep], keep_findings: bool) -> dict[int, str]:
    """Return the steps that keep their values, with the reason."""
    by_number = {step.step: step for step in saved}
    numbers = sorted(by_number)
    protected = dict.fromkeys((*numbers[:1], *numbers[-1:]), "first and last step")
    incidents = {number for one in trial.incidents() for number in one.steps}
    protected |= {number: "incident" for number in numbers if number in incidents}
    for finding in diagnose(trial).findings if keep_findings and numbers else ():
        # A finding names steps of the training, which other modes share.
        for at in (finding.first, finding.last):
            if at is None:
                continue
            for own in (numbers, [number for number in numbers if by_number[number].mode_step == at]):
                low, high = bisect_left(own, at), bisect_right(own, at)
                near = own[max(0, low - BESIDE_FINDING) : high + BESIDE_FINDING]
                protected |= {number: "finding" for number in near if number not in protected}
    return protected


def _is_written(path: str, size: int) -> bool:
    """Return whether a run has grown since the plan was made."""
    return sum(one for _, one in files_of(path)) > size


def _delete(run: RunPlan, step: SavedStep) -> None:
    """Delete the large values of a step; their statistics stay."""
    log = CaptureLog(Path(run.path), step.worker)
    keep = {name for name, length in step.lengths if length <= SMALL}
    key = step.step, ModeKeys[step.mode], step.mode_step
    Thinning(Path(run.path), step.worker, log.thinned).keep(key, keep, run.every)
