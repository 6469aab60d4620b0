"""Checks of tables: features, labels and weights that a training gets as a whole.

The functions are arithmetic on NumPy arrays, and depend on no framework. The frameworks' readers make a :class:`Table`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.log import CheckLog
from smdwidgets.finding import Level
from smdwidgets.naming import scalars

__all__ = ["LARGEST", "TABLE_CHECKS", "Table", "TableChecks", "Task", "row_keys"]

LARGEST = 20_000_000
"""Values of the features that are read at most."""

TABLE_CHECKS = (
    "labels_not_finite",
    "labels_equal",
    "labels_merged",
    "off_by_one",
    "weights_zero",
    "equal_rows",
    "target_in_input",
    "constant_features",
    "validation_in_training",
    "classes_not_trained",
    "eval_inputs_differ",
    "mse_on_classes",
)
"""The checks of this module."""

Task = Literal["regression", "binary", "classes", "other"]
"""What the labels are: numbers, two classes, class numbers, or anything that is not judged."""

#: Rows that a statement about a table needs, and rows whose order is compared first.
_FEWEST, _FIRST_LOOK = 20, 2000
#: Share of rows that may repeat within the training data, and that of validation rows that must be in it.
_MOST_TWINS, _SHARED = 0.05, 0.3
#: Distinct values of a number that is a function of another, rather than a class.
_DISTINCT = 20
#: Share of validation labels that the training does not have.
_UNSEEN = 0.3
#: Probability below which labels are not drawn by chance.
_CHANCE = 1e-9
#: Share of the values of a feature, and of the features, that lie outside of the training's range.
_OUTSIDE, _FEATURES = 0.8, 0.5
#: Rows that are hashed at once.
_BLOCK = 1 << 16
#: Largest number of classes whose squared error is noted.
_CLASSES = 12


@dataclass(frozen=True, eq=False)
class Table:
    """The data of a training or of its validation.

    Attributes:
        features: rows and columns, NaN where a value is missing; None: they cannot be read.
        labels: one number per row; None: they cannot be read.
        weights: one number per row; None: there are none.
        names: names of the columns, if they have any.
        is_whole: whether these are all rows.
        is_binned: whether the features were replaced by the edges of bins, as in histograms.
        name: the name of validation data.

    >>> Table(np.eye(3), np.arange(3)).column(1)
    'column 1'
    """

    features: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    weights: NDArray[Any] | None = None
    names: Sequence[str] = ()
    is_whole: bool = True
    is_binned: bool = False
    name: str = ""
    _keys: list[NDArray[np.uint64]] = field(default_factory=list, repr=False)

    def column(self, index: int) -> str:
        """Return the name of a column for a message."""
        return f"`{self.names[index]}`" if index < len(self.names) else f"column {index}"

    @property
    def keys(self) -> NDArray[np.uint64]:
        """One number per row: equal rows have equal ones."""
        if not self._keys:
            self._keys.append(row_keys(self.features) if self.features is not None else np.empty(0, np.uint64))
        return self._keys[0]


def row_keys(features: NDArray[Any]) -> NDArray[np.uint64]:
    """Return one number per row; equal rows have equal ones."""
    # A separate generator: the training's random numbers stay as they are.
    factors = np.random.Generator(np.random.PCG64(0)).integers(1, 2**63, features.shape[1], np.uint64)
    keys = np.empty(len(features), np.uint64)
    for begin in range(0, len(features), _BLOCK):
        # 0.0 and -0.0 are equal, and every NaN is one.
        block = features[begin : begin + _BLOCK].astype(np.float32) + np.float32(0)
        block[np.isnan(block)] = np.nan
        bits = block.view(np.uint32).astype(np.uint64)
        bits ^= bits >> np.uint64(15)
        keys[begin : begin + _BLOCK] = ((bits + np.uint64(1)) * factors).sum(1, dtype=np.uint64)
    return keys


class TableChecks:
    """Judges the data of a training before it begins.

    Args:
        log: the checks that fired.
        train: the training data.
        task: what the labels are.
        advice: what to change in this framework, by identifier, where the table of checks says it for another one.
        of_classes: whether a metric counts right classes.

    >>> log = CheckLog(frozenset(TABLE_CHECKS), lambda line: None)
    >>> TableChecks(log, Table(np.random.default_rng(0).normal(size=(40, 3)), np.ones(40)), "binary").look()
    >>> [str(one) for one in log.fired]
    ['step 0: All 40 labels of the training data are 1']
    """

    def __init__(
        self,
        log: CheckLog,
        train: Table,
        task: Task,
        advice: Mapping[str, str] | None = None,
        of_classes: bool = False,
    ) -> None:
        self._advice = advice or {}
        self._of_classes = of_classes
        self._log = log
        self._train = train
        self._task = task

    # --------------------------------------------------------------------------------------------------- training data

    def look(self, classes: int | None = None) -> None:
        """Judge labels, weights and features of the training data.

        ``classes`` is the number of outputs of a classification, if it is known.
        """
        self._labels(classes)
        weights = self._train.weights
        if weights is not None and len(weights) and not np.any(weights):
            self._log.say("weights_zero", 0, {"rows": len(weights)})
        if self._train.features is not None and len(self._train.features) >= _FEWEST:
            self._columns()

    def _labels(self, classes: int | None) -> None:
        labels = self._train.labels
        if labels is None or labels.ndim != 1 or len(labels) < _FEWEST or self._task == "other":
            return
        labels = labels.astype(np.float64)
        bad = len(labels) - int(np.isfinite(labels).sum())
        if bad:
            self._log.say("labels_not_finite", 0, {"count": bad, "total": len(labels)})
            labels = labels[np.isfinite(labels)]
        values = np.unique(labels)
        if not len(values):
            return
        if len(values) == 1:
            self._log.say("labels_equal", 0, {"count": len(labels), "label": float(values[0])})
            return
        whole = bool(np.array_equal(values, np.round(values)))
        if self._task == "regression" and whole and len(values) <= _CLASSES and len(labels) >= 4 * len(values):
            advice = self._advice.get("mse_on_classes", "")
            level: Level | None = "warning" if self._of_classes else None
            self._log.say("mse_on_classes", 0, {"count": len(values)}, advice=advice, level=level)
        if self._task == "classes" and classes is not None and 2 < classes <= 64 and len(labels) >= 20 * classes:
            present = {int(one) for one in values}
            if present == set(range(1, classes)):
                self._log.say("off_by_one", 0, {"classes": classes, "count": len(labels)})

    def merged(self) -> None:
        """Judge labels of which all above 0 are one class."""
        labels = self._train.labels
        if labels is None or labels.ndim != 1 or len(labels) < _FEWEST or not np.isfinite(labels).all():
            return
        values = np.unique(labels)
        above = values[values > 0]
        if 2 <= len(above) <= _CLASSES and np.array_equal(values, np.round(values)):
            self._log.say("labels_merged", 0, {"labels": ", ".join(f"{one:g}" for one in above)})

    def _columns(self) -> None:
        table = self._train
        features = table.features
        assert features is not None
        constant = _constant(features)
        if table.is_whole and features.shape[1] and constant.all():
            self._log.say("equal_rows", 0, {"rows": len(features)})
        elif table.is_whole and constant.any():
            columns = [table.column(int(index)) for index in np.flatnonzero(constant)]
            facts = {"count": len(columns), "total": features.shape[1], "column": columns[0]}
            self._log.say("constant_features", 0, facts, columns)
        labels = table.labels
        if labels is None or labels.shape != (len(features),) or self._task == "other" or features.shape[1] < 2:
            return
        for index in _candidates(features, labels, self._task == "regression"):
            same = bool(np.array_equal(features[:, index].astype(np.float32), labels.astype(np.float32)))
            facts = {"column": table.column(index).removeprefix("column "), "rows": len(features)}
            level: Level = "problem" if same else "warning"
            self._log.say("target_in_input", 0, facts, [table.column(index)], level=level)
            return

    # -------------------------------------------------------------------------------------------------- validation data

    def compare(self, table: Table, identical: bool = False, stops: bool = False, alone: bool = True) -> None:
        """Compare validation data with the training data.

        Args:
            table: the validation data.
            identical: whether they are the object that the training got.
            stops: whether early stopping judges by them.
            alone: whether there are no other validation data.
        """
        shared = 1.0 if identical else self._shared(table)
        equal = identical or (shared == 1.0 and len(table.keys) == len(self._train.keys))
        name = table.name or "the validation data"
        if stops and shared > 0.99:
            self._log.say("early_stopping_on_training", 0, {"data": name}, [name])
        elif shared >= _SHARED and not _is_of_training(table.name):
            facts = {"share": f"{shared:.0%}", "data": name}
            # Metrics of the training data are often wanted; a copy that is alone is taken for other data.
            level: Level = "problem" if not equal else "note" if identical or not alone else "warning"
            self._log.say("validation_in_training", 0, facts, [name], level=level)
        if not equal:
            self._compare_labels(table, name)
            self._compare_ranges(table)

    def _shared(self, table: Table) -> float:
        """Return the share of rows that are also in the training data.

        It is 0 if rows repeat anyway, or cannot be compared.
        """
        mine, other = self._train.features, table.features
        if mine is None or other is None or mine.shape[1:] != other.shape[1:] or mine.shape[1] < 2:
            return 0.0
        if min(len(mine), len(other)) < _FEWEST or self._train.is_binned != table.is_binned:
            return 0.0
        keys = np.unique(self._train.keys)
        if len(keys) < (1 - _MOST_TWINS) * len(self._train.keys):
            return 0.0  # rows repeat anyway
        return float(np.isin(table.keys, keys).mean())

    def _compare_labels(self, table: Table, name: str) -> None:
        mine, other = self._train.labels, table.labels
        if self._task not in ("binary", "classes") or mine is None or other is None or len(other) < _FEWEST:
            return
        values, counts = np.unique(mine, return_counts=True)
        unseen = float((~np.isin(other, values)).mean())
        if unseen >= _UNSEEN:
            what = f"{unseen:.0%} of the labels of {name} do not occur in the training data"
            self._log.say("classes_not_trained", 0, {"what": what}, [name])
        elif len(values) > 1 and np.all(other == other[0]):
            share = float(counts[values == other[0]].sum() / counts.sum())
            if share ** len(other) < _CHANCE:
                what = f"All {len(other)} labels of {name} are {float(other[0]):g}, as are {share:.0%} of the training data's"
                self._log.say("classes_not_trained", 0, {"what": what}, [name], level="warning")

    def _compare_ranges(self, table: Table) -> None:
        mine, other = self._train.features, table.features
        if mine is None or other is None or mine.shape[1:] != other.shape[1:] or table.is_binned:
            return
        if min(len(mine), len(other)) < _FEWEST:
            return
        with np.errstate(all="ignore"):
            varied = np.flatnonzero(~_constant(mine))
            if len(varied) < 2:
                return
            low, high = np.nanmin(mine[:, varied], 0), np.nanmax(mine[:, varied], 0)
            beyond = (other[:, varied] < low) | (other[:, varied] > high)
            if np.mean(beyond.mean(0) > _OUTSIDE) >= _FEATURES:
                sizes = [float(np.nanmean(np.abs(one[:, varied]))) for one in (other, mine)]
                facts = {"value": f"a mean size of {sizes[0]:.3g}", "usual": f"{sizes[1]:.3g}"}
                self._log.say("eval_inputs_differ", 0, facts)


def _is_of_training(name: str) -> bool:
    """Whether the name of data says that they are those of the training."""
    return scalars.describe(f"{name}-loss").role is scalars.Role.TRAINING


def _constant(features: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which columns have one value in all rows, or none at all."""
    if not len(features):
        return np.zeros(features.shape[1], bool)
    first = features[0]
    same: NDArray[np.bool_] = (features == first) | (np.isnan(features) & np.isnan(first))
    return np.asarray(same.all(0))


