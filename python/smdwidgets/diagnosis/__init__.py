"""Find out what is wrong with a run: since when, why, and what to try.

`diagnose` reads the scalars of a run and, where they were saved, statistics of its tensors. A detector is a function
``detector(data: RunData) -> Iterable[Finding]``; it reads `RunData` and yields what it sees, without deciding whether
that is a cause or a symptom. `causes` joins them: it makes notes of causes without a symptom, and moves what one cause
explains below it. The table of kinds (`smdwidgets.finding`) has the order of causes and the sentences.

How a detector of tensors plugs in:

- `inputs.TensorColumn` holds the statistics of one tensor: ``steps`` and one float64 array per statistic, aligned with
  ``steps``. `inputs.TensorColumns` holds all of them in forward order and finds them by role, layer, mode and worker.
- the kind of a finding is a row of `finding.KINDS`, which has its place in the order, what it explains, and its
  sentences, whose placeholders the detector's facts fill in.
- the detector is listed in `tensor_detectors.DETECTORS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, overload

from smdwidgets._text import shown
from smdwidgets.diagnosis.diagnoser import Diagnoser, summary_of
from smdwidgets.diagnosis.follow import following
from smdwidgets.diagnosis.reading import Arrays
from smdwidgets.diagnosis.reference import Summary, is_baseline, read_summaries
from smdwidgets.diagnosis.result import Diagnosis, Judged, Unjudged
from smdwidgets.diagnosis.several import Diagnoses, diagnose_all, diagnose_runs
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.executors import using
from smdwidgets.finding import Curve, Evidence, Finding
from smdwidgets.trials import Trial, create_trial
from smdwidgets.trials.run import Progress

__all__ = [
    "Curve",
    "Diagnoser",
    "Diagnoses",
    "Diagnosis",
    "Evidence",
    "Finding",
    "Judged",
    "Unjudged",
    "diagnose",
    "diagnose_all",
    "diagnose_runs",
    "summaries_of",
    "summary_of",
]

#: A good run to compare with.
Reference = Trial | str | PathLike[str] | Arrays


@overload
def diagnose(
    run: Trial | str | PathLike[str] | Arrays,
    kinds: Mapping[str, str] | None = None,
    until: int | None = None,
    follow: Literal[False] = False,
    *,
    against: Reference | Sequence[Reference] | None = None,
    progress: Progress | None = None,
    client: Any = None,
) -> Diagnosis: ...
@overload
def diagnose(
    run: Trial | str | PathLike[str] | Arrays,
    kinds: Mapping[str, str] | None = None,
    until: int | None = None,
    *,
    follow: Literal[True],
    against: Reference | Sequence[Reference] | None = None,
    progress: Progress | None = None,
    client: Any = None,
) -> Iterator[Diagnosis]: ...
def diagnose(
    run: Trial | str | PathLike[str] | Arrays,
    kinds: Mapping[str, str] | None = None,
    until: int | None = None,
    follow: bool = False,
    *,
    against: Reference | Sequence[Reference] | None = None,
    progress: Progress | None = None,
    client: Any = None,
) -> Diagnosis | Iterator[Diagnosis]:
    """Find out what is wrong with a run, since when, why, and what to try.

    Trends are compared with the noise of the series, so most healthy runs give no finding. A series of unknown kind,
    and one with fewer than 10 values, is not judged; the result says so. Rules are not involved.

    Args:
        run: a trial, its path, or series in memory by name: values, ``{"loss": [2.3, 1.9, 1.7]}``, or steps and values,
            ``{"train/loss": (steps, values)}``.
        kinds: kinds of series by name, where names do not tell: ``{"foo": "loss", "bar": "metric up"}``. The kinds are
            "loss", "metric up", "metric down", "reward", "learning rate", "gradient norm", "RL quantity", "loss without
            direction", "housekeeping" and "unknown"; the last four are not judged by their trend.
        until: last step to read; None: all.
        follow: return an iterator that yields a diagnosis whenever it changes, until the run ends.
        against: good runs to compare with, as paths, trials, series in memory, or a file that
            `smdwidgets.diagnosis.reference.write_summary` wrote. What differs is compared with the spread of the good
            runs; with one, with that of healthy runs of other seeds.
        progress: called with the number of finished series or records and their total.
        client: a ``distributed.Client`` whose workers read the tensors; None: that of :func:`smdwidgets.use`, else this
            process. A run that is followed is read by this process.

    >>> import numpy as np, smdwidgets
    >>> steps = np.arange(0, 1000, 10)
    >>> training, validation = 2 * np.exp(-steps / 300), 1 + np.abs(steps - 400) / 1000
    >>> smdwidgets.diagnose({"train/loss": (steps, training), "val/loss": (steps, validation)})
    1 finding in 2 series, steps 0 to 990.
    <BLANKLINE>
    1. Validation loss rises since step 450 (`val/loss` 1 → 1.5; `train/loss` still falls). Probably
       overfitting.
       Try: Keep the checkpoint of step 400; try more data, augmentation or weight decay.
       problem, high confidence · steps 450 to 990 · smdwidgets explain overfit
    """
    opened = create_trial(fspath(run)) if isinstance(run, str | PathLike) else run
    if not isinstance(opened, Trial | Mapping):
        raise SMDebugTypeError(
            f"run must be a trial, a path, or a dictionary of series such as {{'loss': [2.3, 1.9]}}, got {shown(run)}"
        )
    if not follow:
        with using(client):
            return Diagnoser(opened, kinds, until, against=summaries_of(against)).update(progress, last=True)
    if against is not None:
        raise SMDebugValueError("follow=True cannot compare with reference runs; drop against or follow")
    if not isinstance(opened, Trial):
        raise SMDebugTypeError("follow=True requires a trial or a path; call Diagnoser(arrays).update() instead")
    return following(opened, kinds, until)


def summaries_of(against: Reference | Sequence[Reference] | None) -> list[Summary]:
    """Return the summaries of good runs; of a file of baselines, all of them.

    >>> summaries_of(None)
    []
    """
    if against is None:
        return []
    if isinstance(against, str | PathLike | Trial | Mapping):
        against = [against]
    found = []
    for one in against:
        if not isinstance(one, str | PathLike):
            found.append(summary_of(one))
        elif is_baseline(Path(one)):
            found += read_summaries(Path(one))
        else:
            with create_trial(fspath(one)) as trial:
                found.append(summary_of(trial))
    return found
