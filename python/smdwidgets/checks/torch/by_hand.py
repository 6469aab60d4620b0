"""Check of updates that a script makes itself, without an optimizer."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["HandUpdateChecks"]

#: Backward passes that are looked at, updates without a reset, and elements that are read.
_LOOKS, _UPDATES, _ELEMENTS = 16, 4, 64


class HandUpdateChecks:
    """Looks whether gradients are reset between updates that a script makes itself.

    A weight changes between two backward passes, and the second one begins with the gradient that the first one left.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._looks = 0
        self._updates = 0
        self._probe: weakref.ref[torch.Tensor] | None = None
        #: Samples of the weight and its gradient when the last backward pass ended.
        self._left: tuple[torch.Tensor, torch.Tensor] | None = None

    def backward_begins(self) -> None:
        """A backward pass begins, and no optimizer is known."""
        left, self._left = self._left, None
        probe = None if self._probe is None else self._probe()
        if left is None or probe is None:
            return
        if probe.grad is None:
            self._looks = _LOOKS
            return
        step = self._context.step

        def judge(weight: Any, gradient: Any, weight_now: Any, gradient_now: Any) -> None:
            if (weight == weight_now).all() or not gradient.any():
                return
            self._updates += 1
            if (gradient != gradient_now).any():
                self._looks = _LOOKS  # reset, or scaled
            elif self._updates >= _UPDATES:
                self._looks = _LOOKS
                self._context.log.say("not_reset", step, {"optimizer": "the script"})

        self._context.values.read(judge, *left, *_samples(probe))

    def backward_ends(self) -> None:
        """A backward pass has ended, and no optimizer is known."""
        if self._looks >= _LOOKS:
            return
        self._looks += 1
        probe = None if self._probe is None else self._probe()
        if probe is None:
            with_gradient = (
                one for _, one in self._context.parameters() if one.grad is not None and is_plain(one.grad)
            )
            probe = max(with_gradient, key=torch.Tensor.numel, default=None)
            if probe is None:
                return
            self._probe = weakref.ref(probe)
        if probe.grad is not None:
            self._left = tuple(one.clone() for one in _samples(probe))


def _samples(probe: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    assert probe.grad is not None
    return sampled(probe, _ELEMENTS), sampled(probe.grad, _ELEMENTS)
