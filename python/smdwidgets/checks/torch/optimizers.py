"""Checks of what optimizers hold, and of their settings."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch.optim import Optimizer

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.order import share_groups
from smdwidgets.checks.torch.values import is_plain

__all__ = ["OptimizerChecks"]

#: Updates at which two optimizers use the same gradients.
_TWICE = 3
#: Optimizers whose second moments are meant to average over more updates than their first ones.
_OF_MOMENTS = (torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax)


class OptimizerChecks:
    """Looks at the tensors and settings of optimizers.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Numbers of tensors of the optimizers that were looked at, by id.
        self._looked: dict[int, int] = {}
        #: The optimizers that have stepped since the last backward pass.
        self._stepped: list[weakref.ref[Optimizer]] = []

    def backward_begins(self) -> None:
        """A backward pass begins: the gradients will be others."""
        self._stepped.clear()

    def before_update(self, optimizer: Optimizer) -> None:
        """An optimizer is about to step."""
        number = sum(len(group["params"]) for group in optimizer.param_groups)
        if self._looked.get(id(optimizer)) != number:
            self._looked[id(optimizer)] = number
            self._betas(optimizer)
            self._memory(optimizer)
        others = [one for reference in self._stepped if (one := reference()) is not None and one is not optimizer]
        if others:
            self._held_twice(optimizer, others)

    def after_update(self, optimizer: Optimizer) -> None:
        """An optimizer has stepped."""
        self._stepped.append(weakref.ref(optimizer))

    def _betas(self, optimizer: Optimizer) -> None:
        """Look whether the first beta is larger than the second one."""
        for group in optimizer.param_groups if isinstance(optimizer, _OF_MOMENTS) else ():
            first, second = map(float, group["betas"])
            if first > second:
                name = type(optimizer).__name__
                facts = {"optimizer": name, "first": first, "second": second}
                self._context.log.say("betas_exchanged", self._context.step, facts, [name])
                return

    def _memory(self, optimizer: Optimizer) -> None:
        """Look for two tensors that are the same memory."""
        held = [one for group in optimizer.param_groups for one in group["params"]]
        held = [one for one in held if is_plain(one) and one.numel() and one.requires_grad]
        count = Counter((one.data_ptr(), one.numel()) for one in held)
        # One tensor may be in an optimizer twice, which PyTorch warns of.
        twice = [one for one in {id(one): one for one in held}.values() if count[one.data_ptr(), one.numel()] > 1]
        if len(twice) < 2:
            return
        names = [self._context.name_of(one) for one in twice]
        facts = {"tensor": names[0], "other": names[1], "optimizer": type(optimizer).__name__}
        self._context.log.say("memory_shared", self._context.step, facts, names)

    def _held_twice(self, optimizer: Optimizer, others: list[Optimizer]) -> None:
        """Look whether another optimizer has just used the gradients of the same tensors."""
        held = {id(one): one for group in optimizer.param_groups for one in group["params"] if one.grad is not None}
        for other in others:
            if share_groups(optimizer, other):
                continue  # one wraps the other
            twice: list[Any] = [one for group in other.param_groups for one in group["params"] if id(one) in held]
            if twice:
                names = [self._context.name_of(one) for one in twice]
                kinds = type(other).__name__, type(optimizer).__name__
                facts = {"count": len(twice), "tensor": names[0], "first": kinds[0], "second": kinds[1]}
                self._context.log.say("held_twice", self._context.step, facts, names, need=_TWICE)
                return
