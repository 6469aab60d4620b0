"""Metrics of a classifier from class numbers and scores.

>>> import numpy as np
>>> matrix = confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
>>> matrix.tolist()
[[1, 1], [0, 1]]
>>> round(precision_recall(matrix)["macro"].f1, 3)
0.667
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Row", "area_under", "confusion_matrix", "precision_recall", "roc"]


class Row(NamedTuple):
    """Precision, recall and F1 of a class, or of an average."""

    precision: float
    recall: float
    f1: float
    support: int


def confusion_matrix(labels: NDArray[np.int64], predictions: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Count pairs by label (row) and prediction (column).

    Class numbers outside 0 to `classes` - 1 are ignored.
    """
    inside = (labels >= 0) & (labels < classes) & (predictions >= 0) & (predictions < classes)
    flat = labels[inside] * classes + predictions[inside]
    return np.bincount(flat, minlength=classes * classes).reshape(classes, classes)


def precision_recall(matrix: NDArray[np.int64]) -> dict[str, Row]:
    """Compute precision, recall and F1 by class, with three averages.

    The averages are micro, macro and weighted. 0/0 is replaced with 0.
    """
    right = np.diagonal(matrix).astype(np.float64)
    predicted, labelled = matrix.sum(axis=0).astype(np.float64), matrix.sum(axis=1).astype(np.float64)
    precision, recall = _share(right, predicted), _share(right, labelled)
    f1 = _share(2 * precision * recall, precision + recall)
    rows = {
        str(each): Row(float(precision[each]), float(recall[each]), float(f1[each]), int(labelled[each]))
        for each in range(len(matrix))
    }
    total = float(matrix.sum())
    accuracy = float(right.sum() / total) if total else 0.0
    rows["micro"] = Row(accuracy, accuracy, accuracy, int(total))
    present = (predicted + labelled) > 0
    weights = _share(labelled, np.full_like(labelled, total))
    for name, weight in (("macro", present / max(present.sum(), 1)), ("weighted", weights)):
        rows[name] = Row(float(precision @ weight), float(recall @ weight), float(f1 @ weight), int(total))
    return rows


def roc(labels: NDArray[np.int64], scores: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute false and true positive rates, from the highest threshold to the lowest.

    There is one point per distinct score.

    >>> roc(np.array([0, 1]), np.array([0.1, 0.9]))
    (array([0., 0., 1.]), array([0., 1., 1.]))
    """
    order = np.argsort(-scores, kind="stable")
    positive = labels[order] == 1
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    true = np.cumsum(positive)[last]
    false = np.cumsum(~positive)[last]
    ends = max(int(positive.sum()), 1), max(int((~positive).sum()), 1)
    return np.concatenate([[0.0], false / ends[1]]), np.concatenate([[0.0], true / ends[0]])


def area_under(false_rate: NDArray[np.float64], true_rate: NDArray[np.float64]) -> float:
    """Compute the area under a curve with the trapezoidal rule."""
    return float(np.sum(np.diff(false_rate) * (true_rate[1:] + true_rate[:-1]) / 2))


def _share(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
