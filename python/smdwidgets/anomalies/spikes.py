"""Values of a growing series that rise far above those before them.

Each value is compared with the 50 finite values before it, so that its result depends on earlier values only and does
not depend on the portions in which they arrive. Most values are passed over by a comparison with the blocks of 25
values before theirs. Rises of half the height of a spike are recorded too: noise with heavy tails has many of them, a
series with spikes has few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from smdwidgets.anomalies.anomaly import Anomaly
from smdwidgets.anomalies.defaults import SPIKE_DEVIATIONS, SPIKE_FIRST, SPIKE_MILD, SPIKE_RISE, SPIKE_WINDOW

__all__ = ["NO_RISES", "Rises", "SpikeScan", "rises"]

Floats = NDArray[np.float64]

BLOCK = SPIKE_WINDOW // 2
#: Ratio of the standard deviation of normal numbers to their median absolute deviation.
_SIGMAS_PER_MAD = 1.4826
#: Windows that are compared at once, which bounds the memory.
_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Rises:
    """Values that rise far above the window before them, one array element per value.

    Attributes:
        index: index of the value in its series.
        value: the value.
        height: value minus the median of the window.
        least: height above which it is a spike.
        level: median of the window.
        spread: robust standard deviation of the window.
        upper: upper decile of the window.
    """

    index: NDArray[np.int64]
    value: Floats
    height: Floats
    least: Floats
    level: Floats
    spread: Floats
    upper: Floats

    def __len__(self) -> int:
        return len(self.index)

    @staticmethod
    def joined(parts: Sequence[Rises]) -> Rises:
        """Return several tables as one."""
        parts = [part for part in parts if len(part)]
        if len(parts) < 2:
            return parts[0] if parts else NO_RISES
        return Rises(
            *(np.concatenate(columns) for columns in zip(*(vars(part).values() for part in parts), strict=True))
        )

    def where(self, kept: NDArray[np.bool_]) -> Rises:
        """Return some of the rows."""
        return self if kept.all() else Rises(*(column[kept] for column in vars(self).values()))

    @property
    def is_spike(self) -> NDArray[np.bool_]:
        """Which of the rises are spikes."""
        return self.height > self.least

    def spikes(self) -> Rises:
        """Return the rises that are spikes."""
        return self.where(self.is_spike)

    def anomalies(self) -> list[Anomaly]:
        """Return the spikes."""
        spikes = self.spikes()
        columns = (spikes.index, spikes.value, spikes.least + spikes.level, spikes.level)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Anomaly("spike", index, value, limit, usual) for index, value, limit, usual in rows]


NO_RISES = Rises(np.empty(0, np.int64), *(np.empty(0) for _ in range(6)))
"""The rises of a series that has none."""


class SpikeScan:
    """Finds the rises of one series as it grows.

    `push` and `extend` give the same answers, whatever the portions.

    Values that are not finite are counted, and are neither judged nor compared with.

    >>> scan = SpikeScan()
    >>> [scan.push(value) for value in [1.0] * 40 + [float("nan")]].count(None)
    41
    >>> scan.push(9.0)
    Anomaly(kind='spike', index=41, value=9.0, limit=1.5, usual=1.0)
    """

    def __init__(self, sensitivity: float = 1.0) -> None:
        #: Number of values so far, finite or not, and of finite ones.
        self.count = self.finite = 0
        self._sensitivity = sensitivity
        #: The last finite values, from the block before the last whole one.
        self._tail = np.empty(3 * BLOCK)
        self._begin = 0
        #: What a value of the current block must exceed to be compared with its window.
        self._limit = np.inf

    def push(self, value: float) -> Anomaly | None:
        """Add a value; return the spike that it is, if it is one."""
        rises = self._push(value)
        found = [] if rises is None else rises.anomalies()
        return found[0] if found else None

    def extend(self, values: Floats) -> Rises:
        """Add values, and return those that are rises."""
        if len(values) == 1:  # the usual update of a live run
            return self._push(float(values[0])) or NO_RISES
        index = self.count + np.flatnonzero(np.isfinite(values))
        self.count += len(values)
        if not len(index):
            return NO_RISES
        before = self.finite - self._begin
        whole = np.concatenate(
            [self._tail[:before], values if len(index) == len(values) else values[np.isfinite(values)]]
        )
        found = self._measured(whole, before, index)
        self.finite = self._begin + len(whole)
        kept = max(0, len(whole) // BLOCK - 2) * BLOCK
        self._begin += kept
        self._tail[: len(whole) - kept] = whole[kept:]
        return found

    def _push(self, value: float) -> Rises | None:
        index = self.count
        self.count += 1
        if not isfinite(value):
            return None
        size = self.finite - self._begin
        if size == len(self._tail):
            self._tail[:-BLOCK] = self._tail[BLOCK:]
            self._begin += BLOCK
            size -= BLOCK
        if self.finite == SPIKE_FIRST or (self.finite > SPIKE_FIRST and self.finite % BLOCK == 0):
            self._limit = float(self._limits(self._tail[:size])[-1])
        found = None
        if value > self._limit:
            window = self._tail[max(0, size - SPIKE_WINDOW) : size]
            found = self._compared(np.array([index]), np.array([value]), window[None])
        self._tail[size] = value
        self.finite += 1
        return found

    def _limits(self, values: Floats) -> Floats:
        """Return what a value of a block must exceed to be compared with its window.

        A limit is less than the least rise above the two blocks before. The values begin at the tail; limits end with
        the block after the last whole one.
        """
        blocks = values[: len(values) // BLOCK * BLOCK].reshape(-1, BLOCK)
        if not self._begin:
            # Before the first two blocks there is only the start.
            start = np.resize(values[:SPIKE_FIRST], BLOCK)
            blocks = np.concatenate([[start, start], blocks])
        middle = np.partition(blocks, BLOCK // 2, axis=1)[:, BLOCK // 2]
        spread = np.partition(np.abs(blocks - middle[:, None]), BLOCK // 2, axis=1)[:, BLOCK // 2]
        # The lower level of the two blocks before, and half of the lesser spread.
        level = np.minimum(middle[:-1], middle[1:])
        spread = 0.5 * _SIGMAS_PER_MAD * np.minimum(spread[:-1], spread[1:])
        least = np.maximum(0.9 * SPIKE_RISE * np.abs(level), SPIKE_DEVIATIONS * spread) / self._sensitivity
        limits: Floats = level + SPIKE_MILD * least
        return limits

    def _measured(self, values: Floats, before: int, index: NDArray[np.int64]) -> Rises:
        """Return the rises among the values after the first ones, which begin at the tail."""
        first = max(before, SPIKE_FIRST - self._begin)
        if first >= len(values):
            return NO_RISES
        limits = self._limits(values)
        self._limit = float(limits[-1])
        block_of = np.arange(first, len(values)) // BLOCK - (len(values) // BLOCK + 1 - len(limits))
        candidates = first + np.flatnonzero(values[first:] > limits[block_of])
        full = candidates[candidates >= SPIKE_WINDOW]
        parts = [
            self._compared(index[at - before : at - before + 1], values[at : at + 1], values[None, :at])
            for at in candidates[: len(candidates) - len(full)].tolist()
        ]
        if len(full):
            windows = sliding_window_view(values, SPIKE_WINDOW)
            for begin in range(0, len(full), _AT_ONCE):
                part = full[begin : begin + _AT_ONCE]
                parts.append(self._compared(index[part - before], values[part], windows[part - SPIKE_WINDOW]))
        return Rises.joined(parts)

    def _compared(self, index: NDArray[np.int64], values: Floats, windows: Floats) -> Rises:
        windows = np.sort(windows, axis=1)
        count = windows.shape[1]
        level = windows[:, count // 2]
        away = np.sort(np.abs(windows - level[:, None]), axis=1)
        spread = np.maximum(_SIGMAS_PER_MAD * away[:, count // 2], away[:, round(0.95 * (count - 1))] / 1.96)
        spread = np.maximum(spread, 1e-3 * np.abs(level))
        height = values - level
        least = np.maximum(SPIKE_DEVIATIONS * spread, SPIKE_RISE * np.abs(level)) / self._sensitivity
        found = Rises(index, values, height, least, level, spread, windows[:, round(0.9 * (count - 1))])
        return found.where((height > SPIKE_MILD * least) & (height > 0))


def rises(values: Floats, sensitivity: float = 1.0) -> Rises:
    """Return the rises of a whole series."""
    return SpikeScan(sensitivity).extend(values)
