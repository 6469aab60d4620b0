"""Check of losses that measure an overlap with masks: that they get probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Value, kind_of, nodes_of, saved, values_before
from smdwidgets.checks.torch.sums import same
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["OverlapChecks"]

#: Losses that show the fault, nodes near the root and within a sum that are looked at, and elements that are read.
_NEED, _NODES, _TERMS, _ELEMENTS = 2, 64, 24, 4096
#: Nodes of layers, whose results have no limits, those that add up, and those that pick or rearrange elements.
_LAYERS = frozenset({"Convolution", "ConvolutionOverrideable", "Addmm", "Mm", "Bmm", "UpsampleBilinear2D"})
_ADDING = frozenset({"Add", "Sub", "Mul", "Div", "Clamp", "ClampMin", "Neg", "Sum", "View", "Squeeze", "Unsqueeze"})
_MOVING = frozenset({"Slice", "Select", "Permute", "Transpose", "T", "Alias", "Index"})


class OverlapChecks:
    """Looks for a Dice or Jaccard loss of the results of a layer.

    Such a loss divides the sum of products with a mask by the sum of both. It is a measure of overlap if the factors
    are between 0 and 1. Results of a layer may be negative, and the quotient may then have any value.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        if not self._context.log.runs("overlap_of_logits"):
            return
        for node, _ in zip(nodes_of(root.grad_fn), range(_NODES), strict=False):
            sides = values_before(node) if kind_of(node) == "Div" else []
            mask = _mask_of(*sides) if len(sides) == 2 else None
            if mask is not None and is_plain(mask):
                self._context.values.read(self._judge, sampled(mask.detach(), _ELEMENTS))
                return

    def _judge(self, mask: Any) -> None:
        log = self._context.log
        if ((mask == 0) | (mask == 1)).all():
            log.say("overlap_of_logits", self._context.step, subject=["loss"], need=_NEED)
        else:
            log.unseen("overlap_of_logits")


def _mask_of(above: Value, below: Value) -> torch.Tensor | None:
    """Return the mask of a quotient whose other factor has no limits, or None."""
    summed = {same(before) for before in _sums(below)}
    for value in _sums(above):
        node = same(value)[0]
        factors = values_before(node) if kind_of(node) == "Mul" else []
        if len(factors) != 1 or not (_is_unlimited(factors[0]) and same(factors[0]) in summed):
            continue
        masks = (saved(node, "_saved_other"), saved(node, "_saved_self"))
        return next((one for one in masks if isinstance(one, torch.Tensor) and not one.requires_grad), None)
    return None


def _sums(value: Value) -> Iterator[Value]:
    """Yield the values whose elements a small expression adds up."""
    pending = [value]
    for _ in range(_TERMS):
        if not pending:
            return
        node = pending.pop()[0]
        before = values_before(node)
        if kind_of(node) == "Sum" and before:
            yield before[0]
        if kind_of(node) in _ADDING:
            pending += before


def _is_unlimited(value: Value) -> bool:
    """Whether a layer has computed values, and no function has limited them after it."""
    value = same(value)
    while kind_of(value[0]) in _MOVING and len(before := values_before(value[0])) == 1:
        value = same(before[0])
    return kind_of(value[0]) in _LAYERS
