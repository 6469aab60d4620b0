"""Records of a large run, merged into cells of several steps.

Cell ``k`` of level ``j`` covers the steps ``k * 2**j`` to ``(k + 1) * 2**j``, as bins do. A cell has the extremes and
the sum of each statistic, so that bins of its level and of coarser ones are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.survey.bins import DOMAINS, Bins, covering

Columns = dict[str, NDArray[Any]]

#: Statistics of a cell. The mean of the elements is for queries; growth follows from the size.
STATISTICS: Final = (*(name for name in DOMAINS if name != "growth"), "mean")
_KEYS: Final = ("row", "mode", "place")
#: Size of the later parts, as a share of the first one, above which all are merged.
_LATER = 0.2


class Cells:
    """Cells by row, mode and place.

    >>> cells = Cells(1)
    >>> number = np.float32([1.0, 3.0, 2.0])
    >>> keys = {"row": np.int32([0, 0, 0]), "mode": np.uint8([1, 1, 1]), "flag": np.uint8([0, 1, 0])}
    >>> cells.add(keys | {"step": np.array([0, 1, 2])} | dict.fromkeys(STATISTICS, number))
    >>> bins = cells.bins([0], [0], 0, "size", 1, 0, (1, 2))
    >>> bins.lo.tolist(), bins.hi.tolist(), bins.n.tolist(), bins.flag.tolist()
    ([[1.0, 2.0]], [[3.0, 2.0]], [[2, 1]], [[1, 0]])
    """

    def __init__(self, level: int) -> None:
        self.level = level
        nothing: Columns = {name: np.empty(0) for name in ("row", "mode", "step", "flag", *STATISTICS)}
        #: Parts that are merged when the later ones are large. Two parts may have cells with the same key.
        self._parts = [_of_records(nothing, level)]

    def __len__(self) -> int:
        return sum(len(part["row"]) for part in self._parts)

    @property
    def records(self) -> int:
        """Number of records that were merged."""
        return sum(int(part["n"].sum()) for part in self._parts)

    def add(self, records: Columns) -> None:
        """Merge records."""
        self._parts.append(_of_records(records, self.level))
        if len(self) > (1 + _LATER) * len(self._parts[0]["row"]):
            self.compact()

    def compact(self) -> None:
        """Merge the cells with equal keys."""
        self._parts = [_merged(self._parts)]

    def coarsen(self) -> None:
        """Go to the next level."""
        self.level += 1
        self._parts = [_merged([part | {"place": part["place"] >> 1} for part in self._parts])]

    def series(self, row: int, statistic: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return steps, modes and values of a row.

        These are the extremes of each cell, at its first step.
        """
        found = []
        for part in self._parts:
            of_row = slice(*np.searchsorted(part["row"], [row, row + 1]))
            found.append([part[name][of_row] for name in ("place", "mode", f"{statistic}.lo", f"{statistic}.hi")])
        place, mode, low, high = (np.concatenate(columns) for columns in zip(*found, strict=True))
        twice = np.where((low == high) | np.isnan(low), 1, 2)
        values = np.repeat(low, twice)
        values[np.cumsum(twice) - 1] = high
        return np.repeat(place << self.level, twice), np.repeat(mode, twice), values

    def values(self, statistic: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the row and the mean of each cell."""
        rows = np.concatenate([part["row"] for part in self._parts])
        total, known = (
            np.concatenate([part[f"{statistic}.{name}"] for part in self._parts]) for name in ("sum", "known")
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            return rows, total / np.where(known > 0, known, np.nan)

    def bins(
        self,
        rows: Sequence[int] | NDArray[np.int64],
        owners: Sequence[int] | NDArray[np.int64],
        mode: int,
        statistic: str,
        level: int,
        first: int,
        shape: tuple[int, int],
    ) -> Bins:
        """Merge cells into bins.

        Bins of a finer level have the values of the cell that covers them.

        Args:
            rows: rows of the table.
            owners: the row of the bins for each of them.
            mode: number of a mode; 0: all.
            statistic: a statistic.
            level: level of the bins.
            first: number of the first bin.
            shape: number of rows and bins.
        """
        if level < self.level:
            begin, places = covering(self.level - level, first, shape[1])
            wide = shape[0], int(places[-1]) + 1 if shape[1] else 0
            return self.bins(rows, owners, mode, statistic, self.level, begin, wide).columns(places)
        found = Bins.empty(*shape)
        for part in self._parts:
            found.merge(_binned(part, rows, owners, mode, statistic, level - self.level, first, shape))
        return found


def _binned(
    columns: Columns,
    rows: Sequence[int] | NDArray[np.int64],
    owners: Sequence[int] | NDArray[np.int64],
    mode: int,
    statistic: str,
    up: int,
    first: int,
    shape: tuple[int, int],
) -> Bins:
    """Merge cells, sorted by row, into bins of a level that is so much higher."""
    starts, ends = (np.searchsorted(columns["row"], rows, side) for side in ("left", "right"))
    chosen = np.concatenate([np.arange(*pair) for pair in zip(starts, ends, strict=True)] or [np.empty(0, np.intp)])
    place = (columns["place"][chosen] >> up) - first
    keep = (place >= 0) & (place < shape[1])
    if mode:
        keep &= columns["mode"][chosen] == mode
    key = (np.repeat(np.asarray(owners, np.int64), ends - starts) * shape[1] + place)[keep]
    chosen = chosen[keep]
    order = np.argsort(key, kind="stable")
    key, chosen = key[order], chosen[order]
    found = Bins.empty(*shape)
    if not len(key):
        return found
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    at = key[begins]
    known = np.add.reduceat(columns[f"{statistic}.known"][chosen], begins, dtype=np.int64)
    total = np.add.reduceat(columns[f"{statistic}.sum"][chosen], begins, dtype=np.float64)
    found.lo.ravel()[at] = np.fmin.reduceat(columns[f"{statistic}.lo"][chosen], begins)
    found.hi.ravel()[at] = np.fmax.reduceat(columns[f"{statistic}.hi"][chosen], begins)
    with np.errstate(invalid="ignore", divide="ignore"):
        found.mid.ravel()[at] = np.where(known > 0, total / known, np.nan)
    found.known.ravel()[at] = known
    found.n.ravel()[at] = np.add.reduceat(columns["n"][chosen], begins, dtype=np.int64)
    found.flag.ravel()[at] = np.bitwise_or.reduceat(columns["flag"][chosen], begins)
    return found


def _of_records(records: Columns, level: int) -> Columns:
    """Return the cells of records."""
    keys: Columns = {
        "row": records["row"].astype(np.int32),
        "mode": records["mode"].astype(np.uint8),
        "place": records["step"].astype(np.int64) >> level,
    }
    order, begins = _grouped(keys)
    cells = {name: key[order][begins] for name, key in keys.items()}
    if not len(order):
        cells |= {"n": np.empty(0, np.uint32), "flag": np.empty(0, np.uint8)}
        types = {"lo": np.float32, "hi": np.float32, "sum": np.float32, "known": np.uint32}
        return cells | {f"{name}.{kind}": np.empty(0, one) for name in STATISTICS for kind, one in types.items()}
    cells["n"] = np.diff(begins, append=len(order)).astype(np.uint32)
    cells["flag"] = np.bitwise_or.reduceat(records["flag"][order], begins)
    for name in STATISTICS:  # one at a time, which bounds the memory
        values = records[name][order]
        if name in DOMAINS:
            low, high = DOMAINS[name]
            values = np.clip(values, np.float32(low), np.float32(high))
        known = ~np.isnan(values)
        cells[f"{name}.lo"] = np.fmin.reduceat(values, begins)
        cells[f"{name}.hi"] = np.fmax.reduceat(values, begins)
        cells[f"{name}.sum"] = np.add.reduceat(np.where(known, values, np.float32(0)), begins)
        cells[f"{name}.known"] = np.add.reduceat(known, begins, dtype=np.uint32)
    return cells


def _merged(parts: Sequence[Columns]) -> Columns:
    """Merge cells with equal keys."""
    keys = {name: np.concatenate([part[name] for part in parts]) for name in _KEYS}
    order, begins = _grouped(keys)
    found = {name: key[order][begins] for name, key in keys.items()}
    for name in parts[0].keys() - set(_KEYS):
        column = np.concatenate([part[name] for part in parts])
        merge = _MERGES[name.rpartition(".")[2]]
        found[name] = merge.reduceat(column[order], begins).astype(column.dtype) if len(order) else column
    return found


def _grouped(keys: Columns) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the order by the keys, and where a new key begins in it."""
    order = np.lexsort((keys["place"], keys["mode"], keys["row"]))
    if not len(order):
        return order, order
    new = np.logical_or.reduce([key[order][1:] != key[order][:-1] for key in keys.values()])
    return order, np.flatnonzero(np.append(True, new))


_MERGES: Final[dict[str, np.ufunc]] = {
    "lo": np.fmin,
    "hi": np.fmax,
    "sum": np.add,
    "known": np.add,
    "n": np.add,
    "flag": np.bitwise_or,
}
