"""Trends of block medians against their own noise, for many series at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.blocks import MOST, medians

#: Scale that makes a median of absolute deviations estimate the standard deviation of a normal distribution.
_MAD = 1.4826


class Trend(NamedTuple):
    """Trend of one series, oriented so that lower is better.

    Attributes:
        blocks: block medians; negated for a series that should rise.
        length: number of points per block.
        start: median of the first tenth of the blocks.
        end: median of the last fifth of the blocks.
        best: minimum of the running median of three blocks.
        best_at: index of the block at which ``best`` is reached.
        median: median of all blocks.
        noise: robust standard deviation of a block about its neighbours.
        wide_noise: the same, where noise has heavy tails or comes in bursts.
        z: Mann-Kendall statistic, corrected for autocorrelation. Below -3 the series falls, above 3 it rises.
    """

    blocks: Floats
    length: int
    start: float
    end: float
    best: float
    best_at: int
    median: float
    noise: float
    wide_noise: float
    z: float


def trends(series: Sequence[tuple[int, Floats]]) -> list[Trend]:
    """Return the trends of series, given as (block length, oriented block medians).

    Series of equally many blocks are computed together.

    >>> [trend] = trends([(1, np.linspace(2.0, 1.0, 20))])
    >>> round(trend.start, 2), round(trend.end, 2), trend.z < -3
    (1.97, 1.08, True)
    """
    found: dict[int, Trend] = {}
    order = sorted(range(len(series)), key=lambda at: len(series[at][1]))
    for _, group in groupby(order, key=lambda at: len(series[at][1])):
        members = list(group)
        table = np.stack([series[at][1] for at in members])
        for at, row in zip(members, _rows(table), strict=True):
            found[at] = Trend(series[at][1], series[at][0], *row)
    return [found[at] for at in range(len(series))]


def _rows(table: Floats) -> list[tuple[float, float, float, int, float, float, float, float]]:
    count = table.shape[1]
    start = medians(table[:, : max(1, count // 10)])
    end = medians(table[:, -max(2, count // 5) :])
    median = medians(table)
    smooth = _running_median(table, 3)
    best_at = smooth.argmin(axis=1)
    best = smooth.min(axis=1)
    noise = _noise(table)
    floor = 1e-9 * np.maximum(np.abs(start), np.abs(median))
    wide = np.maximum(noise, floor)
    if count >= 5:
        away = np.abs(table - _running_median(table, 5))
        ninth = round(0.9 * (count - 1))
        wide = np.maximum(wide, np.partition(away, ninth, axis=1)[:, ninth] / 1.645)
    if count >= 3:
        best_at = best_at + (count - smooth.shape[1]) // 2
    z = mann_kendall(table)
    columns = (start, end, best, best_at, median, noise, wide, z)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def local_noise(values: Floats) -> float:
    """Return the robust standard deviation of values about their neighbours.

    Jumps and trends hardly change it, because it comes from the median difference of neighbours.

    >>> round(local_noise(np.array([1.0, 1.2, 1.0, 1.2, 9.0, 9.2, 9.0])), 2)
    0.21
    """
    if len(values) < 2:
        return 0.0
    return float(_MAD * np.median(np.abs(np.diff(values))) / np.sqrt(2))


def _running_median(table: Floats, width: int) -> Floats:
    """Return medians of 3 or 5 neighbouring blocks.

    Those of 5 are as many as the blocks: near the ends they are those of the first and last full window.
    """
    if table.shape[1] < width:
        return table
    if width == 3:
        return _median_of_three(table[:, :-2], table[:, 1:-1], table[:, 2:])
    a, b, c, d, e = (table[:, at : table.shape[1] - 4 + at] for at in range(5))
    # The median of five is that of one and of the inner two of the other four, up to their order.
    lower = np.maximum(np.minimum(a, b), np.minimum(c, d))
    upper = np.minimum(np.maximum(a, b), np.maximum(c, d))
    inner = _median_of_three(e, lower, upper)
    return np.concatenate([inner[:, :1], inner[:, :1], inner, inner[:, -1:], inner[:, -1:]], axis=1)


def _median_of_three(a: Floats, b: Floats, c: Floats) -> Floats:
    middle: Floats = np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))
    return middle


def _noise(table: Floats) -> Floats:
    if table.shape[1] < 3:
        return np.zeros(len(table))
    bend = np.abs(table[:, 1:-1] - 0.5 * (table[:, :-2] + table[:, 2:]))
    deviation: Floats = _MAD * medians(bend) / np.sqrt(1.5)
    return deviation


@lru_cache(maxsize=MOST + 2)
def _order(count: int) -> NDArray[np.float32]:
    """Return 1 for each pair of a block and a later one, -1 for an earlier one."""
    later = np.triu(np.ones((count, count), dtype=np.float32), 1)
    return (later - later.T).ravel()


def mann_kendall(table: Floats) -> Floats:
    """Return the Mann-Kendall statistic of each row.

    The variance is corrected for the lag-1 autocorrelation of the residuals about a Theil-Sen line, within 0 to 0.9.
    The slope is the median over pairs half a row apart, which is enough to remove the trend.

    >>> mann_kendall(np.arange(10.0)[None]).round(1).tolist()
    [3.9]
    """
    rows, count = table.shape
    if count < 4:
        return np.zeros(rows)
    half = count // 2
    larger = (table[:, None, :] > table[:, :, None]).reshape(rows, -1)
    # A pair counts +1 if the larger block is the later one, else -1. Sums of so few ones are exact.
    score = larger.astype(np.float32) @ _order(count)
    slope = medians(table[:, half:] - table[:, : count - half]) / half
    rest = table - slope[:, None] * np.arange(count)
    rest -= rest.mean(axis=1, keepdims=True)
    largest = np.abs(rest).max(axis=1, keepdims=True)
    rest /= np.where(largest > 0, largest, 1.0)  # the squares of extreme values would overflow
    power = (rest * rest).sum(axis=1)
    repeats = (rest[:, 1:] * rest[:, :-1]).sum(axis=1) / np.maximum(power, 1.0)
    repeats = np.clip(repeats, 0.0, 0.9)
    variance = count * (count - 1) * (2 * count + 5) / 18 * (1 + repeats) / (1 - repeats)
    statistic: Floats = np.sign(score) * np.maximum(np.abs(score) - 1, 0) / np.sqrt(variance)
    return statistic
