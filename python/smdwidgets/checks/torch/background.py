"""Check of detectors: that the loss of boxes leaves the background out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import REGRESSION, LossCall
from smdwidgets.checks.torch.values import is_plain

__all__ = ["BackgroundChecks"]

#: Losses of whether a place has an object, and numbers of a box.
_OBJECTNESS, _LEAST_NUMBERS, _MOST_NUMBERS = ("binary_cross_entropy", "binary_cross_entropy_with_logits"), 4, 8
#: Fewest places, those that are read, the largest share of them with an object, and losses that show the fault.
_FEWEST, _PLACES, _SHARE, _NEED = 16, 65_536, 0.5, 4


class BackgroundChecks:
    """Compares the targets of boxes with those that say which places have an object.

    Where there is no object, a box is a row of zeros. A loss that counts these rows teaches a box of 0, and most places
    are background.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def look(self, calls: Iterable[LossCall]) -> None:
        """A backward pass begins with these loss functions."""
        calls = [one for one in calls if is_plain(one.target) and one.reduction in ("mean", "sum")]
        objects = [one for one in calls if one.kind in _OBJECTNESS]
        boxes = [one for one in calls if one.kind in REGRESSION and one.target.ndim > 1]
        if len(objects) != 1 or not self._context.log.runs("background_in_loss"):
            return
        places = objects[0].target.numel()
        for one in boxes:
            numbers = one.target.numel() // max(places, 1)
            if not _LEAST_NUMBERS <= numbers <= _MOST_NUMBERS or numbers * places != one.target.numel():
                continue
            axis = next((axis for axis in (-1, 1) if one.target.shape[axis] == numbers), None)
            if axis is None or not _FEWEST <= places <= _PLACES or one.input.shape != one.target.shape:
                continue
            rows = [each.detach().movedim(axis, -1).reshape(places, numbers) for each in (one.target, one.input)]
            self._context.values.read(self._judge, objects[0].target.detach().reshape(-1), *rows)

    def _judge(self, objects: Any, targets: Any, predictions: Any) -> None:
        log, background = self._context.log, objects < 1
        empty = (targets == 0).all(1)
        share = 1 - background.mean()
        if not 0 < share < _SHARE:
            return
        # A script that masks both sides has predictions of 0 there.
        if (empty == background).all() and (predictions[background] != 0).any():
            facts = {"share": f"{share:.0%}"}
            log.say("background_in_loss", self._context.step, facts, ["loss"], need=_NEED)
        else:
            log.unseen("background_in_loss")
