"""Cells that are stored beside the statistics of a run.

They are the pyramid that a hook or `smdwidgets compact` writes.

Only the tiles that a view needs are read, so that its cost follows what it shows, not the size of the run.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError
from smdwidgets.survey.bins import ERROR, Bins, covering

logger = logging.getLogger("smdwidgets.survey")

#: Numbers of modes are below it.
MODES: Final = 8
#: Series that are read at once, for a query, and groups of them that are kept.
_AT_ONCE, _KEPT = 256, 8
#: About how many means are returned at most.
_MOST_MEANS: Final = 400_000


class StoredCells:
    """The cells of one worker, with the interface of `Cells`.

    Args:
        pyramid: the file.
        rows: the row of the table for each of its tensors.
    """

    def __init__(self, pyramid: _core.Pyramid, rows: NDArray[np.int32]) -> None:
        self._pyramid = pyramid
        self.level = pyramid.levels[0]
        self.records = pyramid.rows[0]
        self.ends = pyramid.ends
        self._rows = rows
        self._tensors = np.full(int(rows.max(initial=-1)) + 1, -1, np.int64)
        self._tensors[rows] = np.arange(len(rows))
        tensors, modes = pyramid.series()
        self._modes: list[int] = np.unique(modes).tolist()
        #: Series by tensor and mode.
        self._series = np.full((len(rows), MODES), -1, np.int64)
        self._series[tensors, modes % MODES] = np.arange(len(tensors))
        self._groups: OrderedDict[tuple[str, int, int], Bins] = OrderedDict()
        self._means: tuple[NDArray[Any], NDArray[Any]] | None = None

    def _of(self, rows: Sequence[int] | NDArray[Any], mode: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the series of rows in a mode (0: all), and the place of the row of each."""
        chosen = np.asarray(rows, np.int64)
        places = np.flatnonzero(chosen < len(self._tensors))
        tensors = self._tensors[chosen[places]]
        places, tensors = places[tensors >= 0], tensors[tensors >= 0]
        modes = [mode] if mode else self._modes
        series = self._series[tensors][:, modes]
        owners = np.broadcast_to(places[:, None], series.shape)
        return series[series >= 0], owners[series >= 0]

    def bins(
        self,
        rows: Sequence[int] | NDArray[Any],
        owners: Sequence[int] | NDArray[Any],
        mode: int,
        statistic: str,
        level: int,
        first: int,
        shape: tuple[int, int],
    ) -> Bins:
        """Merge cells into bins, as `Cells.bins` does.

        Bins whose tiles are damaged are marked as errors.
        """
        if level < self.level:
            begin, places = covering(self.level - level, first, shape[1])
            wide = shape[0], int(places[-1]) + 1 if shape[1] else 0
            return self.bins(rows, owners, mode, statistic, self.level, begin, wide).columns(places)
        series, places = self._of(rows, mode)
        if not len(series):
            return Bins.empty(*shape)
        merged = np.asarray(owners, np.int64)[places]
        try:
            columns = self._pyramid.bins(series.tolist(), merged.tolist(), statistic, level, first, *shape)
        except SMDebugError:
            logger.warning("the pyramid of the statistics is damaged", exc_info=True)
            empty = Bins.empty(*shape)
            empty.flag[np.unique(merged)] = ERROR
            return empty
        lo, mid, hi, n, flag = (columns[name].reshape(shape) for name in ("lo", "mid", "hi", "n", "flag"))
        return Bins(lo, mid, hi, np.where(np.isnan(lo), 0, n), n, flag)

    def read_ahead(self, rows: NDArray[Any], mode: int, statistic: str, level: int, first: int, count: int) -> None:
        """Read from a store at once what `bins` will ask for in several parts."""
        if level < self.level:
            begin, places = covering(self.level - level, first, count)
            level, first, count = self.level, begin, int(places[-1]) + 1 if count else 0
        series, _ = self._of(rows, mode)
        with suppress(SMDebugError):  # `bins` says what it is
            self._pyramid.read_ahead(series.tolist(), statistic, level, first, count)

    def series(self, row: int, statistic: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return steps, modes and values of a row.

        These are the extremes of each cell, at its first step.
        """
        parts = [self._part(row, mode, statistic) for mode in self._modes]
        steps, modes, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return steps, modes, values

    def _part(self, row: int, mode: int, statistic: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        [tensor] = self._tensors[row : row + 1].tolist() or [-1]
        if tensor < 0 or self._series[tensor, mode] < 0:
            return np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.float32)
        first = self.ends[0] >> self.level
        group, at = divmod(tensor, _AT_ONCE)
        key = (statistic, mode, group)
        if key not in self._groups:
            rows = self._rows[group * _AT_ONCE : (group + 1) * _AT_ONCE]
            shape = len(rows), (self.ends[1] >> self.level) - first + 1
            self._groups[key] = self.bins(rows, np.arange(len(rows)), mode, statistic, self.level, first, shape)
            while len(self._groups) > _KEPT * len(self._modes):
                self._groups.popitem(last=False)
        bins = self._groups[key]
        saved = np.flatnonzero(bins.n[at] > 0)
        low, high = bins.lo[at, saved], bins.hi[at, saved]
        twice = np.where((low == high) | np.isnan(low), 1, 2)
        values = np.repeat(low, twice)
        values[np.cumsum(twice) - 1] = high
        steps = np.repeat((saved + first) << self.level, twice)
        return steps, np.full(len(steps), mode, np.uint8), values

    def values(self, statistic: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the row and the mean of each cell of the highest level.

        Of many tensors, they are those of evenly spread ones.
        """
        if self._means is None:
            level = self._pyramid.levels[1]
            first = self.ends[0] >> level
            width = (self.ends[1] >> level) - first + 1
            # Those of a group are stored together.
            groups = np.arange(-(-len(self._rows) // _AT_ONCE))
            groups = groups[:: max(1, len(self._rows) * width // _MOST_MEANS)]
            places = (groups[:, None] * _AT_ONCE + np.arange(_AT_ONCE)).ravel()
            rows = self._rows[places[places < len(self._rows)]]
            bins = self.bins(rows, np.arange(len(rows)), 0, statistic, level, first, (len(rows), width))
            self._means = np.repeat(rows, width), bins.mid.ravel()
        return self._means
