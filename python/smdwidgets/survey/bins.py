"""Bins of steps: what a survey shows where there are more steps than pixels.

Bin ``k`` of level ``j`` covers the steps ``k * 2**j`` to ``(k + 1) * 2**j``, the end exclusive. Bins of a finer level
therefore split those of a coarser one, and merging them is exact: extremes, weighted means, and flags.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

#: Flags of a bin, as in SURVEY_FLAGS of the widget protocol.
NAN, INFINITE, FIRED, ERROR, SAMPLED, UNREAD, REDUCTIONS, SUDDEN = (1 << bit for bit in range(8))

#: Statistics, and the range of their values that codes represent. Sizes are decimal logarithms, and so is growth, which
#: is the size divided by the first one of the same tensor.
DOMAINS: Final = {
    "growth": (-6.4, 6.4),
    "surprise": (-64.0, 64.0),
    "size": (-30.0, 20.0),
    "l2": (-30.0, 20.0),
    "update": (-30.0, 20.0),
    "zeros": (0.0, 1.0),
    "not_finite": (0.0, 1.0),
}
#: Statistics whose usual value is 0, in the middle of their codes.
CENTRED: Final = frozenset({"growth", "surprise"})
#: The largest code. Code 0 is no value.
LARGEST_CODE = 65535

Floats = NDArray[np.float32]


@dataclass
class Bins:
    """Bins of many rows: arrays of shape (rows, bins). NaN is no value.

    Attributes:
        lo, mid, hi: minimum, mean and maximum of the values.
        known: number of values.
        n: number of records, including those without a value.
        flag: union of their flags.
    """

    lo: Floats
    mid: Floats
    hi: Floats
    known: NDArray[np.int64]
    n: NDArray[np.int64]
    flag: NDArray[np.uint8]

    @classmethod
    def empty(cls, rows: int, bins: int) -> Bins:
        """Return bins without values."""
        lo, mid, hi = (np.full((rows, bins), np.nan, np.float32) for _ in range(3))
        known, n = (np.zeros((rows, bins), np.int64) for _ in range(2))
        return cls(lo, mid, hi, known, n, np.zeros((rows, bins), np.uint8))

    def merge(self, other: Bins) -> None:
        """Merge bins of the same rows, such as those of another worker."""
        total = np.nan_to_num(self.mid) * self.known + np.nan_to_num(other.mid) * other.known
        self.known += other.known
        self.mid = np.where(self.known > 0, total / np.maximum(self.known, 1), np.nan).astype(np.float32)
        self.lo, self.hi = np.fmin(self.lo, other.lo), np.fmax(self.hi, other.hi)
        self.n += other.n
        self.flag |= other.flag

    def merge_at(self, rows: NDArray[Any], other: Bins) -> None:
        """Merge the bins of some rows, all different."""
        names = [each.name for each in fields(self)]
        part = Bins(*(getattr(self, name)[rows] for name in names))
        part.merge(other)
        for name in names:
            getattr(self, name)[rows] = getattr(part, name)

    def columns(self, places: NDArray[Any]) -> Bins:
        """Return the bins at some places, which can occur several times."""
        return Bins(*(getattr(self, each.name)[:, places] for each in fields(self)))

    def farthest(self, stat: str) -> Floats:
        """Return the value of each bin that is farthest from the usual value of its row."""
        with np.errstate(invalid="ignore"):
            middle = np.float32(0) if stat in CENTRED else _row_medians(self.mid)[:, None]
            return np.where(self.hi - middle >= middle - self.lo, self.hi, self.lo)


def _row_medians(values: Floats) -> Floats:
    ordered = np.sort(values, axis=1)
    count = (~np.isnan(values)).sum(axis=1)
    medians: Floats = ordered[np.arange(len(values)), np.maximum(count - 1, 0) // 2]
    return medians


def level_of(first: int, last: int, bins: int) -> int:
    """Return the lowest level at which the steps are in so many bins.

    >>> level_of(0, 499, 512), level_of(0, 99_999, 1024)
    (0, 7)
    """
    level = 0
    while (last >> level) - (first >> level) + 1 > max(1, bins):
        level += 1
    return level


def binned(
    row: NDArray[Any], place: NDArray[np.int64], values: Floats, flags: NDArray[np.uint8], shape: tuple[int, int]
) -> Bins:
    """Merge records into bins.

    Args:
        row: the row of each record.
        place: its bin. Records are sorted by row and bin.
        values: its value; NaN if it has none.
        flags: its flags.
        shape: number of rows and bins.
    """
    found = Bins.empty(*shape)
    if not len(row):
        return found
    key = row.astype(np.int64) * shape[1] + place
    starts = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
    at = key[starts]
    known = ~np.isnan(values)
    count = np.add.reduceat(known, starts, dtype=np.int64)
    total = np.add.reduceat(np.where(known, values, 0), starts, dtype=np.float64)
    found.lo.ravel()[at] = np.fmin.reduceat(values, starts)
    found.hi.ravel()[at] = np.fmax.reduceat(values, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        found.mid.ravel()[at] = np.where(count > 0, total / count, np.nan)
    found.known.ravel()[at] = count
    found.n.ravel()[at] = np.diff(starts, append=len(key))
    found.flag.ravel()[at] = np.bitwise_or.reduceat(flags, starts)
    return found


def codes(values: Floats, stat: str) -> NDArray[np.uint16]:
    """Return values as codes on the domain of their statistic; 0 is no value.

    >>> codes(np.array([np.nan, -np.inf, -30, 0, 99], np.float32), "size").tolist()
    [0, 1, 1, 39321, 65535]
    """
    low, high = DOMAINS[stat]
    with np.errstate(invalid="ignore"):
        scaled = 1 + np.rint(
            (np.clip(values, low, high).astype(np.float64) - low) * ((LARGEST_CODE - 1) / (high - low))
        )
    return np.where(np.isnan(values), 0, scaled).astype(np.uint16)


def covering(down: int, first: int, count: int) -> tuple[int, NDArray[np.int64]]:
    """Return the first coarser bin over some bins, and the place of each bin.

    Args:
        down: by how many levels the bins are finer.
        first: number of the first one.
        count: their number.

    >>> covering(2, 6, 4)
    (1, array([0, 0, 1, 1]))
    """
    begin = first >> down
    return begin, (np.arange(first, first + count) >> down) - begin
