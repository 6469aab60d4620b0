"""Check of losses that get their arguments in another order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import kind_of, nodes_of, saved, values_before
from smdwidgets.checks.torch.sums import same
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["ExchangedChecks"]

#: Nodes near the root that are looked at, and numbers that are read.
_MOST_NODES, _NUMBERS = 200, 1024
#: Losses for which predictions and targets differ, by their nodes.
_ORDERED = {
    "BinaryCrossEntropy": "binary_cross_entropy",
    "BinaryCrossEntropyWithLogits": "binary_cross_entropy_with_logits",
}


class ExchangedChecks:
    """Looks for losses whose targets the model computes.

    Their predictions, or their variances, are data.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        for node in islice(nodes_of(root.grad_fn), _MOST_NODES):
            name = _ORDERED.get(kind_of(node))
            if name is not None and _has_gradient(node) == [False, True]:
                self._say(f"The targets of {name} have a gradient, and its predictions have none")
            for variance in _variances(node):
                self._judge_variance(variance)

    def _judge_variance(self, variance: torch.Tensor) -> None:
        def judge(values: Any) -> None:
            # Equal values are a variance that was set.
            if np.isfinite(values).all() and np.ptp(values) > 0:
                self._say("gaussian_nll_loss compares two outputs of the model, and divides by data as their variance")

        if is_plain(variance) and variance.numel() > 1:
            self._context.values.read(judge, sampled(variance, _NUMBERS))

    def _say(self, what: str) -> None:
        self._context.log.say("arguments_exchanged", self._context.step, {"what": what}, ["loss"])


def _has_gradient(node: Any) -> list[bool]:
    return [before is not None for before, _ in node.next_functions][:2]


def _variances(node: Any) -> Iterator[torch.Tensor]:
    """Yield v in log(v) + (x - y)² / v if x and y have gradients, and v has none."""
    if kind_of(node) != "Add" or sorted(_has_gradient(node)) != [False, True]:
        return
    quotient = same(values_before(node)[0])[0]
    if kind_of(quotient) != "Div" or _has_gradient(quotient) != [True, False]:
        return
    square, variance = same(values_before(quotient)[0])[0], saved(quotient, "_saved_other")
    if kind_of(square) != "Pow" or not isinstance(variance, torch.Tensor):
        return
    difference = same(values_before(square)[0])[0]
    if kind_of(difference) == "Sub" and _has_gradient(difference) == [True, True]:
        yield variance.detach()
