"""Steps that have a few numbers only, such as the loss and the learning rate.

Most steps of a capture plan are of this kind, and have numbers of the same names. The training's thread keeps the
numbers alone; the writer's thread makes of them what other steps are queued as.

>>> from smdwidgets.modes import ModeKeys
>>> spec = SaveSpec()
>>> layout = NumberLayout([Column("loss", "float32", ())], [spec])
>>> step = NumberStep((1, ModeKeys.TRAIN, 1), 2.0, [0.25])
>>> [(one.name, one.copy.array, one.time) for one in layout.captured(step)]
[('loss', array(0.25, dtype=float32), 2.0)]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.captured import Captured, StepKey
from smdwidgets.hooks.capture.save_spec import SaveSpec

__all__ = ["Column", "Number", "NumberLayout", "NumberStep"]

#: Numbers up to this one are finite in all types.
_LARGE = 1e4
Number = float | TensorCopy
"""A number of a step, or a copy of it that may still be made."""


class Column(NamedTuple):
    """A number that each step has: its name, type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def copy(self, number: float) -> TensorCopy:
        """Return a number as a tensor."""
        if abs(number) > _LARGE:  # which may be infinite in the type
            with np.errstate(over="ignore"):
                array = np.array(number, self.dtype)
        else:
            array = np.array(number, self.dtype)
        return TensorCopy(array.reshape(self.shape), self.dtype, self.shape)


@dataclass(slots=True)
class NumberStep:
    """The numbers of a step, in the order of a :class:`NumberLayout`.

    The last ones may still be to come.
    """

    key: StepKey
    time: float
    numbers: list[Number]

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(8 if isinstance(one, float) else int(one.nbytes) for one in self.numbers)


class NumberLayout:
    """Names of the numbers, and what is saved of each.

    Args:
        columns: the numbers.
        specs: what is saved of each.
    """

    def __init__(self, columns: Sequence[Column], specs: Sequence[SaveSpec]) -> None:
        self._columns = list(zip(columns, specs, strict=True))

    def captured(self, step: NumberStep) -> list[Captured]:
        """Return the numbers of a step as captured tensors."""
        captured: list[Captured] = []
        for (column, spec), number in zip(self._columns, step.numbers, strict=False):
            copy = number if isinstance(number, TensorCopy) else column.copy(number)
            captured.append(Captured(column.name, copy, copy.shape, spec, step.time))
        return captured
