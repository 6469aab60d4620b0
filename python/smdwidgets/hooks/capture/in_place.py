"""Describe a large tensor where it lies, in place of copying it.

Its statistics take as long as a copy would, and only some of its elements stay in memory.

>>> ones = np.ones((512, 1024), np.float32)
>>> copy = described(ones, "float32", is_parameter=False)
>>> copy.is_whole, copy.shape, copy.statistics()["l1"], copy.nbytes
(False, (512, 1024), 524288.0, 16260)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import TensorCopy
from smdwidgets.hooks.capture.elements import elements_of, sample_of

__all__ = ["LARGE", "PART", "described", "part_of"]

#: Tensors of so many bytes are not copied for their statistics alone.
LARGE: Final = 1 << 20
#: Most elements of a parameter whose change is measured, if not all are.
PART: Final = 1 << 16


def part_of(array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a copy of the elements of a large parameter whose change is measured."""
    elements = elements_of(array, shape[-1] if shape else 1, PART)
    return elements.copy() if elements.base is not None else elements


def described(array: NDArray[Any], dtype: str, is_parameter: bool) -> TensorCopy:
    """Return the statistics of an array, which may change afterwards.

    Args:
        array: the array, as the core reads it.
        dtype: name of its element type in the format.
        is_parameter: whether its change is measured.
    """
    columns = _core.statistics_of([array], [None], [dtype])
    numbers = {name: column[0].item() for name, column in columns.items()}
    sample = np.array(sample_of(array, array.shape[-1] if array.shape else 1))
    part = part_of(array, array.shape) if is_parameter else None
    return TensorCopy(sample, dtype, array.shape, is_whole=False, statistics=lambda: numbers, sample=sample, part=part)
