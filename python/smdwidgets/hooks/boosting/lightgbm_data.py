"""Read the data and parameters of a training of LightGBM for its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.boosting import Validation
from smdwidgets.checks.tables import LARGEST, Table, Task

__all__ = ["stops_early", "table_of", "task_of", "validation_of"]

_OBJECTIVES = ("objective", "objective_type", "app", "application", "loss")
_STOPPING = ("early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change")
_REGRESSION = frozenset(
    [
        "regression",
        "regression_l1",
        "l1",
        "l2",
        "mae",
        "mse",
        "mean_absolute_error",
        "mean_squared_error",
        "rmse",
        "l2_root",
        "root_mean_squared_error",
        "huber",
        "fair",
        "quantile",
        "mape",
        "mean_absolute_percentage_error",
    ]
)
_CLASSES = frozenset({"multiclass", "softmax", "multiclassova", "multiclass_ova", "ova", "ovr"})


def table_of(data: Any, name: str = "") -> Table:
    """Return the content of a data set, of very large ones a part of the rows.

    LightGBM frees the features when it has made its bins; they are read before.
    """
    raw = data.data if data.used_indices is None else None
    features, step = _matrix(raw)
    labels, weights = (_numbers(one) for one in _labels(data))
    if step > 1:
        labels, weights = (None if one is None else one[::step] for one in (labels, weights))
    names = data.feature_name if isinstance(data.feature_name, list) else [*map(str, getattr(raw, "columns", ()))]
    return Table(features, labels, weights, names, step == 1, False, name)


def _labels(data: Any) -> tuple[Any, Any]:
    """Return labels and weights, which a constructed data set has as numbers."""
    if data.label is None and getattr(data, "_handle", None) is not None:
        return data.get_label(), data.get_weight()
    return data.label, data.weight


def _numbers(values: Any) -> NDArray[Any] | None:
    if values is None:
        return None
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    return array if array.ndim == 1 and len(array) else None


def _matrix(raw: Any) -> tuple[NDArray[Any] | None, int]:
    """Return features as numbers, if they can be read.

    The second value says of how many rows one was taken.
    """
    shape = getattr(raw, "shape", None)
    if raw is None or shape is None or len(shape) != 2 or not shape[1] or shape[1] > LARGEST // 1000:
        return None, 1
    step = max(1, -(-shape[0] * shape[1] // LARGEST))
    if isinstance(raw, np.ndarray):
        numeric = np.issubdtype(raw.dtype, np.floating) or np.issubdtype(raw.dtype, np.integer) or raw.dtype == bool
        return (np.asarray(raw[::step], np.float64) if numeric else None), step
    if hasattr(raw, "tocsr"):
        return np.asarray(raw.tocsr()[::step].toarray(), np.float64), step
    if hasattr(raw, "iloc") and hasattr(raw, "dtypes"):
        rows = raw.iloc[::step]
        columns = [_column_of(rows.iloc[:, index]) for index in range(shape[1])]
        return np.stack(columns, 1), step
    return None, 1


def _column_of(series: Any) -> NDArray[Any]:
    """Return a column of a data frame; categories as their codes."""
    if hasattr(series, "cat"):
        codes = np.asarray(series.cat.codes, np.float64)
        return np.where(codes < 0, np.nan, codes)
    return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))


def task_of(parameters: Mapping[str, Any]) -> tuple[Task, int | None, bool]:
    """Return what the labels are, and the number of classes.

    The last value is whether all labels above 0 are one class.

    >>> task_of({"objective": "binary"}), task_of({"num_class": 3, "loss": "ova"}), task_of({"app": "lambdarank"})
    (('binary', None, True), ('classes', 3, False), ('other', None, False))
    """
    objective = next((parameters[name] for name in _OBJECTIVES if parameters.get(name) is not None), "regression")
    if not isinstance(objective, str):
        return "other", None, False
    if objective in _CLASSES:
        number = parameters.get("num_class", parameters.get("num_classes"))
        return "classes", None if number is None else int(number), False
    if objective == "binary":
        return "binary", None, True
    return ("regression" if objective in _REGRESSION else "other"), None, False


def stops_early(parameters: Mapping[str, Any], callbacks: Sequence[Any]) -> bool:
    """Whether a training stops when a metric no longer improves."""
    if any(parameters.get(name) for name in _STOPPING):
        return True
    return any(hasattr(one, "stopping_rounds") for one in callbacks)


def validation_of(train: Any, sets: Sequence[Any], names: Sequence[str], stops: bool) -> list[Validation]:
    """Return the validation data of a training.

    Early stopping leaves out the training data, and ends a training when any of the others no longer improves.
    """
    others = [one for one in sets if one is not train]
    validations = []
    for index, one in enumerate(sets):
        name = names[index] if index < len(names) else f"valid_{index}"
        identical = one is train
        table = Table(name=name) if identical else table_of(one, name)
        validations.append(Validation(table, identical, stops and not identical and len(others) == 1))
    return validations
