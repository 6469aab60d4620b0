"""Curves of runs in at most 64 bins of steps.

They can be stored as JSON and drawn over each other.

Bin ``k`` of level ``j`` covers the steps ``k * 2**j`` to ``(k + 1) * 2**j``, the end exclusive, in all runs. Merging
bins of a finer level is therefore exact, so that runs of different lengths have common bins.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Bins of a curve at most.
BINS: Final = 64
#: Largest code of a value. Code 0 is a bin without finite values.
_LARGEST: Final = 65535

Codes = NDArray[np.uint16]


class BinnedCurve(NamedTuple):
    """Extremes in each bin, as codes from 1 (``low``) to 65535 (``high``)."""

    level: int
    first: int
    low: float
    high: float
    lo: Codes
    hi: Codes


def bin_curve(steps: NDArray[np.int64], values: NDArray[np.float64]) -> dict[str, Any] | None:
    """Return a curve in bins as JSON values; None if no value is finite.

    >>> bin_curve(np.arange(4), np.array([1.0, 3.0, np.nan, 2.0]))["level"]
    0
    """
    finite = np.isfinite(values)
    if not finite.any():
        return None
    steps, values = np.asarray(steps, np.int64)[finite], values[finite]
    begin, end = int(steps.min()), int(steps.max())
    level = 0
    while (end >> level) - (begin >> level) >= BINS:
        level += 1
    first = begin >> level
    at = (steps >> level) - first
    count = (end >> level) - first + 1
    low, high = float(values.min()), float(values.max())
    # Halved, because the difference of the largest numbers overflows.
    scale = high / 2 - low / 2
    codes = np.ones(len(values)) if scale == 0 else 1 + (values / 2 - low / 2) / scale * (_LARGEST - 1)
    lo, hi = np.full(count, _LARGEST + 1.0), np.zeros(count)
    np.minimum.at(lo, at, codes)
    np.maximum.at(hi, at, codes)
    lo[lo > _LARGEST] = 0
    packed = np.concatenate([lo.round(), hi.round()]).astype("<u2").tobytes()
    return {"level": level, "first": first, "low": low, "high": high, "codes": base64.b64encode(packed).decode("ascii")}


def unpack_curve(stored: Any) -> BinnedCurve | None:
    """Return what :func:`bin_curve` made; None if there is no curve or it is damaged."""
    try:
        codes = np.frombuffer(base64.b64decode(stored["codes"], validate=True), "<u2")
        level, first, low, high = (
            int(stored["level"]),
            int(stored["first"]),
            float(stored["low"]),
            float(stored["high"]),
        )
    except (TypeError, KeyError, ValueError):
        return None
    count = len(codes) // 2
    if (
        len(codes) % 2
        or not 0 < count <= BINS
        or not 0 <= level < 64
        or not (math.isfinite(low) and math.isfinite(high))
    ):
        return None
    return BinnedCurve(level, first, low, high, codes[:count], codes[count:])
