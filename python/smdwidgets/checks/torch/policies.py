"""Checks of the loss of a policy that chooses actions."""

from __future__ import annotations

from typing import Any

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Value, kind_of, nodes_of, tensor_of, values_before
from smdwidgets.checks.torch.sums import added, same, terms_of

__all__ = ["PolicyChecks"]

#: Losses that show a fault.
_NEED = 2
#: Nodes that choose between a ratio and its limited form, with the sign that a loss gives them: of what is made larger,
#: the smaller one is meant.
_CHOOSING = {"Minimum": -1, "Maximum": 1}
#: Nodes that compare values with targets, and those that join terms of several steps.
_ERRORS, _JOINING = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"}), ("Stack", "Cat")
#: Nodes that show that a value is a logarithm of probabilities.
_LOGARITHMS = frozenset({"LogSoftmax", "Logsumexp", "Log"})
#: Nodes of one value that are looked at.
_MOST = 256


class PolicyChecks:
    """Looks at the terms of a loss that change the probabilities of actions.

    PPO chooses between ratios times advantages and the same with limited ratios. A loss whose minimum is chosen must
    have a negative sign, since the ratio is `exp(new - old)`.

    An actor and a critic share a loss, in which the critic's values are compared with returns. Where the actor's term
    has a gradient through these values, too, the critic learns to make that term smaller.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        log, step = self._context.log, self._context.step
        parts = added(terms_of((root.grad_fn, 0)))
        for (node, _), factor in parts.items():
            power = _ratio_of(node)
            if power is None:
                continue
            log.say(
                "policy_loss", step, {"what": "weighs ratios of probabilities with advantages"}, ["loss"], need=_NEED
            )
            if _is_inverted(power):
                if factor * _CHOOSING[kind_of(node)] > 0:
                    log.say("ratio_inverted", step, subject=["loss"], need=_NEED)
            elif kind_of(node) == "Minimum" and factor > 0:
                log.say("policy_negated", step, subject=["loss"], need=_NEED)
        terms = [one for node, _ in parts for one in _joined(node)]
        values = {one for term in terms if (one := _compared(term)) is not None}
        if values and any(_moves_values(term, values) for term in terms):
            log.say("advantage_not_detached", step, subject=["loss"], need=_NEED)


def _joined(node: Any) -> list[Any]:
    """Return the nodes of the values that a node joins, or the node itself."""
    return [same(one)[0] for one in values_before(node)] if kind_of(node) in _JOINING else [node]


def _ratio_of(node: Any) -> Any:
    """Return the exponential that a loss limits and multiplies with advantages."""
    products = [one for one, _ in values_before(node)] if kind_of(node) in _CHOOSING else []
    if len(products) != 2 or any(tensor_of(one) is None for one in products):
        return None
    inner = [same(values_before(one)[0])[0] for one in products]
    return inner[0] if inner[0] is inner[1] and kind_of(inner[0]) == "Exp" else None


def _is_inverted(power: Any) -> bool:
    """Whether an exponential is that of old less new logarithms."""
    difference = same(values_before(power)[0])[0]
    if kind_of(difference) != "Sub" or len(difference.next_functions) != 2:
        return False
    first, second = (one is not None for one, _ in difference.next_functions)
    return second and not first


def _compared(node: Any) -> Value | None:
    """Return the values that a term of a loss compares with targets, or None."""
    if kind_of(node) in _ERRORS and len(before := values_before(node)) == 1:
        return same(before[0])
    return _subtracted(values_before(node)[0]) if kind_of(node) == "Pow" else None


def _subtracted(value: Value) -> Value | None:
    """Return the values in a difference from constants, or None."""
    node = same(value)[0]
    while kind_of(node) == "Neg":
        node = same(values_before(node)[0])[0]
    before = values_before(node)
    return same(before[0]) if kind_of(node) in ("Sub", "Rsub") and len(before) == 1 else None


def _moves_values(node: Any, values: set[Value]) -> bool:
    """Whether log-probabilities are multiplied with something that has the values."""
    sides = values_before(node)
    if kind_of(node) != "Mul" or len(sides) != 2:
        return False
    for advantage, logarithm in (sides, sides[::-1]):
        if _subtracted(advantage) in values:
            nodes = [one for one, _ in zip(nodes_of(logarithm[0]), range(_MOST), strict=False)]
            return any(kind_of(one) in _LOGARITHMS for one in nodes)
    return False
