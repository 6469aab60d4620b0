"""Values of types that NumPy lacks, for code that computes with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_extended", "widened"]

#: What NumPy says of a type that another package has added.
_ADDED = 2


def is_extended(dtype: np.dtype[Any]) -> bool:
    """Whether a package has added the type to NumPy.

    ``ml_dtypes`` adds bfloat16, float8 and float4.

    >>> is_extended(np.dtype("float16"))
    False
    """
    return dtype.isbuiltin == _ADDED


def widened(value: NDArray[Any]) -> NDArray[Any]:
    """Return a value with a type of NumPy, for computing.

    bfloat16, float8 and float4 become float32, which has all of their values.

    >>> widened(np.ones(2, np.float16)).dtype
    dtype('float16')
    """
    return value.astype(np.float32) if is_extended(value.dtype) else value
