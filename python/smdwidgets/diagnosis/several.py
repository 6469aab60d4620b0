"""Diagnose many runs, one after the other or in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Protocol, overload, runtime_checkable

from smdwidgets import _core
from smdwidgets.diagnosis.diagnoser import Diagnoser
from smdwidgets.diagnosis.kinds import checked_kinds
from smdwidgets.diagnosis.result import Diagnosis, Unjudged
from smdwidgets.executors import call_many
from smdwidgets.finding import CONFIDENCES, LEVELS
from smdwidgets.trials import Trial, create_trials


def diagnose_runs(
    runs: Iterable[Trial | str | PathLike[str]],
    kinds: Mapping[str, str] | None = None,
    *,
    tensors: bool = False,
) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each run; of a run that cannot be read, the reason.

    One run is open at a time, except for trials that were given. ``Diagnosis.run`` is the path of the run; a directory
    of TensorBoard logs has several. Damaged and missing runs give a diagnosis that cannot tell.

    Args:
        runs: trials, or paths of runs.
        kinds: kinds of series by name, as for :func:`smdwidgets.diagnose`.
        tensors: whether to read tensors, too. Scalars take milliseconds a run, tensors up to seconds.

    >>> [result] = diagnose_runs(["no/such/run"])
    >>> result.can_tell, len(result.unjudged)
    (False, 1)
    """
    checked_kinds(kinds)  # a mistake of the caller is no property of the runs
    for run in runs:
        if isinstance(run, Trial):
            yield _judged(run, kinds, tensors)
            continue
        path = fspath(run)
        try:
            trials = list(create_trials(path, wait=0, skip_bad_index=True).values())
        except Exception as error:
            yield _unreadable(path, error)
            continue
        for trial in trials:
            with trial:
                yield _judged(trial, kinds, tensors)


@runtime_checkable
class FoundRun(Protocol):
    """A run that was found and is not open yet, as a row of :func:`smdwidgets.runs`."""

    @property
    def path(self) -> str:
        """Path of the run."""

    @property
    def open(self) -> Callable[[], Trial]:
        """Open the run."""


class Diagnoses(Sequence[Diagnosis]):
    """Diagnoses of many runs, the gravest findings first.

    Runs that could not be judged come last.

    >>> Diagnoses([Diagnosis("runs/a"), Diagnosis("runs/b")])
    runs/a: Cannot tell: the run has no scalars.
    runs/b: Cannot tell: the run has no scalars.
    """

    def __init__(self, diagnoses: Iterable[Diagnosis]) -> None:
        self._ranked = sorted(diagnoses, key=_rank)

    @overload
    def __getitem__(self, at: int) -> Diagnosis: ...
    @overload
    def __getitem__(self, at: slice) -> list[Diagnosis]: ...
    def __getitem__(self, at: int | slice) -> Diagnosis | list[Diagnosis]:
        return self._ranked[at]

    def __len__(self) -> int:
        return len(self._ranked)

    def __repr__(self) -> str:
        return "\n".join(f"{one.run}: {'; '.join(f.title for f in one) or one.summary}" for one in self._ranked)


def _rank(diagnosis: Diagnosis) -> tuple[Any, ...]:
    grave = [(LEVELS.index(one.level), CONFIDENCES.index(one.confidence)) for one in diagnosis]
    return sorted(grave) or [(len(LEVELS), not diagnosis.can_tell)], -len(grave), diagnosis.run


def diagnose_all(
    runs: Iterable[Trial | FoundRun | str | PathLike[str]],
    kinds: Mapping[str, str] | None = None,
    client: Any = None,
    *,
    tensors: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> Diagnoses:
    """Diagnose many runs in parallel, each run on one worker.

    A run that cannot be read does not stop the others.

    Args:
        runs: trials, or paths of runs; a directory of TensorBoard logs has several.
        kinds: kinds of series by name, as for :func:`smdwidgets.diagnose`.
        client: a ``distributed.Client``; None: that of :func:`smdwidgets.use`, else processes of this machine.
        tensors: whether to read tensors, too.
        progress: called with the number of finished runs and their total.

    >>> diagnose_all(["no/such/run"])[0].can_tell
    False
    """
    checked_kinds(kinds)
    calls = [(fspath(run) if isinstance(run, PathLike) else run, kinds, tensors) for run in runs]
    return Diagnoses(one for many in call_many(_diagnosed, calls, client, progress) for one in many)


def _diagnosed(
    run: Trial | FoundRun | str, kinds: Mapping[str, str] | None, tensors: bool, *, cancel: _core.Cancel
) -> list[Diagnosis]:
    """Diagnose one run or all runs of a directory, on a worker."""
    if not isinstance(run, Trial | str):
        try:
            opened = run.open()
        except Exception as error:
            return [_unreadable(run.path, error)]
        with opened:
            return [_judged(opened, kinds, tensors)]
    return list(diagnose_runs([run], kinds, tensors=tensors))


def _judged(trial: Trial, kinds: Mapping[str, str] | None, tensors: bool) -> Diagnosis:
    try:
        return Diagnoser(trial, kinds, tensors=tensors).update(last=True)
    except Exception as error:
        return _unreadable(str(trial.path), error)


def _unreadable(path: str, error: Exception) -> Diagnosis:
    return Diagnosis(path, unjudged=(Unjudged(path, f"{type(error).__name__}: {error}"[:500]),))
