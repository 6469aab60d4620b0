"""Checks of a network by its description: output layer, loss, targets, layers.

The functions are arithmetic on plain values and NumPy arrays. The reader of a framework makes an :class:`Output`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.log import CheckLog

__all__ = [
    "FEWEST_INPUTS",
    "FIRST_LOSS",
    "OUTPUT_CHECKS",
    "TARGET_CHECKS",
    "WEIGHT_CHECKS",
    "Link",
    "Output",
    "Start",
    "Starts",
    "Weights",
    "judge_links",
    "judge_output",
    "judge_scale",
    "judge_targets",
    "judge_trainable",
    "judge_values",
]

OUTPUT_CHECKS = (
    *("softmax_before_loss", "double_sigmoid", "logits_as_probabilities", "softmax_one_unit", "one_class_ce"),
    *("softmax_over_rows", "sum_reduction"),
)
"""The checks of an output layer and its loss."""
TARGET_CHECKS = ("unreachable_targets", "targets_broadcast", "labels_out_of_range", "mse_on_onehot")
"""The checks of an output layer and the targets."""
WEIGHT_CHECKS = ("weights_unchanged", "symmetric_units", "no_gradient")
"""The checks of weights at the start and after some updates."""

_CLASSES = frozenset({"categoricalcrossentropy", "sparsecategoricalcrossentropy"})
_ENTROPIES = _CLASSES | {"binarycrossentropy"}
#: Activations whose outputs may be probabilities; the name of one that is not known is empty.
_PROBABILITIES = frozenset({"softmax", "sigmoid", "hard_sigmoid", "sparsemax", "exponential", ""})
_ELEMENTWISE = frozenset(
    {
        *("meansquarederror", "mse", "meanabsoluteerror", "mae", "meansquaredlogarithmicerror", "msle"),
        *("meanabsolutepercentageerror", "mape", "huber", "logcosh"),
    }
)
_RANGES: Mapping[str, tuple[float, float]] = {
    "sigmoid": (0.0, 1.0),
    "softmax": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "relu": (0.0, np.inf),
}
#: Share of the targets outside of the range of the output, and the fewest targets.
_OUTSIDE, _FEWEST = 0.05, 20
#: Rows of outputs that are judged, and by how much probabilities may miss 1.
_FEWEST_ROWS, _ROUNDING = 8, 1e-3
#: Factor by which a layer multiplies the size of its inputs that is too large.
_GAIN = 4.0
#: Updates in which no weight changes; trainings of a model that are compared, and repetitions that are no accident.
_UPDATES, _STARTS, _REPEATED = 8, 8, 3
#: A change of other weights that is this many times as large as the rounding of a weight would change it, too.
_FAR_ABOVE_ROUNDING = 1e4


@dataclass(frozen=True)
class Output:
    """The output of a model and its loss.

    Attributes:
        activation: such as ``"softmax"`` or ``"linear"``; empty if it is not known.
        units: size of the last dimension; None if it is not known.
        loss: name of the loss without underscores, such as ``"categoricalcrossentropy"``; empty if it is not known.
        from_logits: whether the loss applies a softmax or sigmoid.
        layer: name of the layer.
        shape: shape of the output, with None for dimensions of any size.
        axis: the axis of a softmax; None: it is not known.
        is_sum: whether the loss is the sum over the batch.
        of_classes: whether a metric counts right classes.
    """

    activation: str = ""
    units: int | None = None
    loss: str = ""
    from_logits: bool = False
    layer: str = "the output"
    shape: tuple[int | None, ...] = ()
    axis: int | None = None
    is_sum: bool = False
    of_classes: bool = False


def judge_output(log: CheckLog, output: Output, advice: Mapping[str, str]) -> None:
    """Judge an output layer and its loss.

    >>> log = CheckLog(frozenset(OUTPUT_CHECKS), lambda line: None)
    >>> judge_output(log, Output("softmax", 3, "categoricalcrossentropy", True), {})
    >>> [one.id for one in log.fired]
    ['softmax_before_loss']
    """

    def say(id: str, **facts: Any) -> None:
        log.say(id, 0, facts, [output.layer], advice=advice.get(id, ""))

    if output.activation == "softmax" and output.units == 1:
        say("softmax_one_unit")
    elif output.loss in _CLASSES and output.units == 1:
        say("one_class_ce")
    elif output.loss in _ENTROPIES and output.from_logits and output.activation in ("softmax", "sigmoid"):
        if output.loss == "binarycrossentropy" and output.activation == "sigmoid":
            say("double_sigmoid")
        else:
            say("softmax_before_loss", what=f"A {output.activation}")
    elif output.loss in _ENTROPIES and not output.from_logits and output.activation not in _PROBABILITIES:
        is_linear = output.activation == "linear"
        what = "have no activation" if is_linear else f"come from {output.activation}"
        say("logits_as_probabilities", layer=output.layer, what=what)
    if output.activation == "softmax" and output.axis in (0, -len(output.shape)):
        say("softmax_over_rows", shape=tuple("N" if size is None else size for size in output.shape))
    if output.is_sum:
        say("sum_reduction")


def judge_values(log: CheckLog, output: Output, values: NDArray[Any] | None, advice: Mapping[str, str]) -> None:
    """Judge the values of an output of which it is not known what computes it.

    >>> log = CheckLog(frozenset(OUTPUT_CHECKS), lambda line: None)
    >>> judge_values(log, Output(loss="categoricalcrossentropy", from_logits=True), np.full((32, 4), 0.25), {})
    >>> [one.id for one in log.fired]
    ['softmax_before_loss']
    """
    if values is None or values.ndim < 2 or len(values) < _FEWEST_ROWS or output.loss not in _ENTROPIES:
        return
    rows = values.reshape(-1, values.shape[-1]).astype(np.float64)
    are_shares = rows.shape[1] > 1 and rows.min() >= 0 and np.abs(rows.sum(axis=1) - 1).max() < _ROUNDING
    id = ""
    if output.from_logits and output.loss in _CLASSES and are_shares:
        id, facts = "softmax_before_loss", {"what": "A softmax"}
    elif not output.from_logits and ((rows < 0) | (rows > 1 + _ROUNDING)).mean() > _OUTSIDE:
        id, facts = "logits_as_probabilities", {"layer": output.layer, "what": "are below 0 or above 1"}
    if id:
        log.say(id, 0, facts, [output.layer], advice=advice.get(id, ""))


def judge_targets(log: CheckLog, output: Output, targets: NDArray[Any]) -> None:
    """Judge the targets of a loss."""
    if len(targets) < _FEWEST or not (np.issubdtype(targets.dtype, np.number) or targets.dtype == bool):
        return
    units = output.units
    if output.loss == "sparsecategoricalcrossentropy" and units is not None:
        beyond = int(((targets < 0) | (targets >= units)).sum())
        if beyond:
            log.say(
                "labels_out_of_range", 0, {"count": beyond, "total": targets.size, "classes": units}, [output.layer]
            )
    if output.loss in _ELEMENTWISE and units is not None:
        last = 1 if targets.ndim == 1 else targets.shape[-1]
        if targets.ndim <= 2 and last != units and 1 in (last, units):
            shapes = f"(N, {units}) and {'(N,)' if targets.ndim == 1 else f'(N, {last})'}"
            log.say("targets_broadcast", 0, {"shapes": shapes}, [output.layer])
            return
        if targets.ndim == 2 and last == units and last > 1 and _is_one_hot(targets):
            log.say("mse_on_onehot", 0, {}, [output.layer], level="warning" if output.of_classes else None)
    limits = _RANGES.get(output.activation)
    if limits is None or output.loss not in _ELEMENTWISE | {"binarycrossentropy"} or output.from_logits:
        return
    outside = float(((targets < limits[0]) | (targets > limits[1])).mean())
    if outside > _OUTSIDE:
        facts = {"share": f"{outside:.0%}", "activation": output.activation}
        log.say("unreachable_targets", 0, facts, [output.layer])


def judge_trainable(log: CheckLog, sizes: Iterable[tuple[bool, int]], advice: str) -> None:
    """Judge which share of the parameters is trainable.

    Args:
        log: the checks that fired.
        sizes: of each tensor whether it is trainable, and its size.
        advice: what to change in this framework.
    """
    listed = [*sizes]
    total, trained = sum(size for _, size in listed), sum(size for trainable, size in listed if trainable)
    if total and trained < total / 2:
        facts = {"share": f"{trained / total:.1%}", "only": "" if trained else ": nothing is trained"}
        log.say("mostly_frozen", 0, facts, level=None if trained else "problem", advice=advice)


def _is_one_hot(targets: NDArray[Any]) -> bool:
    return bool(np.isin(targets, (0, 1)).all() and (targets.sum(axis=1) == 1).all())


@dataclass(frozen=True)
class Link:
    """A layer on the path from the input of a model to its output.

    Attributes:
        name: its name.
        has_weights: whether each of its outputs depends on several inputs by weights.
        is_linear: whether twice the input gives twice the output, but for a bias.
        inputs: size of the last dimension of its inputs.
        units: that of its outputs.
    """

    name: str
    has_weights: bool
    is_linear: bool
    inputs: int | None = None
    units: int | None = None


def judge_links(log: CheckLog, links: Sequence[Link], step: int = 0) -> None:
    """Judge whether the hidden layers of a model, given in order, have an activation.

    >>> log = CheckLog(frozenset({"no_activation"}), lambda line: None)
    >>> judge_links(log, [Link("hidden", True, True, 4, 32), Link("out", True, False, 32, 3)])
    >>> [one.id for one in log.fired]
    ['no_activation']
    """
    weighted = [at for at, one in enumerate(links) if one.has_weights]
    hidden = [links[at] for at in weighted[:-1]]
    if not hidden or not all(all(one.is_linear for one in links[a:b]) for a, b in pairwise(weighted)):
        return
    # A layer with fewer units than inputs and outputs is a product of small matrices, which needs no activation.
    narrow = [
        one.units is not None and one.inputs is not None and one.units < min(one.inputs, links[after].units or 0)
        for one, after in zip(hidden, weighted[1:], strict=True)
    ]
    if not any(narrow):
        names = [one.name for one in hidden]
        log.say("no_activation", step, {"layers": len(weighted), "tensor": names[0]}, names)


FEWEST_INPUTS = 8
"""Inputs that a layer has at least, if the size of its weights is judged."""
FIRST_LOSS = 10.0
"""Loss relative to that of guessing from which on the first one is too large."""


def judge_scale(
    log: CheckLog, gains: Mapping[str, float], loss: float, guessing: float, step: int, above: float = FIRST_LOSS
) -> None:
    """Judge the size of random weights by what they make of the first loss.

    Args:
        log: the checks that fired.
        gains: by layer, the deviation of its weights times the root of the number of its inputs.
        loss: the first loss.
        guessing: the loss of guessing: of classes, or of the mean of the targets.
        step: global step.
        above: the loss, relative to guessing, from which on it is too large.

    >>> log = CheckLog(frozenset({"large_initial_weights"}), lambda line: None)
    >>> judge_scale(log, {"a": 8.0, "b": 9.0}, 500.0, 2.3, 0)
    >>> [str(one) for one in log.fired]
    ['step 0: The first loss is 500, where guessing gives 2.3: the weights of `a` are too large at the start']
    """
    large = [name for name, gain in gains.items() if gain > _GAIN]
    if large and loss > above * guessing > 0 and len(large) > min(len(gains) - 1, max(1, len(gains) // 2)):
        facts = {"loss": loss, "guessing": guessing, "tensor": large[0], "gain": max(gains.values())}
        log.say("large_initial_weights", step, facts, large)


class Weights:
    """Whether weights change, and whether the units of a layer differ.

    >>> log = CheckLog(frozenset(WEIGHT_CHECKS), lambda line: None)
    >>> weights = Weights(log)
    >>> for step in range(12):
    ...     weights.look(step, {"kernel": np.random.default_rng(0).random((2, 3))})
    >>> [str(one) for one in log.fired]
    ['step 0: No weight changed in 8 updates']
    """

    def __init__(self, log: CheckLog) -> None:
        self._log = log
        self._first: dict[str, NDArray[Any]] | None = None
        self._begin = 0
        self._has_changed = False
        #: By matrix, its deviation times the root of the number of its inputs, before the first update.
        self.gains: dict[str, float] = {}
        #: Whether all was said that there is to say.
        self.is_over = False

    def is_due(self, step: int) -> bool:
        """Whether the weights before this update are needed."""
        return not self.is_over and (not self._has_changed or step - self._begin >= _UPDATES)

    def look(self, step: int, weights: Mapping[str, NDArray[Any]]) -> None:
        """Compare the weights before an update with those before the first one."""
        if self.is_over or not weights:
            return
        if self._first is None or self._first.keys() != weights.keys():
            self._first, self._begin = {name: np.array(one) for name, one in weights.items()}, step
            self.gains = {
                name: float(one.std()) * math.sqrt(one[..., 0].size)
                for name, one in weights.items()
                if one.ndim > 1 and one[..., 0].size >= FEWEST_INPUTS
            }
            return
        still = [name for name, one in weights.items() if self._first[name].tobytes() == one.tobytes()]
        self._has_changed = len(still) < len(weights)
        if step - self._begin < _UPDATES:
            return
        self.is_over = True
        if not self._has_changed:
            facts = {"count": _UPDATES, "tensors": len(weights)}
            self._log.say("weights_unchanged", self._begin, facts, [*weights][:3])
            return
        # A matrix of one value starts as it is meant to, or its units stay equal.
        # The biases of some recurrent layers are matrices, too.
        matrices = {n: one for n, one in weights.items() if one.ndim > 1 and one.shape[-1] > 1 and "bias" not in n}
        equal = [
            name for name, one in matrices.items() if _are_units_equal(one) and _are_units_equal(self._first[name])
        ]
        if equal:
            self._log.say("symmetric_units", self._begin, {"tensor": equal[0], "count": _UPDATES}, equal)
            return
        change = max(_largest_change(self._first[name], one) for name, one in weights.items() if name not in still)
        stopped = [
            name for name in still if name in matrices and change > _FAR_ABOVE_ROUNDING * _rounding(matrices[name])
        ]
        if stopped:
            counts = {"count": len(stopped), "total": len(weights)}
            words = {"optimizer": "the optimizer", "tensor": stopped[0], "why": ": they do not change"}
            self._log.say("no_gradient", self._begin, {**counts, **words}, stopped)


def _largest_change(before: NDArray[Any], after: NDArray[Any]) -> float:
    """Return the largest finite change of a weight."""
    difference = np.abs(np.subtract(after, before, dtype=np.float64))
    return float(difference[np.isfinite(difference)].max(initial=0.0))


def _rounding(matrix: NDArray[Any]) -> float:
    """Return the distance of the smallest weight to the next number.

    Smaller changes may be lost in all weights.

    >>> _rounding(np.array([0.0, 1.0, -2.0], np.float32))
    1.1920928955078125e-07
    """
    smallest = float(np.abs(matrix[matrix != 0]).min(initial=np.inf))
    return float(np.spacing(matrix.dtype.type(smallest))) if math.isfinite(smallest) else 0.0


def _are_units_equal(matrix: NDArray[Any]) -> bool:
    """Whether all units, which are along the last axis, have the same weights."""
    return bool((matrix == matrix[..., :1]).all())


@dataclass(frozen=True)
class Start:
    """The start of one of several trainings of a model.

    Attributes:
        optimizer: name of the class of the optimizer.
        is_new: whether the training before this one had another optimizer, which began with the same learning rate.
        updates: updates that the optimizer has made.
        weights: a digest of the weights; empty if they are not known.
        is_next_pass: whether it is one more pass over the data of the training before this one.
    """

    optimizer: str
    is_new: bool
    updates: int
    weights: str
    is_next_pass: bool


class Starts:
    """Whether trainings of a model go on where the last one ended.

    >>> log = CheckLog(frozenset({"optimizer_recreated"}), lambda line: None)
    >>> starts = Starts(log)
    >>> for step in range(5):
    ...     starts.begins(step, Start("Adam", step > 0, 0, str(step), True))
    >>> [str(one) for one in log.fired]
    ['step 1: A new Adam is created for each call of `fit`, and its state is lost']
    """

    def __init__(self, log: CheckLog) -> None:
        self._log = log
        self._before: Start | None = None
        self._number = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be said."""
        return self._number >= _STARTS

    def begins(self, step: int, start: Start) -> None:
        """A training begins."""
        before, self._before = self._before, start
        self._number += 1
        if before is None or not start.weights or not start.is_next_pass:
            return
        is_restored = start.weights == before.weights
        # Weights that are set back begin a new training, which may have a new optimizer.
        for id, holds in (
            ("weights_restored", is_restored),
            ("optimizer_recreated", start.is_new and not start.updates and not is_restored),
        ):
            if holds:
                facts = {"optimizer": start.optimizer, "period": "call of `fit`"}
                self._log.say(id, step, facts, [start.optimizer], need=_REPEATED)
            else:
                self._log.unseen(id)
