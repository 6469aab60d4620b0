"""Checks of a network by its description: output layer, loss, targets, layers.

The functions are arithmetic on plain values and NumPy arrays. The reader of a framework makes an :class:`Output`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.checks.log import CheckLog

__all__ = ["OUTPUT_CHECKS", "TARGET_CHECKS", "Output", "Unchanged", "judge_output", "judge_targets", "judge_trainable"]

OUTPUT_CHECKS = ("softmax_before_loss", "double_sigmoid", "logits_as_probabilities", "softmax_one_unit", "one_class_ce")
"""The checks of an output layer and its loss."""
TARGET_CHECKS = ("unreachable_targets", "targets_broadcast", "labels_out_of_range")
"""The checks of an output layer and the targets."""

_CLASSES = frozenset({"categoricalcrossentropy", "sparsecategoricalcrossentropy"})
_ENTROPIES = _CLASSES | {"binarycrossentropy"}
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
#: Updates in which no weight changes.
_UPDATES = 8


@dataclass(frozen=True)
class Output:
    """The output of a model and its loss.

    Attributes:
        activation: such as ``"softmax"`` or ``"linear"``; empty if it is not known.
        units: size of the last dimension; None if it is not known.
        loss: name of the loss without underscores, such as ``"categoricalcrossentropy"``; empty if it is not known.
        from_logits: whether the loss applies a softmax or sigmoid.
        layer: name of the layer.
    """

    activation: str = ""
    units: int | None = None
    loss: str = ""
    from_logits: bool = False
    layer: str = "the output"


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
    elif output.loss in _ENTROPIES and not output.from_logits and output.activation == "linear":
        say("logits_as_probabilities", layer=output.layer)


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


class Unchanged:
    """Whether weights stay the same, bit by bit, while a training updates them.

    >>> log = CheckLog(frozenset({"weights_unchanged"}), lambda line: None)
    >>> unchanged = Unchanged(log)
    >>> for step in range(12):
    ...     unchanged.look(step, {"w": np.ones(3)})
    >>> [str(one) for one in log.fired]
    ['step 0: No weight changed in 8 updates']
    """

    def __init__(self, log: CheckLog) -> None:
        self._log = log
        self._first: dict[str, bytes] | None = None
        self._begin = 0
        #: Whether a weight has changed, or it was said that none does.
        self.is_over = False

    def look(self, step: int, weights: Mapping[str, NDArray[Any]]) -> None:
        """Compare the weights before an update with those before the first one."""
        if self.is_over or not weights:
            return
        content = {name: np.ascontiguousarray(one).tobytes() for name, one in weights.items()}
        if self._first is None or self._first.keys() != content.keys():
            self._first, self._begin = content, step
        elif any(self._first[name] != one for name, one in content.items()):
            self.is_over = True
        elif step - self._begin >= _UPDATES:
            self.is_over = True
            facts = {"count": _UPDATES, "tensors": len(content)}
            self._log.say("weights_unchanged", self._begin, facts, [*content][:3])
