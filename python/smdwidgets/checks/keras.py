"""The checks of one training of Keras."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.mechanisms import Mechanisms
from smdwidgets.checks.networks import (
    OUTPUT_CHECKS,
    TARGET_CHECKS,
    Output,
    Unchanged,
    judge_output,
    judge_targets,
    judge_trainable,
)
from smdwidgets.checks.tables import Table, TableChecks, Task

__all__ = ["MECHANISMS", "FitData", "KerasChecks", "ModelFacts"]

_OF_TABLES = (
    *("labels_equal", "off_by_one", "equal_rows", "target_in_input", "constant_features", "mse_on_classes"),
    *("validation_in_training", "classes_not_trained", "eval_inputs_differ"),
)
#: The checks of each mechanism.
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "outputs": OUTPUT_CHECKS,
    "layers": ("mostly_frozen", "strong_dropout", "norm_momentum"),
    "data": (*_OF_TABLES, *TARGET_CHECKS, "labels_sorted"),
    "updates": ("weights_unchanged",),
}
_ADVICE = {
    "softmax_before_loss": "remove the activation of the last layer, or set `from_logits=False`.",
    "double_sigmoid": "remove the activation of the last layer, or set `from_logits=False`.",
    "softmax_one_unit": 'use `activation="sigmoid"` and `binary_crossentropy`.',
    "one_class_ce": "use one unit per class, or `binary_crossentropy`.",
    "labels_sorted": "shuffle the data, or remove `shuffle=False`.",
    "mse_on_classes": "use a cross-entropy with one unit per class if the numbers are classes.",
}
#: Share that a dropout removes, and momentum of a normalization, from which on there is a warning.
_DROPS, _MOMENTUM = 0.8, 0.1
#: Rows of labels that an order is judged by.
_FEWEST = 64


@dataclass(frozen=True)
class ModelFacts:
    """What a model says of itself.

    Attributes:
        output: its output layer and loss; None: they are not known.
        sizes: of each weight whether it is trainable, and its size.
        dropouts: share that each dropout removes, by name of the layer.
        momenta: momentum of each batch normalization, by name of the layer.
    """

    output: Output | None
    sizes: Iterable[tuple[bool, int]] = ()
    dropouts: Mapping[str, float] | None = None
    momenta: Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class FitData:
    """The arrays of a call of ``fit``.

    Attributes:
        train: inputs and targets, one row each.
        targets: the targets as they are.
        validation: those of the validation; None: there are none.
        identical: whether both are the same objects.
        shuffle: whether the rows are shuffled.
        batch: rows of a batch.
    """

    train: Table
    targets: NDArray[Any] | None
    validation: Table | None = None
    identical: bool = False
    shuffle: bool = True
    batch: int = 32


class KerasChecks:
    """The checks of a training.

    Args:
        log: the checks that fired.
        updated: called after each batch, with the number of batches.
    """

    def __init__(self, log: CheckLog, updated: Callable[[int], object] = lambda batches: None) -> None:
        self.log = log
        self._mechanisms = Mechanisms(log, MECHANISMS)
        self._updated = updated
        self._output: Output | None = None
        self._data: FitData | None = None
        self._unchanged = Unchanged(log)
        self.batches = 0

    def model(self, read: Callable[[], ModelFacts]) -> None:
        """A training of a model begins."""
        self._mechanisms.run("layers", self._judge_model, read)
        data, self._data = self._data, None
        if data is not None:
            self._mechanisms.run("data", self._judge_data, data)

    def _judge_model(self, read: Callable[[], ModelFacts]) -> None:
        facts = read()
        self._output = facts.output
        if facts.output is None:
            self.log.off((*OUTPUT_CHECKS, *TARGET_CHECKS), "the output layer or the loss of the model is not known")
        else:
            self._mechanisms.run("outputs", judge_output, self.log, facts.output, _ADVICE)
        judge_trainable(self.log, facts.sizes, "check which layers have `trainable=False`.")
        for name, rate in (facts.dropouts or {}).items():
            if rate >= _DROPS:
                self.log.say("strong_dropout", 0, {"tensor": name, "share": f"{rate:.0%}"}, [name])
        for name, momentum in (facts.momenta or {}).items():
            if momentum <= _MOMENTUM:
                advice = "use 1 minus the momentum of PyTorch, such as 0.9 or 0.99."
                self.log.say("norm_momentum", 0, {"tensor": name, "momentum": momentum}, [name], advice=advice)

    def data(self, read: Callable[[], FitData | None], why: str = "the data are not arrays") -> None:
        """``fit`` is called: read its data, which are judged when the model is known."""
        self._mechanisms.run("data", self._read_data, read, why)

    def _read_data(self, read: Callable[[], FitData | None], why: str) -> None:
        self._data = read()
        if self._data is None:
            self.log.off(MECHANISMS["data"], why)

    def _judge_data(self, data: FitData) -> None:
        output = self._output
        judge = TableChecks(self.log, data.train, _task_of(output), _ADVICE)
        judge.look(output.units if output is not None and output.loss.startswith("sparse") else None)
        if data.validation is not None:
            judge.compare(data.validation, data.identical)
        if output is not None and data.targets is not None:
            judge_targets(self.log, output, data.targets)
        labels = data.train.labels
        if not data.shuffle and labels is not None and _is_sorted(labels, data.batch):
            self.log.say("labels_sorted", 0, advice=_ADVICE["labels_sorted"])

    def looks_at_weights(self) -> bool:
        """Whether the weights before this update are to be given to `weights`."""
        return not self._unchanged.is_over and self.log.runs("weights_unchanged")

    def weights(self, read: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """An update begins."""
        self._mechanisms.run("updates", lambda: self._unchanged.look(self.batches, read()))

    def batch_ends(self) -> None:
        """An update has ended."""
        self.batches += 1
        self._updated(self.batches)

    def close(self) -> None:
        """The training has ended: write the counts."""
        self.log.close(self.batches)


def _task_of(output: Output | None) -> Task:
    loss = "" if output is None else output.loss
    if loss == "binarycrossentropy":
        return "binary"
    if loss.endswith("categoricalcrossentropy"):
        return "classes"
    is_regression = loss in ("meansquarederror", "mse", "meanabsoluteerror", "mae", "huber")
    return "regression" if is_regression else "other"


def _is_sorted(labels: NDArray[Any], batch: int) -> bool:
    """Whether rows are ordered by a few classes, so that most batches hold one.

    >>> _is_sorted(np.repeat([0, 1], 100), 16), _is_sorted(np.arange(200) % 2, 16), _is_sorted(np.arange(200), 16)
    (True, False, False)
    """
    if len(labels) < _FEWEST or not np.array_equal(labels, np.round(labels)):
        return False
    classes, steps = len(np.unique(labels)), np.diff(labels)
    return 2 <= classes <= len(labels) / (4 * batch) and bool(np.all(steps >= 0) or np.all(steps <= 0))
