"""Check of rows of zeros, from which nothing can be learned."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.values import is_plain

__all__ = ["ZeroRowChecks"]

#: Rows that are read, fewest of a batch, fewest elements of a row, and numbers of a target that are read.
_ROWS, _FEWEST_ROWS, _ELEMENTS, _TARGETS = 256, 8, 16, 16
#: Share of rows that are zeros, that of them with the most frequent target at most, and steps in a row.
_ZEROS, _SAME_TARGET, _STEPS = 0.8, 0.6, 5


class ZeroRowChecks:
    """Looks for batches of rows that are nearly all zeros, though targets differ.

    Padding among the rows, and places where nothing happens, have one target for nearly all of them.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._input: torch.Tensor | None = None
        self._steps = 0

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._input = None
        if not looks or len(tensors) != 1 or not self._context.due:
            return
        only = tensors[0]
        is_wide = only.ndim > 1 and len(only) >= _FEWEST_ROWS and only[0].numel() >= _ELEMENTS
        if is_wide and is_plain(only) and only.is_floating_point():
            self._input = only

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        only, self._input = self._input, None
        target = call.target
        if only is None or not is_plain(target) or not target.ndim or len(target) != len(only):
            return
        step, ignored, number = self._context.step, call.ignored, min(_ROWS, len(only))

        def judge(has_values: Any, targets: Any) -> None:
            targets = targets[(has_values == 0) & (targets != ignored).any(1)]
            _, counts = np.unique(targets, axis=0, return_counts=True)
            share = float((has_values == 0).mean())
            differ = len(targets) >= _FEWEST_ROWS and counts.max() <= _SAME_TARGET * len(targets)
            self._steps = self._steps + 1 if differ and share >= _ZEROS else 0
            if self._steps >= _STEPS:
                what = f"{share:.0%} of the rows are 0 at each step, though their targets differ"
                self._context.log.say("zero_batch", step, {"what": what})

        rows = only[:number].detach().flatten(1)
        self._context.values.read(judge, rows.any(1), target[:number].reshape(number, -1)[:, :_TARGETS])
