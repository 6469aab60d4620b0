"""Find out what is wrong with a run: since when, why, and what to try.

`diagnose` reads the scalars of a run and, where they were saved, statistics of its tensors. A detector is a function
``detector(data: RunData) -> Iterable[Candidate]``; it reads `RunData` and yields what it sees, without deciding
whether that is a cause or a symptom. `causes` orders the candidates, drops causes without a symptom, and merges what
one cause explains. `words` turns the facts of a candidate into sentences.

How a detector of tensors plugs in:

- `inputs.TensorColumn` holds the statistics of one tensor: ``steps`` and one float64 array per statistic, aligned with
  ``steps``. `inputs.TensorColumns` holds all of them in forward order and finds them by role, layer, mode and worker.
- the kind of a candidate is a key of `causes.TAXONOMY`, which has its place in the order and what it explains.
- ``facts`` fill in the placeholders of its text in `words` or `tensor_words`.
- the detector is listed in `tensor_detectors.DETECTORS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike, fspath
from typing import Any, Literal, overload

from smdwidgets.diagnosis.diagnoser import Diagnoser
from smdwidgets.diagnosis.findings import Curve, Evidence, Finding
from smdwidgets.diagnosis.follow import following
from smdwidgets.diagnosis.reading import Arrays
from smdwidgets.diagnosis.result import Diagnosis, Judged, Unjudged
from smdwidgets.diagnosis.several import Diagnoses, diagnose_all, diagnose_runs
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.executors import using
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
]


@overload
def diagnose(
    run: Trial | str | PathLike[str] | Arrays,
    kinds: Mapping[str, str] | None = None,
    until: int | None = None,
    follow: Literal[False] = False,
    *,
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
    progress: Progress | None = None,
    client: Any = None,
) -> Iterator[Diagnosis]: ...
def diagnose(
    run: Trial | str | PathLike[str] | Arrays,
    kinds: Mapping[str, str] | None = None,
    until: int | None = None,
    follow: bool = False,
    *,
    progress: Progress | None = None,
    client: Any = None,
) -> Diagnosis | Iterator[Diagnosis]:
    """Find out what is wrong with a run, since when, why, and what to try.

    Trends are compared with the noise of the series, so most healthy runs give no finding. A series of unknown kind, and
    one with fewer than 10 values, is not judged; the result says so. Rules are not involved.

    Args:
        run: a trial, its path, or series in memory: steps and values by name, ``{"train/loss": (steps, values)}``.
        kinds: kinds of series by name, where names do not tell: ``{"foo": "loss", "bar": "metric up"}``. The kinds are
            "loss", "metric up", "metric down", "reward", "learning rate", "gradient norm", "RL quantity", "GAN loss",
            "housekeeping" and "unknown"; the last four are not judged by their trend.
        until: last step to read; None: all.
        follow: return an iterator that yields a diagnosis whenever it changes, until the run ends.
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
       problem, high confidence · steps 450 to 990 · diagnosis.md#overfit
    """
    opened = create_trial(fspath(run)) if isinstance(run, str | PathLike) else run
    if not follow:
        with using(client):
            return Diagnoser(opened, kinds, until).update(progress)
    if not isinstance(opened, Trial):
        raise SMDebugTypeError("follow=True requires a trial or a path; call Diagnoser(arrays).update() instead")
    return following(opened, kinds, until)
