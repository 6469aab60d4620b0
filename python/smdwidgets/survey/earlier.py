"""The last sizes that are stored, with which the records behind them are compared."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smdwidgets.anomalies.defaults import SIZE_WINDOW
from smdwidgets.survey.stored import MODES

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class EarlierSizes:
    """The last sizes of series: rows of a table in one mode.

    >>> earlier = EarlierSizes()
    >>> earlier.add(np.array([3]), np.uint8([1]), np.arange(SIZE_WINDOW, dtype=np.float32))
    >>> sizes, first = np.float32([7.5, 8.5]), np.array([0, 1])
    >>> sizes, first, index = earlier.before(sizes, first, np.array([1]), np.array([2, 3]), np.uint8([1, 1]))
    >>> len(sizes), first.tolist()[-1], index.tolist(), sizes[[0, 1, 2, -1]].tolist()
    (34, 1, [33], [7.5, 0.0, 1.0, 8.5])
    """

    def __init__(self) -> None:
        #: Series in ascending order.
        self._keys = np.empty(0, np.int64)
        self._sizes = np.empty((0, SIZE_WINDOW), np.float32)

    def add(self, rows: NDArray[np.integer], modes: NDArray[np.uint8], sizes: Floats) -> None:
        """Add the sizes of series, from the oldest one on; NaN is none."""
        keys = np.concatenate([self._keys, rows.astype(np.int64) * MODES + modes % MODES])
        order = np.argsort(keys, kind="stable")
        self._keys = keys[order]
        self._sizes = np.concatenate([self._sizes, sizes.reshape(-1, SIZE_WINDOW)])[order]

    def before(
        self, sizes: Floats, first: Integers, index: Integers, rows: NDArray[np.integer], modes: NDArray[np.uint8]
    ) -> tuple[Floats, Integers, Integers]:
        """Put the earlier sizes before those of each series, as arguments of `surprise`.

        Args:
            sizes: sizes, the series one after the other.
            first: index of the first size of each size's series.
            index: indices of the sizes to compare.
            rows: the row of each series.
            modes: its mode.
        """
        # Most records have all of the window before them.
        if not len(self._keys) or not (index - first[index] < SIZE_WINDOW).any():
            return sizes, first, index
        keys = rows.astype(np.int64) * MODES + modes % MODES
        places = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        has_earlier = self._keys[places] == keys
        begins = np.unique(first)
        chosen = begins[has_earlier]
        # So many series up to each one, and before it, have earlier sizes.
        series = np.searchsorted(begins, first)
        until = np.cumsum(has_earlier)[series]
        shift = SIZE_WINDOW * until
        joined = np.insert(sizes, np.repeat(chosen, SIZE_WINDOW), self._sizes[places[has_earlier]].ravel())
        starts = np.empty(len(joined), np.int64)
        moved = np.arange(len(sizes)) + shift
        starts[moved] = first + SIZE_WINDOW * (until - has_earlier[series])
        return joined, starts, moved[index]
