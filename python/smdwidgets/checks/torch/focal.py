"""Check of losses that weigh rows by how sure the model is."""

from __future__ import annotations

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Value, kind_of, number_of, values_before
from smdwidgets.checks.torch.sums import added, same, terms_of

__all__ = ["FocalChecks"]

#: Losses that show the fault.
_NEED = 2
#: Losses of each row or element.
_LOSSES = frozenset({"NllLoss", "NllLoss2D", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"})
#: Nodes that pick the probability of the right class.
_PICKING = frozenset({"Gather", "Index"})


class FocalChecks:
    """Looks for a focal loss that weighs the rows most of which the model is sure.

    A focal loss multiplies the loss of a row with a power of 1 - p, where p is the probability of the right class.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        for term in added(terms_of((root.grad_fn, 0))):
            sides = _sides(term)
            if any(_weighs_sure_rows(*pair) for pair in (sides, sides[::-1]) if len(pair) == 2):
                self._context.log.say("focal_reversed", self._context.step, subject=["loss"], need=_NEED)


def _sides(value: Value) -> list[Value]:
    """Return the values that a product multiplies, without its constant factors."""
    node = _without_factors(value)[0]  # such as weights of the classes
    return [_without_factors(one) for one in values_before(node)] if kind_of(node) == "Mul" else []


def _without_factors(value: Value) -> Value:
    value = same(value)
    while (
        kind_of(value[0]) in ("Mul", "Neg", "Div")
        and len(before := values_before(value[0])) == 1
        and (kind_of(value[0]) != "Div" or value[0].next_functions[0][0] is not None)
    ):
        value = same(before[0])
    return value


def _weighs_sure_rows(weight: Value, loss: Value) -> bool:
    """Whether a weight is a power of the probability whose logarithm is the loss."""
    exponent = number_of(weight[0], "exponent") if kind_of(weight[0]) == "Pow" else None
    if exponent is None or exponent <= 0:
        return False
    base = same(values_before(weight[0])[0])
    if kind_of(base[0]) == "Exp":  # exp(-loss), or the exponential of the logarithm
        power = same(values_before(base[0])[0])
        if kind_of(loss[0]) in _LOSSES:
            return kind_of(power[0]) == "Neg" and same(values_before(power[0])[0]) == loss
        return kind_of(loss[0]) in _PICKING and power == loss and _comes_of(loss, "LogSoftmax")
    if kind_of(base[0]) not in _PICKING or not _comes_of(base, "Softmax"):
        return False
    return kind_of(loss[0]) in _LOSSES or (kind_of(loss[0]) in _PICKING and _comes_of(loss, "LogSoftmax"))


def _comes_of(picked: Value, kind: str) -> bool:
    """Whether values were picked of the result of a node of this kind."""
    return kind_of(same(values_before(picked[0])[0])[0]) == kind
