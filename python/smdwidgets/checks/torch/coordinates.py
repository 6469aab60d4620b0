"""Check of coordinates of objects in pictures: that both are mirrored together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import REGRESSION, LossCall
from smdwidgets.checks.torch.values import is_plain

__all__ = ["CoordinateChecks"]

#: Pictures of a batch that are read and all that are, fewest pixels of a side and most of a picture, most targets.
_PICTURES, _MOST_PICTURES, _SIDE, _PIXELS, _TARGETS = 64, 2048, 8, 65_536, 64
#: Pictures that are needed.
_KNOWN = 384
#: Correlation of a target with the place of an object along one axis, which shows that targets are places.
_PLACED = 0.5
#: Correlation of the distances of both from the middle along the other axis, and that of the places, as a share of it.
_DISTANT, _UNSIGNED = 0.35, 0.4


class CoordinateChecks:
    """Looks for targets that give an object's distance from the middle only.

    The object is on either side of it. Targets along the other axis must give its place, so that they are known to be
    coordinates.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._pictures: torch.Tensor | None = None
        self._count = 0
        #: Places along both axes, and targets.
        self._places: list[NDArray[np.float64]] = []
        self._targets: list[NDArray[np.float64]] = []

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._pictures = None
        if not looks or not self._context.due or len(tensors) != 1 or self._count >= _MOST_PICTURES:
            return
        only = tensors[0]
        if is_plain(only) and only.is_floating_point() and only.ndim == 4 and min(only.shape[2:]) >= _SIDE:
            self._pictures = only if only[0].numel() <= _PIXELS else None

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        pictures, self._pictures = self._pictures, None
        target = call.target
        if pictures is None or call.kind not in REGRESSION or not is_plain(target) or target.ndim not in (2, 3):
            return
        if len(target) != len(pictures) or not 2 <= target[0].numel() <= _TARGETS or target.device != pictures.device:
            return
        pictures = pictures[:_PICTURES].detach().mean(1)
        self._context.values.read(
            self._judge, pictures.mean(1), pictures.mean(2), target[:_PICTURES].detach().flatten(1)
        )

    def _judge(self, columns: Any, rows: Any, targets: Any) -> None:
        """Compare the means of columns and rows of pictures with targets."""
        if self._targets and self._targets[0].shape[1] != targets.shape[1]:
            return
        self._places.append(np.stack([_place(columns), _place(rows)], 1))
        self._targets.append(targets)
        self._count += len(targets)
        if self._count < _KNOWN:
            return
        places, targets = np.concatenate(self._places), np.concatenate(self._targets)
        usable = np.isfinite(places).all(1) & np.isfinite(targets).all(1)
        if usable.sum() < _KNOWN:
            return
        places, targets = (each[usable] - each[usable].mean(0) for each in (places, targets))
        placed, distant = (np.abs(_correlations(each(places), each(targets))) for each in (lambda one: one, np.abs))
        for axis, name in enumerate(("horizontally", "vertically")):
            other = placed[1 - axis]
            column = int(distant[axis].argmax())
            is_either = distant[axis, column] > _DISTANT and placed[axis].max() < _UNSIGNED * distant[axis, column]
            if is_either and other.max() > _PLACED and int(other.argmax()) != column:
                facts = {"axis": name, "column": column, "rows": int(usable.sum())}
                self._context.log.say("coordinates_mirrored", self._context.step, facts, need=2)


def _place(lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the centre of what differs from the background, along one axis.

    >>> _place(np.array([[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]))
    array([ 2., nan])
    """
    weights = (lines - np.median(lines, 1, keepdims=True)) ** 2
    total = weights.sum(1)
    with np.errstate(all="ignore"):
        centres: NDArray[np.float64] = (weights * np.arange(lines.shape[1])).sum(1) / total
    return centres


def _correlations(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the correlations of columns; 0 for one that does not vary."""
    one, other = one - one.mean(0), other - other.mean(0)
    sizes = np.sqrt(np.outer((one**2).sum(0), (other**2).sum(0)))
    alike: NDArray[np.float64] = one.T @ other / np.where(sizes > 0, sizes, np.inf)
    return alike
