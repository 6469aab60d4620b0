"""Points of a growing series that rise above those before them.

Each point is compared with the 50 points before it, so a verdict depends on the points only and each point is tested once.
Most points are passed over by a comparison with the blocks of 25 points before theirs. Rises of half the height of a spike
are recorded too: noise with heavy tails has many of them, a series with spikes has few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from smdwidgets.diagnosis.arrays import Floats, Growing, Steps

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
        least: least height of a spike there.
        level: median of the window.
        spread: robust standard deviation of the window.
        upper: upper decile of the window.
    """

    at: Steps
    height: Floats
    least: Floats
    level: Floats
    spread: Floats
    upper: Floats


class SpikeScan:
    """Rises of one series, found as it grows."""

    def __init__(self) -> None:
        self._tested = 0
        #: What a point of a block must exceed to be tested, by block.
        self._limits = Growing(np.empty(0))
        self._rises = Rises(np.empty(0, np.int64), *(np.empty(0) for _ in range(5)))

    def update(self, values: Floats) -> Rises:
        """Test the points that were appended, and return all rises."""
        begin, self._tested = max(self._tested, FIRST), len(values)
        if begin >= len(values):
            return self._rises
        if (len(values) - 1) // BLOCK >= len(self._limits.view):
            self._extend_limits(values)
        limits = self._limits.view
        if len(values) - begin == 1:  # the usual update of a live run
            if not values[begin] > limits[begin // BLOCK]:
                return self._rises
            candidates = np.array([begin])
        else:
            candidates = begin + np.flatnonzero(values[begin:] > limits[np.arange(begin, len(values)) // BLOCK])
        found = _tested(values, candidates) if len(candidates) else []
        if found:
            columns = np.array(found, dtype=np.float64).T
            known = vars(self._rises).values()
            at, *others = (np.concatenate([old, new]) for old, new in zip(known, columns, strict=True))
            self._rises = Rises(at.astype(np.int64), *others)
        return self._rises

    def _extend_limits(self, values: Floats) -> None:
        """Compute the limits of the blocks that have begun.

        A limit is less than the least rise above the two blocks before.
        """
        known, count = len(self._limits.view), (len(values) - 1) // BLOCK + 1
        first = max(0, known - 2)
        whole = values[first * BLOCK : (count - 1) * BLOCK].reshape(-1, BLOCK)
        if known < 2:
            # Before the first two blocks there is only the start.
            start = np.resize(values[:FIRST], BLOCK)
            whole = np.concatenate([[start] * (2 - known), whole])
        middle = np.partition(whole, BLOCK // 2, axis=1)[:, BLOCK // 2]
        spread = np.partition(np.abs(whole - middle[:, None]), BLOCK // 2, axis=1)[:, BLOCK // 2]
        # Of the two blocks before: the lower level, half of the lesser spread.
        level = np.minimum(middle[:-1], middle[1:])
        spread = 0.5 * 1.4826 * np.minimum(spread[:-1], spread[1:])
        self._limits.extend(level + MILD * np.maximum(0.9 * LEAST_RISE * np.abs(level), LEAST_DEVIATIONS * spread))


def _tested(values: Floats, candidates: Steps) -> list[tuple[float, ...]]:
    rows: list[tuple[float, ...]] = []
    early, full = candidates[candidates < WINDOW], candidates[candidates >= WINDOW]
    for at in early.tolist():
        rows += _measured(values, np.array([at]), values[None, :at])
    if len(full):
        windows = sliding_window_view(values, WINDOW)
        for begin in range(0, len(full), 4096):  # bounds the memory
            part = full[begin : begin + 4096]
            rows += _measured(values, part, windows[part - WINDOW])
    return rows


def _measured(values: Floats, at: Steps, windows: Floats) -> list[tuple[float, ...]]:
    windows = np.sort(windows, axis=1)
    count = windows.shape[1]
    level = windows[:, count // 2]
    away = np.sort(np.abs(windows - level[:, None]), axis=1)
    spread = np.maximum(1.4826 * away[:, count // 2], away[:, round(0.95 * (count - 1))] / 1.96)
    spread = np.maximum(spread, 1e-3 * np.abs(level))
    height = values[at] - level
    upper = windows[:, round(0.9 * (count - 1))]
    least = np.maximum(LEAST_DEVIATIONS * spread, LEAST_RISE * np.abs(level))
    kept = (height > MILD * least) & (height > 0)
    columns = (at, height, least, level, spread, upper)
    return list(zip(*(column[kept].tolist() for column in columns), strict=True))
