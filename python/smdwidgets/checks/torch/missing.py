"""Check of targets that are missing: that the loss leaves them out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, constant_factors, is_picked
from smdwidgets.checks.torch.values import is_plain

__all__ = ["MissingChecks"]

#: Elements of targets that are looked at, the share that is missing at least, and batches in which it is trained on.
_ELEMENTS, _SHARE, _BATCHES = 1_000_000, 0.01, 4
#: How near two targets are that are equal, relative to the largest one.
_NEAR = 1e-5


class MissingChecks:
    """Compares targets of a data loader, some of them missing, with those of a loss.

    The mask of the loss shows whether it counts them. A script that fills missing targets on purpose has no mask.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._targets: list[torch.Tensor] = []

    def batch(self, tensors: Iterable[torch.Tensor]) -> None:
        """A data loader has given a batch with these tensors."""
        self._targets = []
        if self._context.due and not self._context.log.has_fired("missing_trained"):
            self._targets = [
                one.clone()
                for one in tensors
                if is_plain(one) and one.is_cpu and one.is_floating_point() and one.numel() <= _ELEMENTS
                if _SHARE < float(one.isnan().float().mean()) < 1
            ]

    def look(self, call: LossCall, root: torch.Tensor) -> None:
        """A loss function near the root of a graph has targets."""
        target = call.target
        loaded = [one for one in self._targets if one.numel() == target.numel()]
        if len(loaded) != 1 or not is_plain(target):
            return
        masks = [one for one in constant_factors(root, target.numel()) if is_plain(one) and one.device == target.device]
        if is_picked(call.before):
            masks = []  # all elements have been picked
        elif not masks:
            return
        step = self._context.step

        def judge(loaded: Any, target: Any, *masks: Any) -> None:
            is_missing = np.isnan(loaded)
            near = _NEAR * max(float(np.abs(target).max()), float(loaded[~is_missing].std()))
            # A difference that a script computes gives its targets with an error of rounding.
            if not (np.abs(loaded - target)[~is_missing] <= near).all():
                return
            filled = target[is_missing]
            if np.ptp(filled) <= near and all((mask == 1).all() for mask in masks):
                facts = {"share": f"{is_missing.mean():.0%}", "value": f"{np.round(filled.mean(), 3) + 0.0:g}"}
                self._context.log.say("missing_trained", step, facts, need=_BATCHES)
            else:
                self._context.log.unseen("missing_trained")

        self._context.values.read(judge, *(one.reshape(-1) for one in (loaded[0], target, *masks)))