def _candidates(features: NDArray[Any], labels: NDArray[Any], is_number: bool) -> Iterator[int]:
    """Yield the columns that are a function of the labels, and the labels one of them."""
    rows = np.linspace(0, len(features) - 1, min(len(features), _FIRST_LOOK)).astype(np.int64)
    for index in range(features.shape[1]):
        for chosen in (rows, slice(None)):  # a first look at some rows rules out nearly all columns
            column, target = features[chosen, index], labels[chosen]
            is_function = _is_monotone(column, target) if is_number else _is_renamed(column, target)
            if not is_function:
                break
        else:
            yield index


def _is_renamed(column: NDArray[Any], labels: NDArray[Any]) -> bool:
    """Whether each class has one value in a column, which no other has.

    >>> _is_renamed(np.array([5, 7, 5, 9]), np.array([0, 1, 0, 2])), _is_renamed(np.arange(3), np.array([0, 1, 0]))
    (True, False)
    """
    if np.isnan(column).any():
        return False
    values, codes = np.unique(column, return_inverse=True)
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(values) != len(classes) or len(classes) < 2:
        return False
    return len(np.unique(codes * len(classes) + numbers)) == len(classes)


def _is_monotone(column: NDArray[Any], labels: NDArray[Any]) -> bool:
    """Whether a column never falls, or never rises, as the labels rise.

    >>> labels = np.arange(50.0)
    >>> _is_monotone(np.log1p(labels), labels), _is_monotone(labels % 7, labels)
    (True, False)
    """
    if np.isnan(column).any() or len(np.unique(column)) < _DISTINCT or len(np.unique(labels)) < _DISTINCT:
        return False
    for sign in (1, -1):
        ordered = column[np.lexsort((sign * column, labels))]
        if np.all(np.diff(sign * ordered) >= 0):
            return True
    return False
