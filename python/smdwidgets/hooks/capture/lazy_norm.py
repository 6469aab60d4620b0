"""The l2 norm of several tensors, computed on the writer's thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import EXTENDED, Staging, TensorCopy

__all__ = ["norm_of", "norm_of_array"]

_FLOATS = frozenset(["float16", "float32", "float64", *EXTENDED])


def norm_of(copies: Sequence[TensorCopy | None], staging: Staging) -> TensorCopy | None:
    """Return the l2 norm over all elements of some copies, summed in double precision.

    The result is computed when it is completed, and the slabs of the copies are released then. None if a copy is
    missing, or one worker's shard, or not of floats.
    """
    found = [copy for copy in copies if copy is not None]
    if not found or len(found) < len(copies) or any(map(_is_partial, found)):
        _release(found, staging)
        return None
    array = np.zeros((), np.float64 if any(copy.dtype == "float64" for copy in found) else np.float32)

    def compute() -> None:
        try:
            norms = []
            for copy in found:
                copy.complete()
                norms.append(_core.norm(copy.array.reshape(-1), copy.dtype))
            with np.errstate(over="ignore"):
                array[...] = math.sqrt(sum(norm * norm for norm in norms))
        finally:
            _release(found, staging)

    return TensorCopy(array, array.dtype.name, (), pending=compute)


def norm_of_array(array: NDArray[np.float32]) -> TensorCopy:
    """Return the l2 norm of an array that nobody changes, computed when completed."""
    norm = np.zeros((), np.float32)

    def compute() -> None:
        with np.errstate(over="ignore"):
            norm[...] = _core.norm(array, "float32")

    return TensorCopy(norm, "float32", (), pending=compute)


def _is_partial(copy: TensorCopy) -> bool:
    return bool(copy.shard or copy.reductions or not copy.is_whole or copy.dtype not in _FLOATS)


def _release(copies: Sequence[TensorCopy], staging: Staging) -> None:
    for copy in copies:
        if copy.slab is not None:
            staging.release(copy.slab)
