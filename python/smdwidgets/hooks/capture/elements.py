"""Some elements of an array, at equal distances."""

from __future__ import annotations

from math import gcd
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LARGEST_SAMPLE", "elements_of", "sample_of"]

#: Elements of a sample, at most.
LARGEST_SAMPLE: Final = 4096


def elements_of(array: NDArray[Any], last: int, most: int) -> NDArray[Any]:
    """Return at most so many elements of an array, in a copy unless these are all.

    The distance is odd and has no divisor in common with the last dimension, so that all columns are met.

    >>> elements_of(np.arange(12), 3, most=4)
    array([ 0,  5, 10])
    """
    flat = array.reshape(-1)
    if flat.size <= most:
        return flat
    stride = -(-flat.size // most) | 1
    while gcd(stride, last) > 1:
        stride += 2
    return np.ascontiguousarray(flat[::stride])


def sample_of(array: NDArray[Any], last: int) -> NDArray[Any]:
    """Return at most 4,096 elements of an array at equal distances.

    All are returned if there are no more.

    >>> sample_of(np.arange(10), 10)
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    >>> sample_of(np.arange(3 * 4096), 3)[:4]
    array([ 0,  5, 10, 15])
    """
    return elements_of(array, last, LARGEST_SAMPLE)
