"""The checks of one training of Keras."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.log import CheckLog
from smdwidgets.checks.mechanisms import Mechanisms
from smdwidgets.checks.networks import (
    OUTPUT_CHECKS,
    TARGET_CHECKS,
    WEIGHT_CHECKS,
    Link,
    Output,
    Start,
    Starts,
    Weights,
    judge_links,
    judge_output,
    judge_scale,
    judge_targets,
    judge_trainable,
    judge_values,
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
    "layers": ("mostly_frozen", "strong_dropout", "norm_momentum", "no_activation"),
    "data": (*_OF_TABLES, *TARGET_CHECKS, "labels_sorted"),
    "batches": ("same_batch",),
    "updates": (
        *WEIGHT_CHECKS,
        "large_initial_weights",
        "targets_not_scaled",
        "optimizer_recreated",
        "weights_restored",
    ),
}
_ADVICE = {
    "softmax_before_loss": "remove the activation of the last layer, or set `from_logits=False`.",
    "double_sigmoid": "remove the activation of the last layer, or set `from_logits=False`.",
    "softmax_one_unit": 'use `activation="sigmoid"` and `binary_crossentropy`.',
    "one_class_ce": "use one unit per class, or `binary_crossentropy`.",
    "labels_sorted": "shuffle the data, or remove `shuffle=False`.",
    "softmax_over_rows": "use `axis=-1`.",
    "mse_on_onehot": "use `categorical_crossentropy`.",
    "sum_reduction": 'remove `reduction="sum"`, or adapt the learning rate to the batch size.',
    "mse_on_classes": "use a cross-entropy with one unit per class if the numbers are classes.",
}
#: Share that a dropout removes, and momentum of a normalization, from which on there is a warning.
_DROPS, _MOMENTUM = 0.8, 0.1
#: Size of targets that is large, the batch after which outputs should be on the way there, and the share of the loss of
#: an output of 0 that says that they are not.
_LARGE, _LATER, _STILL = 100.0, 9, 0.9
_SQUARES = ("mse", "meansquarederror")
#: Rows of labels that an order is judged by, and batches that are compared.
_FEWEST, _BATCHES = 64, 8


@dataclass(frozen=True)
class ModelFacts:
    """What a model says of itself.

    Attributes:
        output: its output layer and loss; None: they are not known.
        sizes: of each weight whether it is trainable, and its size.
        dropouts: share that each dropout removes, by name of the layer.
        momenta: momentum of each batch normalization, by name of the layer.
        links: the layers from the input to the output; empty if they are no simple chain.
        normalizes: whether a layer normalizes its inputs.
    """

    output: Output | None
    sizes: Iterable[tuple[bool, int]] = ()
    dropouts: Mapping[str, float] | None = None
    momenta: Mapping[str, float] | None = None
    links: Sequence[Link] = ()
    normalizes: bool = False


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
        self._normalizes = False
        self._data: FitData | None = None
        self._weights = Weights(log)
        self._starts = Starts(log)
        #: A digest of the last batch, and how many batches were equal to it one after the other.
        self._last_batch: bytes | None = None
        self._same = 0
        #: The loss of guessing; 0 if it is not known, or layers normalize their inputs.
        self._guessing = 0.0
        #: The size of the targets, and the loss of an output of 0.
        self._far = math.inf, math.inf
        self.batches = 0

    def model(self, read: Callable[[], ModelFacts]) -> None:
        """A training of a model begins."""
        self._mechanisms.run("layers", self._judge_model, read)
        data, self._data = self._data, None
        if data is not None:
            self._mechanisms.run("data", self._judge_data, data)

    def _judge_model(self, read: Callable[[], ModelFacts]) -> None:
        facts = read()
        self._output, self._normalizes = facts.output, facts.normalizes
        if facts.output is None:
            self.log.off((*OUTPUT_CHECKS, *TARGET_CHECKS), "the output layer or the loss of the model is not known")
        else:
            self._mechanisms.run("outputs", judge_output, self.log, facts.output, _ADVICE)
        judge_trainable(self.log, facts.sizes, "check which layers have `trainable=False`.")
        judge_links(self.log, facts.links)
        for name, rate in (facts.dropouts or {}).items():
            if rate >= _DROPS:
                self.log.say("strong_dropout", 0, {"what": f"`{name}`", "share": f"{rate:.0%}"}, [name])
        for name, momentum in (facts.momenta or {}).items():
            if momentum <= _MOMENTUM:
                advice = "use 1 minus the momentum of PyTorch, such as 0.9 or 0.99."
                self.log.say(
                    "norm_momentum",
                    0,
                    {
                        "tensor": name,
                        "momentum": momentum,
                        "what": "its running statistics are those of about one batch",
                    },
                    [name],
                    advice=advice,
                )

    def data(self, read: Callable[[], FitData | None], why: str = "the data are not arrays") -> None:
        """``fit`` is called: read its data, which are judged when the model is known."""
        self._mechanisms.run("data", self._read_data, read, why)

    def _read_data(self, read: Callable[[], FitData | None], why: str) -> None:
        self._data = read()
        if self._data is None:
            self.log.off(MECHANISMS["data"], why)

    def _judge_data(self, data: FitData) -> None:
        output = self._output
        task = _task_of(output)
        if task == "regression" and data.targets is not None and (size := _size_of(data.targets)) >= _LARGE:
            is_square = output is not None and output.loss in _SQUARES
            self._far = size, size**2 if is_square else float(np.abs(data.targets).mean())
        self._guessing = 0.0 if self._normalizes else _guessing_of(output, data.targets)
        if task == "regression" and data.targets is not None and data.targets.ndim > 1 and data.targets.shape[1] > 1:
            task = "classes"  # if the table has labels, the targets are one-hot vectors
        judge = TableChecks(self.log, data.train, task, _ADVICE, output is not None and output.of_classes)
        judge.look(output.units if output is not None and output.loss.startswith("sparse") else None)
        if data.validation is not None:
            judge.compare(data.validation, data.identical)
        if output is not None and data.targets is not None:
            judge_targets(self.log, output, data.targets)
        labels = data.train.labels
        if not data.shuffle and labels is not None and _is_sorted(labels, data.batch):
            self.log.say("labels_sorted", 0, advice=_ADVICE["labels_sorted"])

    def starts(self, read: Callable[[], Start]) -> None:
        """``fit`` has begun, the first time or again."""
        if not self._starts.is_over:
            self._mechanisms.run("updates", lambda: self._starts.begins(self.batches, read()))

    def outputs(self, read: Callable[[], NDArray[Any] | None]) -> None:
        """The model gives its outputs for a batch.

        Those of the first one matter if no layer says what they are.
        """
        output = self._output
        if not self.batches and output is not None and not output.activation and output.loss:
            self._mechanisms.run("outputs", lambda: judge_values(self.log, output, read(), _ADVICE))

    def gradients(self, read: Callable[[], tuple[Sequence[str], int]]) -> None:
        """An update is traced or run.

        ``read`` returns the weights that get no gradient, and the number of all weights to train.
        """
        self._mechanisms.run("updates", self._judge_gradients, read)

    def _judge_gradients(self, read: Callable[[], tuple[Sequence[str], int]]) -> None:
        names, total = read()
        if names and len(names) < total:
            facts = {"count": len(names), "total": total, "optimizer": "the optimizer", "tensor": names[0], "why": ""}
            self.log.say("no_gradient", self.batches, facts, names)

    @property
    def looks_at_data(self) -> bool:
        """Whether this batch is to be given to `inputs` and `outputs`."""
        return self.batches < _BATCHES

    def inputs(self, read: Callable[[], NDArray[Any] | None], batches: int | None) -> None:
        """The model gets a batch, one of a number in each epoch."""
        if (batches is None or batches > 1) and self.log.runs("same_batch"):
            self._mechanisms.run("batches", self._compare_batches, read)

    def _compare_batches(self, read: Callable[[], NDArray[Any] | None]) -> None:
        value = read()
        if value is None or value.size < 2 or (value == value.flat[0]).all():
            return
        content = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
        self._same = self._same + 1 if content == self._last_batch else 1
        self._last_batch = content
        if self._same >= _BATCHES:
            advice = "let the generator or data set go on to the next rows."
            self.log.say("same_batch", self.batches - _BATCHES + 1, {"why": ""}, advice=advice)

    def looks_at_weights(self) -> bool:
        """Whether the weights before this update are to be given to `weights`."""
        return self._weights.is_due(self.batches) and any(map(self.log.runs, WEIGHT_CHECKS))

    def weights(self, read: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
        """An update begins."""
        self._mechanisms.run("updates", lambda: self._weights.look(self.batches, read()))

    def batch_ends(self, loss: float | None = None) -> None:
        """An update has ended, which began with a loss; None: it is not known."""
        gains = self._weights.gains
        if loss is not None and not self.batches and len(gains) > 1:
            self._mechanisms.run("updates", judge_scale, self.log, gains, loss, self._guessing, 0)
        size, of_zero = self._far
        if loss is not None and self.batches and loss >= _STILL * of_zero:
            what = f"after {self.batches} updates the loss is still that of an output of 0"
            self.log.say("targets_not_scaled", 0, {"target": size, "what": what})
        self.batches += 1
        self._updated(self.batches)

    @property
    def needs_loss(self) -> bool:
        """Whether the loss of this batch is to be given to `batch_ends`."""
        return self.batches in (0, _LATER)

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


def _size_of(targets: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(np.square(targets, dtype=np.float64)))) if targets.size else 0.0


def _guessing_of(output: Output | None, targets: NDArray[Any] | None) -> float:
    """Return the loss of guessing; 0 if it is not known."""
    if output is None or output.units is None:
        return 0.0
    if output.loss.endswith("categoricalcrossentropy") and output.units > 1:
        return math.log(output.units)
    if output.loss in _SQUARES and targets is not None:
        return float(np.var(targets.reshape(len(targets), -1), axis=0).mean())
    return 0.0


def _is_sorted(labels: NDArray[Any], batch: int) -> bool:
    """Whether rows are ordered by a few classes, so that most batches hold one.

    >>> _is_sorted(np.repeat([0, 1], 100), 16), _is_sorted(np.arange(200) % 2, 16), _is_sorted(np.arange(200), 16)
    (True, False, False)
    """
    if len(labels) < _FEWEST or not np.array_equal(labels, np.round(labels)):
        return False
    classes, steps = len(np.unique(labels)), np.diff(labels)
    return 2 <= classes <= len(labels) / (4 * batch) and bool(np.all(steps >= 0) or np.all(steps <= 0))
