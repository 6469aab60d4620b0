"""Diagnose many runs, one after the other, of which none stops the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike, fspath

from smdwidgets.diagnosis.diagnoser import Diagnoser
from smdwidgets.diagnosis.result import Diagnosis, Unjudged
from smdwidgets.diagnosis.tags import checked_kinds
from smdwidgets.trials import Trial, create_trials


def diagnose_runs(
    runs: Iterable[Trial | str | PathLike[str]], kinds: Mapping[str, str] | None = None, *, tensors: bool = False
) -> Iterator[Diagnosis]:
    """Yield the diagnosis of each run; of a run that cannot be read, the reason.

    One run is open at a time, except for trials that were given. ``Diagnosis.run`` is the path of the run; a directory of
    TensorBoard logs has several. Damaged and missing runs give a diagnosis that cannot tell.

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


def _judged(trial: Trial, kinds: Mapping[str, str] | None, tensors: bool) -> Diagnosis:
    try:
        return Diagnoser(trial, kinds, tensors=tensors).update()
    except Exception as error:
        return _unreadable(str(trial.path), error)


def _unreadable(path: str, error: Exception) -> Diagnosis:
    return Diagnosis(path, unjudged=(Unjudged(path, f"{type(error).__name__}: {error}"[:500]),))
