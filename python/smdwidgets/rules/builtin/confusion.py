"""Confusion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.classes import class_numbers
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import OptionalInteger, Real, Text
from smdwidgets.rules.selector import Selector

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Maximum number of classes. Larger class numbers are ignored, because they are not class labels.
MOST_CLASSES = 1_000


class Confusion(BuiltinRule):
    """Detect classes whose predictions often belong to another class.

    At each step, counts labels and predictions in a confusion matrix, label by prediction, and divides each column by
    its sum. A column then holds the labels' shares among the predictions of one class. Fires when the diagonal share of
    any class is below `min_diag`, or any off-diagonal share is above `max_off_diag`. A class that has labels and is
    never predicted has a diagonal share of 0. A class with neither labels nor predictions is not judged.

    `labels` and `predictions` are tensor names. If a step has no tensor of that name, the tensors of the collections
    `labels_collection` and `predictions_collection` are paired in the order of their names. Scores are converted to
    classes as in ClassImbalance. If `category_no` is None, the number of classes is the largest class number plus one.
    Labels beyond `category_no` are counted too. All workers are counted together.

    What to do: check the class pairs named in the message. Are their labels correct? Are there enough samples?
    """

    category_no = OptionalInteger(None, "Number of classes; None: the largest class number plus one.", minimum=2)
    labels = Text("labels", "Name of the tensor of labels.")
    predictions = Text("predictions", "Name of the tensor of predictions.")
    labels_collection = Text("labels", "Collection to search for labels.")
    predictions_collection = Text("predictions", "Collection to search for predictions.")
    min_diag = Real(0.9, "Minimum share on the diagonal.", minimum=0.0, maximum=1.0)
    max_off_diag = Real(0.1, "Maximum share off the diagonal.", minimum=0.0, maximum=1.0)

    def judge(self, step: int) -> None:
        labels, predictions = (
            self._names(step, self.labels, self.labels_collection),
            self._names(step, self.predictions, self.predictions_collection),
        )
        if not labels or not predictions:
            raise NothingToJudge("no labels with predictions at this step")
        key = ("confusion", step, tuple(labels), tuple(predictions), self.category_no)
        matrix = self.measurements.cached(key, lambda: self._matrix(step, labels, predictions))
        if not matrix.sum():
            raise NothingToJudge("labels and predictions at this step do not match")
        self._judge_matrix(matrix, predictions[0], step)

    def _judge_matrix(self, matrix: NDArray[np.int64], name: str, step: int) -> None:
        predicted, labelled = matrix.sum(axis=0), matrix.sum(axis=1)
        shares = matrix / np.maximum(predicted, 1)
        diagonal = np.diagonal(shares)
        for each in np.flatnonzero((predicted + labelled > 0) & (diagonal < self.min_diag)):
            message = (
                f"{number(100 * diagonal[each])} % of predictions of class {each} are correct, minimum {number(100 * self.min_diag)} %"
                if predicted[each]
                else f"class {each} has {labelled[each]} labels and is never predicted"
            )
            self.blame(name, step, diagonal[each], self.min_diag, message)
        off = shares - np.diag(diagonal)
        for label, each in np.argwhere(off > self.max_off_diag):
            message = (
                f"{number(100 * off[label, each])} % of predictions of class {each} are of class {label}, "
                f"limit {number(100 * self.max_off_diag)} %"
            )
            self.blame(name, step, off[label, each], self.max_off_diag, message)

    def _names(self, step: int, name: str, collection: str) -> Sequence[str]:
        if name in self.measurements.names_at(step):
            return (name,)
        return self.measurements.names(Selector((collection,)), step) if collection else ()

    def _matrix(self, step: int, labels: Sequence[str], predictions: Sequence[str]) -> NDArray[np.int64]:
        pairs = []
        for label, prediction in zip(labels, predictions, strict=False):
            for worker in self.measurements.workers(label, step):
                try:
                    values = (
                        self.measurements.value(label, step, worker),
                        self.measurements.value(prediction, step, worker),
                    )
                except SMDebugError:
                    continue
                if (both := class_numbers(*values, argmax=False)) is not None:
                    pairs.append(both)
        true = np.concatenate([each[0] for each in pairs] or [np.empty(0, np.int64)])
        predicted = np.concatenate([each[1] for each in pairs] or [np.empty(0, np.int64)])
        inside = (true >= 0) & (predicted >= 0) & (true < MOST_CLASSES) & (predicted < MOST_CLASSES)
        true, predicted = true[inside], predicted[inside]
        size = max(self.category_no or 2, int(true.max(initial=0)) + 1, int(predicted.max(initial=0)) + 1)
        return np.bincount(true * size + predicted, minlength=size * size).reshape(size, size)
