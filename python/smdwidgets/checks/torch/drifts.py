"""Check of noise that adds up in the data of which batches are parts."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["DriftChecks"]

#: Places that are remembered, elements of each, changes of one that are looked at, and places that must drift.
_PLACES, _ELEMENTS, _CHANGES, _DRIFTING = 64, 97, 3, 3
#: Fewest different values of a place.
_FEWEST = 16
#: Tensors that parts are taken from, after which no more are looked at.
_MOST_DATA = 8
#: How much the squared distance from the first values must grow with the second change, and with the third.
_GROWTH = 1.4, 1.15
#: Correlation of two changes in a row, from which on they have a direction, as those of an optimization have.
_DIRECTED = 0.5


@dataclass(slots=True)
class _Place:
    """A part of the data: where its sample is, and what it was at the last pass.

    Attributes:
        sample: size, stride and offset of the sample within the data.
        version: the count of changes of the data at the last pass.
        last: the values at the last pass.
        changes: what each later pass has added, apart from its mean.
    """

    sample: tuple[int, int, int]
    version: int
    last: NDArray[np.float64]
    changes: list[NDArray[np.float64]] = field(default_factory=list)

    @property
    def distances(self) -> list[float]:
        """The mean squared distances from the first values."""
        return [float((each**2).mean()) for each in np.cumsum(self.changes, axis=0)]

    @property
    def drifts(self) -> bool:
        """Whether each pass has moved the values further away, by random numbers."""
        one, two, three = self.distances
        is_directed = any(
            np.abs(np.corrcoef(*pair)[0, 1]) >= _DIRECTED for pair in zip(self.changes, self.changes[1:], strict=False)
        )
        return one > 0 and two > _GROWTH[0] * one and three > _GROWTH[1] * two and not is_directed


class DriftChecks:
    """Watches the parts of a tensor that a model gets in turn.

    Code that prepares a batch, such as ``x += noise``, changes a part just before its pass, and not after it. Rows that
    are replaced by others do not move further away with each pass. Inputs that are optimized, and states of a
    simulation, change after the pass or in one direction.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._data: weakref.ref[torch.Tensor] | None = None
        self._places: dict[int, _Place] = {}
        self._before: _Place | None = None
        #: How many tensors there were, and whether all is known of the last one.
        self._count = 0
        self._ended = False

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        first = tensors[0] if tensors else None
        data: Any = getattr(first, "_base", None)
        if self._count > _MOST_DATA or not looks or first is None or data is None or not model.training:
            return
        is_part = is_plain(first) and is_plain(data) and first.is_cpu and first.numel() < data.numel()
        if not is_part or not first.is_floating_point() or first.dtype != data.dtype or not first.is_contiguous():
            return
        if first.requires_grad or data.requires_grad or self._context.loader_batches:
            return
        if self._data is None or self._data() is not data:
            self._data, self._places, self._before = weakref.ref(data), {}, None
            self._count += 1
            self._ended = False
        if not self._ended:
            self._pass(first.detach(), data.detach())

    def _pass(self, part: torch.Tensor, data: torch.Tensor) -> None:
        before, self._before = self._before, None
        sample = sampled(part, _ELEMENTS)
        key, values = part.storage_offset(), _values(sample)
        place = self._places.get(key)
        if before is not None and not np.array_equal(_values(_at(data, before)), before.last):
            self._ended = True  # it has changed after its pass
            return
        if place is before and place is not None:  # another pass with the same batch
            self._before = before
            return
        where = sample.numel(), sample.stride(0), sample.storage_offset()
        if place is None:
            if len(self._places) < _PLACES and len(np.unique(values)) >= _FEWEST:
                self._places[key] = self._before = _Place(where, data._version, values)  # noqa: SLF001
            return
        if place.sample != where:
            self._ended = True
            return
        if np.array_equal(values, place.last) or data._version == place.version:  # noqa: SLF001
            self._ended = True  # the data stay as they are
            return
        if len(place.changes) < _CHANGES:
            place.changes.append(values - place.last - (values - place.last).mean())
        place.version, place.last, self._before = data._version, values, place  # noqa: SLF001
        if len(place.changes) == _CHANGES:
            self._judge()

    def _judge(self) -> None:
        """Say so if all parts that have changed often enough drift."""
        whole = [one for one in self._places.values() if len(one.changes) == _CHANGES]
        if not all(one.drifts for one in whole):
            self._ended = True
        elif len(whole) >= _DRIFTING:
            growth = np.median([np.sqrt(one.distances[-1]) for one in whole])
            what = f"at each pass they move further away from what they were, by {growth:.2g} after {_CHANGES} passes"
            self._context.log.say("inputs_changed", self._context.step, {"what": what})
            self._ended = True


def _at(data: torch.Tensor, place: _Place) -> torch.Tensor:
    """Return what the sample of a part is now."""
    number, stride, offset = place.sample
    return data.as_strided((number,), (stride,), offset)


def _values(sample: torch.Tensor) -> NDArray[np.float64]:
    values: NDArray[np.float64] = sample.to(torch.float64).numpy().copy()
    return values
