"""Surprise: how far the size of a tensor lies from its usual size.

The usual size is the median of the last 32 saved values before, of the same mode; the distance is in robust standard
deviations of the logarithm. A straight drift stays below 1.4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Earlier values that are compared, and the least number of them.
WINDOW, FEWEST = 32, 8
#: Least standard deviation, in decades.
FLOOR = 0.04
#: Largest surprise; that of a size that falls to 0 is ``-LARGEST``.
LARGEST = 64.0
#: Surprise that is a finding: noise of 10 million records stays below it.
SURPRISING = 12.0
#: Share of zeros among the earlier values above which one more zero is usual.
ZEROS = 1 / 8
#: Windows that are compared at once, which bounds the memory.
_AT_ONCE = 1 << 15

Floats = NDArray[np.float32]


def surprise(sizes: Floats, first: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Return the surprise of values, and their usual size.

    Args:
        sizes: decimal logarithms of sizes, the series one after the other; -inf is a size of 0, NaN an unknown one.
        first: index of the first value of each value's series.
        at: indices of the values to compare.

    Returns:
        surprise, NaN without enough earlier values, and the logarithm of the usual size.

    >>> sizes = np.array([0.0, 0.01] * 10 + [1.0, -np.inf], np.float32)
    >>> found, _ = surprise(sizes, np.zeros(22, np.int64), np.array([4, 19, 20, 21]))
    >>> found.astype(float).round(1).tolist()
    [nan, 0.2, 24.9, -64.0]
    """
    found = np.full(len(at), np.nan, np.float32)
    usual = np.full(len(at), np.nan, np.float32)
    for begin in range(0, len(at), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        found[part], usual[part] = _compared(sizes, first, at[part])
    return found, usual


def _compared(sizes: Floats, first: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[Floats, Floats]:
    places = at[:, None] + np.arange(-WINDOW, 0)
    windows = np.where(places >= first[at, None], sizes[np.maximum(places, 0)], np.float32(np.nan))
    zeros = np.isneginf(windows).sum(axis=1)
    windows[~np.isfinite(windows)] = np.nan
    windows.sort(axis=1)  # NaN last
    count = (~np.isnan(windows)).sum(axis=1)
    middle = _medians(windows, count)
    away = np.abs(windows - middle[:, None])
    away.sort(axis=1)
    spread = np.maximum(1.4826 * _medians(away, count), FLOOR)
    values = sizes[at]
    with np.errstate(invalid="ignore"):
        found = np.clip((values - middle) / spread, -LARGEST, LARGEST)
    found[np.isneginf(values) & (zeros > ZEROS * (zeros + count))] = 0
    found[count < FEWEST] = np.nan
    return found, middle


def _medians(rows: Floats, count: NDArray[np.int64]) -> Floats:
    """Return the median of the first values of each sorted row."""
    lower = np.take_along_axis(rows, np.maximum(count - 1, 0)[:, None] // 2, axis=1)[:, 0]
    upper = np.take_along_axis(rows, np.minimum(count // 2, WINDOW - 1)[:, None], axis=1)[:, 0]
    medians: Floats = np.float32(0.5) * (lower + upper)
    return medians
