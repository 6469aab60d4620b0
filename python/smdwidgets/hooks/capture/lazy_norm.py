"""The l2 norm of several tensors, computed on the writer's thread.

The writer measures each of them when it arrives, so that no copy must wait for the last one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import EXTENDED, TensorCopy

__all__ = ["measure", "norm_of", "norm_of_array"]

_FLOATS = frozenset(["float16", "float32", "float64", *EXTENDED])


def measure(copy: TensorCopy) -> None:
    """Measure the norm of a copy before its memory is used again."""
    if not _is_partial(copy):
        _measured(copy)


def _measured(copy: TensorCopy) -> float:
    if copy.norm is None:
        numbers = None if copy.is_whole or copy.statistics is None else copy.statistics()
        if numbers is None:
            copy.norm = _core.norm(copy.array.reshape(-1), copy.dtype)
        elif numbers["nan"]:
            copy.norm = math.nan
        else:
            copy.norm = math.inf if numbers["neg_inf"] or numbers["pos_inf"] else numbers["l2"]
    return copy.norm


def norm_of(copies: Sequence[TensorCopy | None]) -> TensorCopy | None:
    """Return the l2 norm over all elements of some copies, summed in double precision.

    The copies go to the writer before it, and want their norm. None if a copy is missing, or one worker's shard, or not
    of floats.
    """
    found = [copy for copy in copies if copy is not None]
    if not found or len(found) < len(copies) or any(map(_is_partial, found)):
        return None
    array = np.zeros((), np.float64 if any(copy.dtype == "float64" for copy in found) else np.float32)

    def compute() -> None:
        norms = []
        for copy in found:
            copy.complete()
            norms.append(_measured(copy))
        with np.errstate(over="ignore"):
            array[...] = math.sqrt(sum(norm * norm for norm in norms))

    return TensorCopy(array, array.dtype.name, (), pending=compute)


def norm_of_array(array: NDArray[np.float32]) -> TensorCopy:
    """Return the l2 norm of an array that nobody changes, computed when completed."""
    norm = np.zeros((), np.float32)

    def compute() -> None:
        with np.errstate(over="ignore"):
            norm[...] = _core.norm(array, "float32")

    return TensorCopy(norm, "float32", (), pending=compute)


def _is_partial(copy: TensorCopy) -> bool:
    is_known = copy.is_whole or copy.statistics is not None
    return bool(copy.shard or copy.reductions or not is_known or copy.dtype not in _FLOATS)
