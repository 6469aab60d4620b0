"""Read the data and parameters of a training of XGBoost for its checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

from smdwidgets.checks.boosting import Validation
from smdwidgets.checks.tables import LARGEST, Table, Task

__all__ = ["Stopping", "rate_of", "table_of", "task_of", "validation_of"]

#: Metrics that early stopping maximizes where nothing else is said.
_MAXIMIZED = ("auc", "aucpr", "pre", "map", "ndcg")


@dataclass(frozen=True)
class Stopping:
    """What early stopping judges by; empty or None: XGBoost decides."""

    data: str = ""
    metric: str = ""
    maximize: bool | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Stopping | None:
        """Return that of a call of ``xgboost.train``; None if nothing stops early."""
        for one in arguments.get("callbacks") or ():
            if isinstance(one, xgboost.callback.EarlyStopping):
                return cls(str(one.data or ""), str(one.metric_name or ""), one.maximize)
        if arguments.get("early_stopping_rounds") is not None:
            return cls(maximize=arguments.get("maximize"))
        return None

    def watched(self, log: Mapping[str, Mapping[str, Any]]) -> tuple[str, bool] | None:
        """Return the metric, and whether it is maximized."""
        metrics = log.get(self.data or next(reversed([*log]), ""), {})
        name = self.metric or next(reversed([*metrics]), "")
        if not name:
            return None
        if self.maximize is not None:
            return name, self.maximize
        return name, name != "mape" and name.startswith(_MAXIMIZED)


def table_of(data: xgboost.DMatrix, name: str = "") -> Table:
    """Return the content of a matrix, of very large ones a part of the rows."""
    rows, columns = data.num_row(), data.num_col()
    whole = rows * columns <= LARGEST
    plain = type(data) is xgboost.DMatrix
    if not whole and plain and columns <= LARGEST // 1000:
        data = data.slice(np.arange(0, rows, -(-rows * columns // LARGEST)).tolist())
        rows = data.num_row()
    readable = type(data) in (xgboost.DMatrix, xgboost.QuantileDMatrix) and rows * columns <= LARGEST
    return Table(
        _dense(data) if readable and rows and columns else None,
        _column(data.get_label(), rows),
        _column(data.get_weight(), rows),
        data.feature_names or (),
        whole,
        not plain,
        name,
    )


def _dense(data: xgboost.DMatrix) -> NDArray[Any]:
    sparse = data.get_data()
    dense = np.full(sparse.shape, np.nan, np.float32)
    dense[np.repeat(np.arange(sparse.shape[0]), np.diff(sparse.indptr)), sparse.indices] = sparse.data
    return dense


def _column(values: Any, rows: int) -> NDArray[Any] | None:
    """Return one number per row; None if there are none, or several."""
    array = np.asarray(values)
    return array if array.shape == (rows,) and rows else None


def task_of(parameters: object, custom: object = None) -> tuple[Task, int | None]:
    """Return what the labels are, and the number of classes.

    >>> task_of({"objective": "multi:softmax", "num_class": 3}), task_of({}), task_of({"objective": "rank:ndcg"})
    (('classes', 3), ('regression', None), ('other', None))
    """
    chosen = _dictionary(parameters)
    objective = chosen.get("objective") or "reg:squarederror"
    if custom is not None or not isinstance(objective, str):
        return "other", None
    if objective.startswith("multi:"):
        return "classes", int(chosen["num_class"]) if chosen.get("num_class") else None
    if objective.startswith("binary:") or objective == "reg:logistic":
        return "binary", None
    return ("regression" if objective.startswith("reg:") else "other"), None


def rate_of(parameters: object) -> float | None:
    """Return the learning rate, if it is chosen."""
    chosen = _dictionary(parameters)
    rate = chosen.get("learning_rate", chosen.get("eta"))
    return None if rate is None or chosen.get("booster") == "gblinear" else float(rate)


def _dictionary(parameters: object) -> dict[str, Any]:
    return dict(parameters) if isinstance(parameters, Mapping | Sequence) else {}  # XGBoost takes a list of pairs, too


def validation_of(arguments: Mapping[str, Any], stopping: Stopping | None) -> list[Validation]:
    """Return the validation data of a call of ``xgboost.train``."""
    train, evals = arguments.get("dtrain"), list(arguments.get("evals") or ())
    watched = "" if stopping is None or not evals else stopping.data or evals[-1][1]
    validations = []
    for data, name in evals:
        identical = data is train
        table = Table(name=name) if identical else table_of(data, name)
        validations.append(Validation(table, identical, stopping is not None and name == watched))
    return validations
