"""Checks of weight decay: its size beside weights and gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["DecayChecks", "updates_until_half"]

#: Share of the weights that decay removes at one update, and the number of updates.
_SHARE, _UPDATES = 0.01, 8
#: A decay that may exceed the gradient, the updates that are looked at, and elements of a tensor that are read.
_LARGE, _EARLY, _ELEMENTS = 0.005, 128, 512


class DecayChecks:
    """Checks the weight decay of optimizers.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def before_update(self, optimizer: Optimizer, name: str) -> None:
        """An optimizer of PyTorch is about to step."""
        subtracts = isinstance(optimizer, torch.optim.SGD | torch.optim.AdamW)
        for group in optimizer.param_groups:
            rate, decay = group.get("lr"), group.get("weight_decay")
            if not isinstance(rate, int | float) or not isinstance(decay, int | float):
                continue
            if subtracts or group.get("decoupled_weight_decay"):
                self._removes(rate, decay, name)
            elif decay >= _LARGE and self._context.due and self._context.updates < _EARLY:
                self._exceeds(decay, group["params"], name)

    def _removes(self, rate: float, decay: float, name: str) -> None:
        """A decay that removes a large share of the weights at each update."""
        if rate * decay <= _SHARE:
            return
        share = min(1.0, rate * decay)
        why = f"rate {rate:.3g} times weight decay {decay:.3g}"
        facts = {"optimizer": name, "share": f"{share:.1%}", "why": why, "half": updates_until_half(share)}
        self._context.log.say("strong_decay", self._context.step, facts, [name], need=_UPDATES)

    def _exceeds(self, decay: float, parameters: list[torch.Tensor], name: str) -> None:
        """A decay that an adaptive optimizer takes for most of the gradient."""
        context, step = self._context, self._context.step
        usable = [one for one in parameters if one.ndim > 1 and is_plain(one) and is_plain(one.grad)]
        largest = max(usable, key=lambda one: one.numel(), default=None)
        if largest is None or largest.grad is None:
            return
        tensor = context.name_of(largest)

        def judge(weight: Any, gradient: Any) -> None:
            size = float(abs(gradient).mean())
            ratio = decay * float(abs(weight).mean()) / size if size else 0.0
            if ratio > 1:
                facts = {"optimizer": name, "decay": f"{decay:.3g}", "ratio": f"{ratio:.2g}", "tensor": tensor}
                context.log.say("decay_in_gradient", step, facts, [tensor], need=_UPDATES)
            else:
                context.log.unseen("decay_in_gradient")

        context.values.read(judge, sampled(largest, _ELEMENTS), sampled(largest.grad, _ELEMENTS))


def updates_until_half(share: float) -> int:
    """Return after how many updates half of a weight is left.

    Each of them removes this share.

    >>> updates_until_half(0.01), updates_until_half(1.0)
    (69, 1)
    """
    return max(1, round(math.log(0.5) / math.log1p(-share))) if share < 1 else 1
