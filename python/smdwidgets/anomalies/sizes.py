"""How far the size of a tensor lies from its usual size.

The usual size is the median of the last 32 sizes before; the distance is in robust standard deviations of the
logarithm. A straight drift stays below 1.4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smdwidgets.anomalies.defaults import SIZE_FIRST, SIZE_SPREAD, SIZE_WINDOW

__all__ = ["LARGEST", "surprise"]

#: Largest surprise; that of a size that falls to 0 is ``-LARGEST``.
LARGEST = 64.0
#: Share of zeros among the earlier sizes above which one more zero is usual.
_ZEROS = 1 / 8
#: Windows that are compared at once, which bounds the memory.
_AT_ONCE = 1 << 15

Floats = NDArray[np.float32]


def surprise(sizes: Floats, first: NDArray[np.int64], index: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the surprise of sizes, and their usual size.

    Args:
        sizes: decimal logarithms of sizes, the series one after the other; -inf is a size of 0, NaN an unknown one.
        first: index of the first size of each size's series.
        index: indices of the sizes to compare.

    Returns:
        surprise, NaN without enough earlier sizes, and the logarithm of the usual size.

    >>> sizes = np.array([0.0, 0.01] * 10 + [1.0, -np.inf], np.float32)
    >>> deviation, _ = surprise(sizes, np.zeros(22, np.int64), np.array([4, 19, 20, 21]))
    >>> deviation.astype(float).round(1).tolist()
    [nan, 0.2, 24.9, -64.0]
    """
    deviation = np.full(len(index), np.nan, np.float32)
    usual = np.full(len(index), np.nan, np.float32)
    for begin in range(0, len(index), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        deviation[part], usual[part] = _compared(sizes, first, index[part])
    return deviation, usual


def _compared(sizes: Floats, first: NDArray[np.int64], index: NDArray[np.int64]) -> tuple[Floats, Floats]:
    earlier = index[:, None] + np.arange(-SIZE_WINDOW, 0)
    windows = np.where(earlier >= first[index, None], sizes[np.maximum(earlier, 0)], np.float32(np.nan))
    zeros = np.isneginf(windows).sum(axis=1)
    windows[~np.isfinite(windows)] = np.nan
    windows.sort(axis=1)  # NaN last
    count = (~np.isnan(windows)).sum(axis=1)
    middle = _medians(windows, count)
    away = np.abs(windows - middle[:, None])
    away.sort(axis=1)
    spread = np.maximum(1.4826 * _medians(away, count), SIZE_SPREAD)
    values = sizes[index]
    with np.errstate(invalid="ignore"):
        deviation = np.clip((values - middle) / spread, -LARGEST, LARGEST)
    deviation[np.isneginf(values) & (zeros > _ZEROS * (zeros + count))] = 0
    deviation[count < SIZE_FIRST] = np.nan
    return deviation, middle


def _medians(rows: Floats, count: NDArray[np.int64]) -> Floats:
    """Return the median of the first values of each sorted row."""
    lower = np.take_along_axis(rows, np.maximum(count - 1, 0)[:, None] // 2, axis=1)[:, 0]
    upper = np.take_along_axis(rows, np.minimum(count // 2, SIZE_WINDOW - 1)[:, None], axis=1)[:, 0]
    medians: Floats = np.float32(0.5) * (lower + upper)
    return medians
