"""Read the data of an XGBoost run that the report needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.trials.widening import widened

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["Contents", "contents_of"]

#: Maximum number of steps whose labels and predictions are read; evenly spaced, including the last.
MOST_STEPS = 60
IMPORTANCES = ("weight", "gain", "cover")


@dataclass
class Contents:
    """Data of the report."""

    name: str
    hyperparameters: dict[str, str] = field(default_factory=dict)
    #: Steps and values of each metric.
    metrics: dict[str, tuple[list[int], list[float]]] = field(default_factory=dict)
    #: For each kind of importance, the latest value of each feature.
    importance: dict[str, dict[str, float]] = field(default_factory=dict)
    #: Labels and predictions at each step.
    predictions: dict[int, tuple[NDArray[Any], NDArray[Any]]] = field(default_factory=dict)
    #: Messages of read failures.
    problems: list[str] = field(default_factory=list)


def contents_of(trial: Trial, plot_step: int | None = None) -> Contents:
    """Read a run up to `plot_step` (inclusive)."""
    found = Contents(trial.name)
    steps = [step for step in trial.steps() if plot_step is None or step <= plot_step]
    chosen = _evenly_spaced(steps)
    for step in steps:
        names = trial.tensor_names(step=step)
        for name in names:
            kind, _, rest = name.partition("/")
            if kind == "hyperparameters" and rest:
                if (value := _value(trial, name, step, found)) is not None:
                    found.hyperparameters[rest] = _format_value(value)
            elif kind == "feature_importance" and rest:
                _importance(trial, name, rest, step, found)
        for name in _metrics(trial, step):
            if (
                (value := _value(trial, name, step, found)) is not None
                and value.size == 1
                and value.dtype.kind in "fiub"
            ):
                at, values = found.metrics.setdefault(name, ([], []))
                at.append(step)
                values.append(float(value.reshape(-1)[0]))
        if step in chosen and "labels" in names and "predictions" in names:
            labels, predictions = _value(trial, "labels", step, found), _value(trial, "predictions", step, found)
            if labels is not None and predictions is not None and labels.size:
                found.predictions[step] = labels, predictions
    return found


def _metrics(trial: Trial, step: int) -> list[str]:
    collections = trial.collections()
    names = dict.fromkeys(
        name
        for each in ("metrics", "losses")
        if each in collections
        for name in trial.tensor_names(step=step, collection=each)
    )
    return list(names)


def _importance(trial: Trial, name: str, rest: str, step: int, found: Contents) -> None:
    kind, _, feature = rest.partition("/")
    if kind in IMPORTANCES and feature:
        value = _value(trial, name, step, found)
        if value is not None and value.size == 1 and value.dtype.kind in "fiub":
            found.importance.setdefault(kind, {})[feature] = float(value.reshape(-1)[0])


def _value(trial: Trial, name: str, step: int, found: Contents) -> NDArray[Any] | None:
    try:
        return widened(np.asarray(trial.tensor(name).value(step)))
    except SMDebugError as error:
        if len(found.problems) < 20:
            found.problems.append(str(error))
        return None


def _format_value(value: NDArray[Any]) -> str:
    flat = value.reshape(-1)
    words = [each.decode("utf-8", "replace") if isinstance(each, bytes) else str(each) for each in flat[:20].tolist()]
    return ", ".join(words)[:200]


def _evenly_spaced(steps: list[int]) -> set[int]:
    if len(steps) <= MOST_STEPS:
        return set(steps)
    return {steps[at] for at in np.linspace(0, len(steps) - 1, MOST_STEPS).astype(int)}
