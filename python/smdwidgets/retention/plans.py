"""Choose the values of old runs that are deleted, and delete them."""

from __future__ import annotations

import logging
import math
import os
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from smdwidgets.diagnosis import diagnose
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.retention.local_files import LocalFiles
from smdwidgets.retention.run_files import Left, RunFiles
from smdwidgets.retention.saved_steps import SavedStep
from smdwidgets.retention.usage import runs_of
from smdwidgets.run_table.discovery import FoundRun
from smdwidgets.storage.address import is_address
from smdwidgets.trials import Trial

_logger = logging.getLogger("smdwidgets")
#: Saved steps that stay before and after the first and the last step of a finding.
BESIDE_FINDING: Final = 2
#: Seconds without a write after which a run without an end marker is not being written.
QUIET: Final = 24 * 3600.0
#: Runs in a store whose objects are listed at the same time.
_AT_ONCE: Final = 16


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
    #: What an interrupted deletion left, which is deleted, too.
    left: tuple[Left, ...] = ()
    files: Callable[[], RunFiles] | None = field(default=None, repr=False, compare=False)
    version: object = field(default=None, repr=False, compare=False)


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
            if run.files is None or not (run.steps or run.left):
                continue
            before = done
            with closing(run.files()) as files:
                if files.version() != run.version:
                    _logger.warning("%s: left as it is, because it was written since the plan was made", run.path)
                    continue
                for of_run in files.thin(run.steps, run.left, run.every):
                    done = before + of_run
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
    **connection: Any,
) -> Plan:
    """Choose the values to delete of all runs of hooks below a path.

    Losses and other small values stay, and so do statistics, incidents, the first and the last step, and the steps
    around findings of the diagnosis. A run that is being written is left as it is.

    Args:
        path: the directory of a run, or of several, or an address such as ``s3://team/runs``.
        older_than: seconds since the last write of the runs that are thinned.
        budget: bytes that all runs may take. The oldest runs are thinned first, and no more than needed. None: all are.
        every: without a budget, one of this many saved steps keeps its values.
        keep_findings: diagnose each run, and keep the steps around the findings.
        without_statistics: thin runs that have no file of statistics, too. Their statistics are lost at these steps.
        **connection: for a store, the fields of :class:`~smdwidgets.storage.Connection`.

    >>> plan("runs", older_than=30 * 86400).freed                 # doctest: +SKIP
    """
    if every < 1:
        raise SMDebugValueError(f"every must be at least 1, got {every}")
    runs = sorted(runs_of(path, connection), key=lambda run: run.written)
    sizes = _sizes(runs, connection)
    excess = math.inf if budget is None else sum(sizes.values()) - budget
    chosen = _Choice(older_than, every if budget is None else 0, keep_findings, without_statistics)
    plans = []
    for run in runs:
        size = sizes[run.path]
        if excess <= 0:
            plans.append(RunPlan(run.name, run.path, size, skipped="the runs fit the budget"))
            continue
        one = _plan(run, size, chosen, excess, connection)
        excess -= one.freed
        plans.append(one)
    return Plan(tuple(plans))


class _Choice(NamedTuple):
    """The arguments of a plan that every run has in common."""

    older_than: float
    every: int
    keep_findings: bool
    without_statistics: bool


def _opener(path: str, connection: Mapping[str, Any]) -> Callable[[], RunFiles]:
    if not is_address(path):
        return partial(LocalFiles, path)
    from smdwidgets.retention.store_files import StoreFiles  # imported for stores only

    return partial(StoreFiles, path, connection)


def _sizes(runs: Iterable[FoundRun], connection: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of runs by path."""

    def size(run: FoundRun) -> tuple[str, int]:
        with closing(_opener(run.path, connection)()) as files:
            return run.path, files.size()

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            return dict(pool.map(size, runs))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _plan(run: FoundRun, size: int, choice: _Choice, excess: float, connection: Mapping[str, Any]) -> RunPlan:
    age = time.time() - run.written
    reason = "only runs of hooks are thinned" if run.kind != "smdebug" else ""
    if not reason and age < choice.older_than:
        reason = "it was written more recently"
    if reason:
        return RunPlan(run.name, run.path, size, skipped=reason)
    every = choice.every
    opener = _opener(run.path, connection)
    try:
        with closing(opener()) as files, closing(run.open()) as trial:
            if trial.reader.run.end_age() is None and age < QUIET:
                return RunPlan(run.name, run.path, size, skipped="it is being written")
            statistics = trial.reader.run.statistics_file()
            if not choice.without_statistics and (statistics is None or not statistics.size()[1]):
                reason = "it has no file of statistics, which would be lost"
                return RunPlan(run.name, run.path, size, skipped=reason)
            version = files.version()
            every_step = files.steps()
            saved = [step for step in every_step if step.large]
            left = tuple(files.left(every_step))
            # Steps that were thinned before count, too, so that a second plan keeps the same ones.
            numbers = sorted({step.step for step in every_step} | {step for step, _ in files.thinned()})
            protected = _protected(trial, saved, choice.keep_findings)
    except (SMDebugError, OSError) as error:
        return RunPlan(run.name, run.path, size, skipped=f"it cannot be read: {error}")
    reasons = dict(Counter(protected.values()))
    spacing = every or 1
    rest = sum(one.freed for one in left)
    while True:
        if not every:
            spacing = spacing * 2 if spacing < len(saved) else 0
        regular = set(numbers[::spacing]) if spacing else set()
        steps = tuple(step for step in saved if step.step not in protected and step.step not in regular)
        freed = rest + sum(step.large for step in steps)
        if every or not spacing or freed >= excess:
            break
    return RunPlan(run.name, run.path, size, steps, freed, spacing, reasons, "", left, opener, version)


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
