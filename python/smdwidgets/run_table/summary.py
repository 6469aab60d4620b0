"""The summary of a run in the table of runs.

It has steps, times, statistics of each curve, hyperparameters and findings.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import json_number
from smdwidgets.diagnosis import diagnose
from smdwidgets.exceptions import SMDebugError
from smdwidgets.naming.tensors import SCALAR_COLLECTIONS
from smdwidgets.run_table.curves import bin_curve
from smdwidgets.run_table.discovery import HPARAMS, FoundRun
from smdwidgets.storage.address import is_address
from smdwidgets.storage.local import LocalStorage
from smdwidgets.storage.protocol import Storage, beginning
from smdwidgets.trials import SourceTrial, TensorBoardTrial, Trial
from smdwidgets.trials.refresh import no_refresh
from smdwidgets.trials.smdebug.run import SmdebugRun

#: Version of the summaries; entries of other versions are made again.
VERSION: Final = 3
#: Points of a small curve.
POINTS: Final = 32
#: Curves that are kept of one run.
_MOST_CURVES: Final = 500
#: Bytes of a file of hyperparameters beyond which it is not read.
_LARGEST_HPARAMS: Final = 1 << 20
#: Levels of nested hyperparameters.
_DEEPEST: Final = 8

Floats = NDArray[np.float64]
Summary = dict[str, Any]


def summarize(found: FoundRun, with_findings: bool) -> Summary:
    """Read a run and return its summary, which can be stored as JSON.

    A run that cannot be read has an ``error``.
    """
    try:
        trial = found.open()
        try:
            # The parts of a summary are of one state of the run, which is read once.
            if found.shared or with_findings:
                trial.maybe_refresh()
            else:
                trial.reader.read_first()
            with no_refresh(trial):
                summary = _summary(trial, found)
                if with_findings:
                    summary["findings"] = findings_of(trial)
            return summary
        finally:
            if not found.shared:
                trial.close()
    except (SMDebugError, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}", "tags": {}, "hparams": {}}


def findings_of(trial: Trial) -> list[dict[str, Any]]:
    """Return the findings of the diagnosis of a run: ids, kinds, steps and titles."""
    return [
        {
            "id": finding.id,
            "kind": finding.kind,
            "level": finding.level,
            "confidence": finding.confidence,
            "subject": finding.subject,
            "first": finding.first,
            "last": finding.last,
            "title": finding.title,
        }
        for finding in diagnose(trial).findings
    ]


def _summary(trial: Trial, found: FoundRun) -> Summary:
    steps = trial.steps(show_incomplete_steps=True)
    tags: dict[str, dict[str, Any]] = {}
    began, ended = math.inf, -math.inf
    for name, at, values, times in _curves(trial):
        if len(times):
            began, ended = min(began, float(times.min())), max(ended, float(times.max()))
        if len(values) and len(tags) < _MOST_CURVES:
            tags[name] = _statistics(at, values)
    if not math.isfinite(began):
        began, ended = _times_of_files(trial, found)
    end = trial.run_end()
    return {
        "steps": len(steps),
        "last_step": steps[-1] if steps else None,
        "started": began if math.isfinite(began) else None,
        "duration": ended - began if math.isfinite(began) else None,
        "end": end.how if end is not None and trial.reader.run.says_ended() else None,
        "tags": tags,
        "hparams": {**trial.hparams(), **_hparams_beside(trial, found)},
        "identity": dict(trial.identity()) if isinstance(trial, SourceTrial) else {},
        "damaged": len(trial.problems()),
    }


def _curves(trial: Trial) -> Iterator[tuple[str, NDArray[np.int64], Floats, Floats]]:
    """Yield name, steps, values and wall times of each scalar.

    Modes other than GLOBAL are separate curves.
    """
    if isinstance(trial, TensorBoardTrial):
        trial.maybe_refresh()
        log = trial.reader.log
        lanes = [worker for worker, _ in log.directories()]
        for name, _, kind, _, _ in log.series():
            if kind == "scalar":
                _, steps, times, values, at = log.course(name)
                for lane in np.unique(at).tolist() if len(lanes) > 1 else [None]:
                    mine = slice(None) if lane is None else at == lane
                    label = name if lane is None or lanes[lane] == "worker_0" else f"{lanes[lane]}/{name}"
                    yield label, steps[mine], values[mine], times[mine]
        return
    names = sorted(
        {
            name
            for collection in SCALAR_COLLECTIONS
            if collection in trial.collections()
            for name in trial.tensor_names(collection=collection)
        }
    )
    if not names:
        return
    table = trial.reductions(names, reductions="mean", counts=True)
    single = (table["size"] == 1) | (table["size"] < 0)
    modes = table["mode"]
    of_name = table["name"]
    none = np.empty(0)
    for name in names:
        rows = np.flatnonzero((of_name == name) & single)
        several = len(set(modes[rows].tolist())) > 1
        for mode in dict.fromkeys(modes[rows].tolist()):
            mine = rows[modes[rows] == mode]
            values = np.asarray(table["mean"][mine])
            label = f"{str(mode).lower()}/{name}" if several else name
            steps = table["mode_step"][mine] if several else table["step"][mine]
            yield label, steps, np.abs(values) if values.dtype.kind == "c" else values.astype(np.float64), none


def _statistics(steps: NDArray[np.int64], values: Floats) -> dict[str, Any]:
    """Return the statistics of a curve. Extremes are those of finite values."""
    found: dict[str, Any] = {
        "count": len(values),
        "first": json_number(float(values[0])),
        "last": json_number(float(values[-1])),
    }
    finite = np.flatnonzero(np.isfinite(values))
    if len(finite) < len(values):
        found["not_finite"] = int(steps[np.flatnonzero(~np.isfinite(values))[0]])
    if len(finite):
        shown = values[finite]
        low, high = int(shown.argmin()), int(shown.argmax())
        found |= {"min": float(shown[low]), "min_step": int(steps[finite[low]])}
        found |= {"max": float(shown[high]), "max_step": int(steps[finite[high]])}
        found["bins"] = bin_curve(steps, values)
        if len(shown) > POINTS:
            shown = shown[np.linspace(0, len(shown) - 1, POINTS).round().astype(int)]
        found["curve"] = [float(f"{value:.4g}") for value in shown.tolist()]
    return found


def _hparams_beside(trial: Trial, found: FoundRun) -> dict[str, Any]:
    """Return the hyperparameters of ``hparams.json`` in the run."""
    storage, folder = _files_of(trial, found)
    try:
        content = beginning(storage, folder + HPARAMS, _LARGEST_HPARAMS + 1)
        read = json.loads(content) if len(content) <= _LARGEST_HPARAMS else None
    except (SMDebugError, OSError, ValueError, RecursionError):
        return {}
    return flat(read) if isinstance(read, dict) else {}


def _files_of(trial: Trial, found: FoundRun) -> tuple[Storage, str]:
    """Return where the files of a run are, and the prefix of their keys."""
    if is_address(found.path):
        run = getattr(trial, "run", "")
        storage: Storage = trial.reader.storage
        return storage, f"{run}/" if run else ""
    return LocalStorage(found.path), ""


def flat(given: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return hyperparameters without nesting; keys are joined by dots.

    >>> flat({"lr": 0.1, "optimizer": {"name": "adam"}, "layers": [64, 64]})
    {'lr': 0.1, 'optimizer.name': 'adam', 'layers': '[64, 64]'}
    """
    found: dict[str, Any] = {}
    for key, value in given.items():
        if isinstance(value, Mapping) and before.count(".") < _DEEPEST:
            found |= flat(value, f"{before}{key}.")
        elif value is None or isinstance(value, bool | str | int | float):
            found[f"{before}{key}"] = json_number(value) if isinstance(value, float) else value
        else:
            found[f"{before}{key}"] = str(value)
    return found


def _times_of_files(trial: Trial, found: FoundRun) -> tuple[float, float]:
    """Return when the run began and was last written, by the times of its files."""
    if not isinstance(trial.reader.run, SmdebugRun):
        return math.inf, -math.inf
    storage, folder = _files_of(trial, found)
    try:
        keys = [key for key in storage.list(f"{folder}collections/") if key.endswith(".json")]
        ages = [age for key in keys if (age := storage.age(key)) is not None]
    except (SMDebugError, OSError):
        ages = []
    began = time.time() - max(ages, default=math.nan)
    return (began, max(found.written, began)) if ages else (math.inf, -math.inf)
