"""Block medians of a growing series, each computed once.

A block has a fixed number of points: 1, 2, 3, 4, 6, 8, 12, … such that a series has at most 48 blocks. When a series
outgrows them, blocks become longer and are computed again, so the cost per point is constant in the long run. The
blocks depend on the points only, not on the portions in which they arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.arrays import Floats

#: Maximum number of blocks. Trends compare all pairs of blocks.
MOST = 48


def block_length(points: int) -> int:
    """Return the number of points per block.

    >>> [block_length(points) for points in (10, 48, 49, 100, 1000)]
    [1, 1, 2, 3, 24]
    """
    power = 1
    while -(-points // power) > MOST:
        power *= 2
    shorter = power * 3 // 4
    return shorter if power > 2 and -(-points // shorter) <= MOST else power


class Parts(NamedTuple):
    """Blocks of one series: length, medians, and points of a last block without one."""

    length: int
    full: Floats
    rest: Floats | None


class Blocks:
    """Medians of the complete blocks of one series."""

    def __init__(self) -> None:
        self._length = 1
        self._full = np.empty(0)

    def update(self, values: Floats) -> Parts:
        """Return the blocks, after values were appended.

        A rest of less than half a block is part of the last block.
        """
        length = self._length if len(values) <= MOST * self._length else block_length(len(values))
        known = len(self._full) if length == self._length else 0
        count = len(values) // length
        if length != self._length or count != known:
            new = values[known * length : count * length].reshape(-1, length)
            fresh = new[:, 0].copy() if length == 1 else medians(new)
            self._full = fresh if not known else np.concatenate([self._full, fresh])
            self._length = length
        rest = len(values) - count * length
        if not rest:
            return Parts(length, self._full, None)
        if 2 * rest >= length or not count:
            return Parts(length, self._full, values[count * length :])
        return Parts(length, self._full[:-1], values[(count - 1) * length :])


def completed(series: Sequence[Parts]) -> list[Floats]:
    """Return the medians of all blocks of each series.

    Most series of a run grow together, so the last blocks of equal length are computed together.

    >>> completed([Parts(2, np.array([1.0]), np.array([3.0])), Parts(2, np.array([2.0]), None)])
    [array([1., 3.]), array([2.])]
    """
    found = [one.full for one in series]
    by_length: dict[int, list[int]] = {}
    for at, one in enumerate(series):
        if one.rest is not None:
            by_length.setdefault(len(one.rest), []).append(at)
    for members in by_length.values():
        last = medians(np.array([series[at].rest for at in members]))
        for median, at in zip(last.tolist(), members, strict=True):
            medians_of = np.empty(len(found[at]) + 1)
            medians_of[:-1] = found[at]
            medians_of[-1] = median
            found[at] = medians_of
    return found


def medians(rows: Floats) -> Floats:
    """Return the median of each row.

    For few values this is several times faster than np.median.

    >>> medians(np.array([[3.0, 1.0, 2.0], [5.0, 6.0, 4.0]])).tolist()
    [2.0, 5.0]
    """
    middle = rows.shape[1] // 2
    if rows.shape[1] % 2:
        odd: Floats = np.partition(rows, middle, axis=1)[:, middle]
        return odd
    parted = np.partition(rows, (middle - 1, middle), axis=1)
    even: Floats = 0.5 * parted[:, middle - 1] + 0.5 * parted[:, middle]
    return even
