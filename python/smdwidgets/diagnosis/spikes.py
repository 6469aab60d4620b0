"""Points of a growing series that rise above those before them.

Each point is compared with the 50 points before it, so a verdict depends on the points only and each point is tested once.
Most points are passed over by a comparison with the blocks of 25 points before theirs. Rises of half the height of a spike
are recorded too: noise with heavy tails has many of them, a series with spikes has few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from smdwidgets.diagnosis.arrays import Floats, Steps

WINDOW = 50
#: Points before the first that is tested.
FIRST = 15
BLOCK = 25
#: Least height of a spike above the median of the window, as a share of it.
LEAST_RISE = 0.5
#: Least height of a spike in robust standard deviations.
LEAST_DEVIATIONS = 8.0
#: Share of these that is recorded.
MILD = 0.5


@dataclass(frozen=True, eq=False)
class Rises:
    """Points that rise far above the window before them, one array element per point.

    Attributes:
        at: index of the point.
        height: value minus the median of the window.
        level: median of the window.
        spread: robust standard deviation of the window.
        upper: upper decile of the window.
    """

    at: Steps
    height: Floats
    level: Floats
    spread: Floats
    upper: Floats


class SpikeScan:
    """Rises of one series, found as it grows."""

    def __init__(self) -> None:
        self._tested = 0
        self._found: list[tuple[int, float, float, float, float]] = []

    def update(self, values: Floats) -> Rises:
        """Test the points that were appended, and return all rises."""
        begin = max(self._tested, FIRST)
        if begin < len(values):
            candidates = begin + np.flatnonzero(values[begin:] > self._thresholds(values, begin))
            self._found += _tested(values, candidates)
        self._tested = len(values)
        columns = np.array(self._found, dtype=np.float64).reshape(-1, 5).T
        return Rises(columns[0].astype(np.int64), *columns[1:])

    def _thresholds(self, values: Floats, begin: int) -> Floats:
        """Return what the points must exceed to be tested: less than the least rise above the blocks before them."""
        first = max(0, begin // BLOCK - 2)
        last = max(first, (len(values) - 1) // BLOCK)
        whole = values[first * BLOCK : last * BLOCK].reshape(-1, BLOCK)
        if first == 0:
            # Before block 0 and block 1 there is only the start.
            start = np.resize(values[:FIRST], BLOCK)
            whole = np.concatenate([[start, start], whole])
        middle = np.partition(whole, BLOCK // 2, axis=1)[:, BLOCK // 2]
        spread = np.partition(np.abs(whole - middle[:, None]), BLOCK // 2, axis=1)[:, BLOCK // 2]
        # Of the two blocks before: the lower level, half of the lesser spread.
        level = np.minimum(middle[:-1], middle[1:])
        spread = 0.5 * 1.4826 * np.minimum(spread[:-1], spread[1:])
        rise = MILD * np.maximum(0.9 * LEAST_RISE * np.abs(level), LEAST_DEVIATIONS * spread)
        of_point = np.arange(begin, len(values)) // BLOCK - (0 if first == 0 else first + 2)
        thresholds: Floats = (level + rise)[of_point]
        return thresholds


def _tested(values: Floats, candidates: Steps) -> list[tuple[int, float, float, float, float]]:
    rows: list[tuple[int, float, float, float, float]] = []
    early, full = candidates[candidates < WINDOW], candidates[candidates >= WINDOW]
    for at in early.tolist():
        rows += _measured(values, np.array([at]), values[None, :at])
    if len(full):
        windows = sliding_window_view(values, WINDOW)
        for begin in range(0, len(full), 4096):  # bounds the memory
            part = full[begin : begin + 4096]
            rows += _measured(values, part, windows[part - WINDOW])
    return rows


def _measured(values: Floats, at: Steps, windows: Floats) -> list[tuple[int, float, float, float, float]]:
    windows = np.sort(windows, axis=1)
    count = windows.shape[1]
    level = windows[:, count // 2]
    away = np.sort(np.abs(windows - level[:, None]), axis=1)
    spread = np.maximum(1.4826 * away[:, count // 2], away[:, round(0.95 * (count - 1))] / 1.96)
    spread = np.maximum(spread, 1e-3 * np.abs(level))
    height = values[at] - level
    upper = windows[:, round(0.9 * (count - 1))]
    kept = (height > MILD * LEAST_DEVIATIONS * spread) & (height > MILD * LEAST_RISE * np.abs(level)) & (height > 0)
    columns = (at, height, level, spread, upper)
    return list(zip(*(column[kept].tolist() for column in columns), strict=True))
