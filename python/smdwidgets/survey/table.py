"""The statistics of all tensors that a survey shows, by tensor, worker and step.

A table of many records merges them into cells of several steps, which bounds its memory. It keeps the records that
stand out, and those whose surprise is not final, because records before them were not read yet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import natural
from smdwidgets.anomalies.defaults import SIZE_DEVIATIONS, SIZE_WINDOW
from smdwidgets.anomalies.sizes import surprise
from smdwidgets.survey.bins import DOMAINS, ERROR, INFINITE, NAN, REDUCTIONS, SUDDEN, Bins, binned
from smdwidgets.survey.cells import Cells
from smdwidgets.survey.earlier import EarlierSizes
from smdwidgets.survey.growth import Layer, Starts, limit_of
from smdwidgets.survey.measures import measures
from smdwidgets.survey.spans import Span, Spans
from smdwidgets.survey.stored import StoredCells
from smdwidgets.trials.tables import APPROXIMATE, REDUCTIONS_ONLY

#: Statistics that are stored; surprise follows from them.
_STORED = ("size", "l2", "update", "zeros", "not_finite", "mean", "elements")

_DTYPES: Mapping[str, Any] = {
    "row": np.int32,
    "span": np.int32,
    "step": np.int64,
    "mode": np.uint8,
    "flag": np.uint8,
    **dict.fromkeys((*_STORED, "surprise", "usual"), np.float32),
}
#: Worker that stands for the worst of all.
WORST = "*"
#: Records above which they are merged into cells, and the largest number of cells.
MOST_RECORDS, MOST_CELLS = 2_000_000, 1_000_000
#: Records that are added before they are sorted.
_MOST_ADDED = 500_000
#: Records of merged steps that are kept because they stand out.
_MOST_KEPT = 1_000_000
#: Values by which the colour scale of the growth is chosen.
_MOST_SCALED = 100_000

Records = dict[str, NDArray[Any]]


class SurveyTable:
    """The records of a survey: one per tensor, worker and saved step. Thread-safe.

    Args:
        most: records above which they are merged into cells; None: never.
    """

    def __init__(self, most: int | None = None) -> None:
        self._lock = threading.RLock()
        self._most = most
        #: Row of each tensor and worker.
        self._rows: dict[str, dict[str, int]] = {}
        #: The row of each tensor that has one.
        self._alone: dict[str, int] = {}
        self._count = 0
        #: Records that are not merged into cells, sorted by row and step.
        self._records = _empty()
        #: Added records that are not among the sorted ones yet.
        self._added: list[Records] = []
        self._starts = Starts()
        self._spans = Spans()
        self._cells: Cells | None = None
        #: Cells that are stored beside the statistics of the run, of earlier steps.
        self._stored: list[StoredCells] = []
        #: The last sizes in them, with which the first records behind them are compared; None: too far behind.
        self._earlier: EarlierSizes | None = EarlierSizes()
        self._sorted: list[str] = []
        #: Records in cells that stand out, with their neighbours.
        self._kept = _empty()
        #: Both, sorted; None if they have changed.
        self._shown: Records | None = None
        #: Tensors of which all records are kept, such as losses.
        self._whole: Callable[[], Collection[str]] = frozenset
        #: Largest surprise of the records in cells, by row.
        self._largest = np.zeros(0, np.float32)
        self._ends: tuple[int, int] | None = None
        #: First step of the records that changed since the last call of `changed_from`.
        self._changed: int | None = None

    def __len__(self) -> int:
        with self._lock:
            merged = sum(cells.records for cells in self._all_cells())
            return merged + len(self._records["row"]) + sum(len(part["row"]) for part in self._added)

    @property
    def level(self) -> int:
        """Lowest level of exact bins: 0 until records are merged."""
        return max((cells.level for cells in self._all_cells()), default=0)

    def _all_cells(self) -> list[Cells | StoredCells]:
        return [*self._stored, *([] if self._cells is None else [self._cells])]

    def keep_whole(self, names: Callable[[], Collection[str]]) -> None:
        """Keep all records of the tensors that `names` returns.

        It is called only if records are merged.
        """
        with self._lock:
            self._whole = names

    def ends(self) -> tuple[int, int] | None:
        """Return the first and the last step, or None without records."""
        with self._lock:
            return self._ends

    def names(self) -> list[str]:
        """Return the names of the tensors in natural order."""
        with self._lock:
            if len(self._sorted) != len(self._rows):
                self._sorted = sorted(self._rows, key=natural)
            return self._sorted[:]

    def known(self) -> set[str]:
        """Return the names of the tensors, which takes less time than to sort very many."""
        with self._lock:
            return set(self._rows)

    def row_names(self) -> list[str]:
        """Return the tensor of each row."""
        with self._lock:
            names = [""] * self._count
            for name, rows in self._rows.items():
                for row in rows.values():
                    names[row] = name
            return names

    def add(
        self,
        table: Mapping[str, Any],
        assembled: bool = False,
        span: Span | None = None,
        marks: NDArray[np.bool_] | None = None,
    ) -> None:
        """Add a table of statistics; known records are replaced.

        Args:
            table: columns of statistics.
            assembled: it has whole tensors, combined from the shards of several workers.
            span: the steps that it has completely; None: records that will be replaced, such as a sample.
            marks: records of single elements that are marked as sudden changes are; None: none.
        """
        with self._lock:
            records = self._converted(table, "" if assembled else None)
            if marks is not None:
                records["flag"][marks] |= np.uint8(SUDDEN)
            number = -1 if span is None else self._spans.add(span._replace(tensors=(assembled, span.tensors)))
            records["span"][:] = number
            if len(records["row"]):
                first, last = int(records["step"].min()), int(records["step"].max())
                self._changed = first if self._changed is None else min(first, self._changed)
                self._ends = (
                    (first, last) if self._ends is None else (min(first, self._ends[0]), max(last, self._ends[1]))
                )
                self._added.append(records)
                if self._most is not None and sum(len(part["row"]) for part in self._added) > _MOST_ADDED:
                    self._merge()

    def put_start(self, name: str, worker: str, size: float) -> None:
        """Set the size that growth is relative to, of a tensor with one element."""
        with self._lock:
            row = self._numbered(np.array([name], object), worker)
            start = {name: np.log10(np.array([size], np.float32)) for name in ("size", "l2")}
            steps = {f"{name}.step": np.array([-1], np.int64) for name in start}
            self._starts.put(row, {"several": np.zeros(1), **start, **steps})

    def add_stored(self, worker: str, pyramid: _core.Pyramid) -> None:
        """Add the stored cells of a worker, of which this table has no records."""
        with self._lock:
            rows = self._rows_of_worker(pyramid.names(), worker)
            self._stored.append(StoredCells(pyramid, rows))
            self._starts.put(rows, pyramid.starts())
            if self._earlier is not None:
                tensors, modes = pyramid.series()
                self._earlier.add(rows[tensors], modes, pyramid.sizes())
            records = pyramid.records()
            kept: Records = {
                "row": rows[records["tensor"]],
                "span": np.full(len(records["step"]), -1, np.int32),
                **{name: records[name].astype(dtype) for name, dtype in _DTYPES.items() if name in records},
            }
            self._kept = _joined([self._kept, kept])
            self._shown = None
            first, last = pyramid.ends
            self._changed = first if self._changed is None else min(first, self._changed)
            ends = self._ends or (first, last)
            self._ends = min(first, ends[0]), max(last, ends[1])

    @property
    def has_stored(self) -> bool:
        """Whether most records are read from stored cells when they are needed."""
        return bool(self._stored)

    def set_changed(self) -> None:
        """Note that all steps have changed."""
        with self._lock:
            if self._ends is not None:
                self._changed = self._ends[0]

    def changed_from(self) -> int | None:
        """Return the first step that changed since the last call, or None."""
        with self._lock:
            changed, self._changed = self._changed, None
            return changed

    def _converted(self, table: Mapping[str, Any], worker: str | None) -> Records:
        rows = self._numbered(table["name"], table["worker"] if worker is None else worker)
        count = np.asarray(table["count"], np.float64)
        counted = count >= 0
        nan = np.where(counted, table["nan"], 0)
        infinite = np.where(counted, table["neg_inf"] + table["pos_inf"], 0)
        columns = measures(table)
        with np.errstate(divide="ignore", invalid="ignore"):
            columns |= {name: np.log10(columns[name]) for name in ("size", "l2", "update")}
        columns |= {"mean": np.asarray(table["mean"], np.float64), "elements": np.where(counted, count, np.nan)}
        flag = (
            (nan > 0) * NAN
            | (infinite > 0) * INFINITE
            | ((table["flags"] & (APPROXIMATE | REDUCTIONS_ONLY)) > 0) * REDUCTIONS
        )
        with np.errstate(over="ignore"):  # larger than what float32 has
            narrow = {name: column.astype(np.float32) for name, column in columns.items()}
        records: Records = {
            "row": rows,
            "span": np.empty(len(rows), np.int32),
            "step": np.asarray(table["step"], np.int64),
            "mode": np.asarray(table["mode"], np.uint8),
            "flag": flag.astype(np.uint8),
            **narrow,
            "surprise": np.full(len(rows), np.nan, np.float32),
            "usual": np.full(len(rows), np.nan, np.float32),
        }
        failed = [error for error in table.get("error", ()) if error[1] >= 0]
        return _joined([records, self._failed(failed)]) if failed else records

    def _failed(self, errors: Sequence[tuple[str, int, str | None, Any]]) -> Records:
        """Return records of values that could not be read."""
        records = {name: np.full(len(errors), np.nan, dtype) for name, dtype in _DTYPES.items() if dtype is np.float32}
        names = np.array([name for name, *_ in errors], object)
        rows = self._numbered(names, np.array([worker or "" for _, _, worker, _ in errors], object))
        return {
            "row": rows,
            "span": np.empty(len(rows), np.int32),
            "step": np.array([step for _, step, *_ in errors], np.int64),
            "mode": np.full(len(errors), 4, np.uint8),
            "flag": np.full(len(errors), ERROR, np.uint8),
            **records,
        }

    def _numbered(self, names: NDArray[Any], workers: NDArray[Any] | str) -> NDArray[np.int32]:
        """Return the row of each record; those of one row mostly follow one another."""
        if isinstance(workers, str):
            workers = np.full(len(names), workers, object)
        new = (names[1:] != names[:-1]) | (workers[1:] != workers[:-1])
        begins = np.flatnonzero(np.append(True, new)) if len(names) else np.empty(0, np.intp)
        numbers = []
        for name, worker in zip(names[begins].tolist(), workers[begins].tolist(), strict=True):
            of_tensor = self._rows.setdefault(name, {})
            if worker not in of_tensor:
                if of_tensor:
                    self._alone.pop(name, None)
                else:
                    self._alone[name] = self._count
                of_tensor[worker] = self._count
                self._count += 1
            numbers.append(of_tensor[worker])
        return np.repeat(np.array(numbers, np.int32), np.diff(begins, append=len(names)))

    def _rows_of_worker(self, names: Sequence[str], worker: str) -> NDArray[np.int32]:
        """Return the row of each of the tensors of a worker."""
        if self._rows or len(set(names)) != len(names):
            return self._numbered(np.array(names, object), worker)
        self._rows = {name: {worker: row} for row, name in enumerate(names)}
        self._alone = {name: row for row, name in enumerate(names)}
        self._count = len(self._rows)
        return np.arange(len(names), dtype=np.int32)

    # ---------------------------------------------------------------------------------------------------------- records

    def records(self) -> Records:
        """Return the records, sorted by row and step. The arrays are not to be changed.

        Of merged steps, they are those that stand out with their neighbours, and all of the tensors of `keep_whole`.
        """
        with self._lock:
            self._merge()
            if not self._all_cells():
                return self._records
            if self._shown is None:
                joined = _joined([self._kept, self._records])
                order = np.lexsort((joined["step"], joined["row"]))
                self._shown = {name: column[order] for name, column in joined.items()}
            return self._shown

    def series(self, row: int, statistic: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return steps, modes and values of a row, by step.

        Of merged steps they are the extremes of each cell.
        """
        with self._lock:
            self._merge()
            if statistic == "growth":
                name, start = self._starts.of(row)
                steps, modes, values = self.series(row, name)
                return steps, modes, values - start
            records = self._records
            of_row = slice(*np.searchsorted(records["row"], [row, row + 1]))
            found = [(records["step"][of_row], records["mode"][of_row], records[statistic][of_row])]
            found += [cells.series(row, statistic) for cells in self._all_cells()]
            steps, modes, values = (np.concatenate(parts) for parts in zip(*found, strict=True))
            order = np.argsort(steps, kind="stable")
            return steps[order], modes[order], values[order]

    def growths(self) -> NDArray[np.float32]:
        """Return the growth of each record, as a logarithm; NaN if it has none."""
        records = self.records()
        growths = np.full(len(records["row"]), np.nan, np.float32)
        rows, begins = np.unique(records["row"], return_index=True)
        for row, part in zip(rows.tolist(), np.split(np.arange(len(growths)), begins[1:]), strict=True):
            name, start = self._starts.of(row)
            growths[part] = records[name][part] - start
        return growths

    def _merge(self) -> None:
        """Sort the added records, and merge final ones into cells if there are many."""
        if not self._added:
            return
        self._records, self._added = self._merged([self._records, *self._added]), []
        self._shown = None
        if self._most is not None and (self._cells is not None or len(self._records["row"]) > self._most):
            self._move_to_cells(_final(self._records, self._spans))
            if len(self._records["row"]) > self._most:  # a run of many short spans
                self._move_to_cells(self._records["span"] >= 0)
                self._earlier = None

    def _move_to_cells(self, moved: NDArray[np.bool_]) -> None:
        if self._cells is None:
            self._cells = Cells(1)
        records = self._records
        if moved.any():
            stands_out = _with_neighbours(self._stands_out(records, moved), records["row"]) & moved
            self._kept = _joined([self._kept, _chosen(records, stands_out)])
            self._cells.add(_chosen(records, moved))
            self._records = _chosen(records, ~moved)
        if len(self._cells) > MOST_CELLS:
            self._cells.compact()
        while len(self._cells) > MOST_CELLS:
            self._cells.coarsen()
        if len(self._kept["row"]) > _MOST_KEPT:
            self._kept = _thinned(self._kept, self._cells.level)

    def _stands_out(self, records: Records, moved: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which records findings are made of.

        These are values that are not finite, large surprises, and the largest surprise of each row.
        """
        rows = records["row"]
        amount = np.where(records["elements"] != 1, np.nan_to_num(np.abs(records["surprise"])), np.float32(0))
        self._largest = np.append(self._largest, np.zeros(self._count - len(self._largest), np.float32))
        largest = self._largest.copy()
        np.maximum.at(largest, rows[moved], amount[moved])
        is_largest = (amount == largest[rows]) & (amount > self._largest[rows])
        self._largest = largest
        whole = [row for name in self._whole() for row in self._rows.get(name, {}).values()]
        is_whole = np.isin(rows, whole) if whole else False
        bad = (records["flag"] & (NAN | INFINITE)) > 0
        found: NDArray[np.bool_] = bad | (amount >= SIZE_DEVIATIONS) | is_largest | is_whole
        return found

    def _merged(self, parts: list[Records]) -> Records:
        is_new = np.concatenate([np.full(len(part["row"]), at > 0) for at, part in enumerate(parts)])
        joined = _joined(parts)
        row, step = joined["row"], joined["step"]
        if ((row[1:] > row[:-1]) | ((row[1:] == row[:-1]) & (step[1:] > step[:-1]))).all():
            records = joined  # a run that was read at once
        else:
            order = np.lexsort((step, row))
            row, step = row[order], step[order]
            # Of equal keys, the last one counts.
            order = order[np.append((row[1:] != row[:-1]) | (step[1:] != step[:-1]), True)]
            records, is_new = {name: column[order] for name, column in joined.items()}, is_new[order]
        self._starts.add(records if is_new.all() else _chosen(records, is_new))
        _set_surprise(records, is_new, self._earlier, self._starts.has_tensors)
        return records

    def rows_of(self, name: str, worker: str) -> list[int]:
        """Return the rows of a tensor.

        They are those of a worker, of the first one (``""``), or of all (``"*"``).
        """
        with self._lock:
            rows = self._rows.get(name, {})
            if worker == WORST:
                return [row for each, row in rows.items() if each] or list(rows.values())
            if worker:
                return [rows[worker]] if worker in rows else []
            return [rows[""] if "" in rows else rows[min(rows, key=natural)]] if rows else []

    def bins(self, names: Sequence[str], worker: str, mode: int, stat: str, level: int, first: int, count: int) -> Bins:
        """Merge the records of tensors into bins, one row per name.

        Args:
            names: tensors.
            worker: a worker, ``""`` for the first one, ``"*"`` for the worst of all.
            mode: number of a mode; 0: all.
            stat: a statistic.
            level: level of the bins.
            first: number of the first bin.
            count: number of bins.
        """
        with self._lock:
            self._merge()
            shape = len(names), count
            found = Bins.empty(*shape)

            def stored(name: str, layer: Layer) -> Bins:
                owners, rows = layer
                parts = [cells.bins(rows, owners, mode, name, level, first, shape) for cells in self._all_cells()]
                if not parts:
                    return self._layer(self._records, layer, mode, name, level, first, shape)
                one = parts[0]
                for part in parts[1:]:
                    one.merge(part)
                recent = np.isin(rows, self._records["row"]) if len(self._records["row"]) else np.zeros(0, np.bool_)
                if recent.any():
                    own = np.arange(np.count_nonzero(recent)), rows[recent]
                    few = len(own[0]), count
                    one.merge_at(owners[recent], self._layer(self._records, own, mode, name, level, first, few))
                return one

            for depth, layer in enumerate(self._layers(names, worker)):
                one = self._starts.bins(layer, level, first, stored) if stat == "growth" else stored(stat, layer)
                if depth:
                    found.merge(one)
                else:
                    found = one
            return found

    def read_ahead(
        self, names: Sequence[str], worker: str, mode: int, stat: str, level: int, first: int, count: int
    ) -> None:
        """Read from a store at once what `bins` will be asked for in several parts."""
        with self._lock:
            for _, rows in self._layers(names, worker) if self._stored else ():
                for cells in self._stored:
                    cells.read_ahead(rows, mode, "size" if stat == "growth" else stat, level, first, count)

    def _layers(self, names: Sequence[str], worker: str) -> list[Layer]:
        """Return the rows of tensors, in layers with at most one row of each."""
        # Of very many tensors, most have one row, and are looked up together.
        alone = np.fromiter((self._alone.get(name, -1) for name in names), np.int64, len(names))
        others = np.flatnonzero(alone < 0)
        if worker in ("", WORST) and not any(names[at] in self._rows for at in others.tolist()):
            owners = np.flatnonzero(alone >= 0)
            return [(owners, alone[owners])] if len(owners) else []
        layers: list[list[tuple[int, int]]] = []
        for at, name in enumerate(names):
            for depth, row in enumerate(self.rows_of(name, worker)):
                if depth == len(layers):
                    layers.append([])
                layers[depth].append((at, row))
        pairs = [np.array(layer, np.int64) for layer in layers]
        return [(each[:, 0], each[:, 1]) for each in pairs]

    def growth_limit(self) -> float:
        """Return the end of the colour scale of the growth, as a logarithm."""
        with self._lock:
            self._merge()
            columns = [(self._records["row"], self._records["size"])]
            columns += [cells.values("size") for cells in self._all_cells()]
            every = self._every(columns)
            rows, sizes = (np.concatenate([one[::every] for one in parts]) for parts in zip(*columns, strict=True))
            return limit_of(self._starts.growths(rows, sizes))

    @staticmethod
    def _every(parts: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> int:
        return max(1, sum(len(rows) for rows, _ in parts) // _MOST_SCALED)

    @staticmethod
    def _layer(
        records: Records,
        layer: Layer,
        mode: int,
        stat: str,
        level: int,
        first: int,
        shape: tuple[int, int],
    ) -> Bins:
        """Merge the records of at most one row per tensor."""
        owned, rows = layer[0], layer[1].astype(np.int32)
        starts = np.searchsorted(records["row"], rows, "left")
        ends = np.searchsorted(records["row"], rows, "right")
        begin_step, end_step = first << level, (first + shape[1]) << level
        pieces, owners = [], []
        for place in np.flatnonzero(ends > starts).tolist():
            at, start, end = int(owned[place]), int(starts[place]), int(ends[place])
            begin = start + int(np.searchsorted(records["step"][start:end], begin_step))
            stop = start + int(np.searchsorted(records["step"][start:end], end_step))
            if stop > begin:
                pieces.append(np.arange(begin, stop))
                owners.append(np.full(stop - begin, at, np.int64))
        if not pieces:
            return Bins.empty(*shape)
        places, owner = np.concatenate(pieces), np.concatenate(owners)
        if mode:
            kept = records["mode"][places] == mode
            places, owner = places[kept], owner[kept]
        low, high = DOMAINS[stat]
        values = np.clip(records[stat][places], np.float32(low), np.float32(high))
        return binned(owner, (records["step"][places] >> level) - first, values, records["flag"][places], shape)


def _final(records: Records, spans: Spans) -> NDArray[np.bool_]:
    """Return which records are final, and are not needed for unread later ones."""
    whole, begins = spans.joined()
    if not len(whole):
        return np.zeros(len(records["row"]), bool)
    order = np.lexsort((records["step"], records["mode"], records["row"]))
    row, mode, span = (records[name][order] for name in ("row", "mode", "span"))
    joined = np.where(span >= 0, whole[span], -1)
    new = (row[1:] != row[:-1]) | (mode[1:] != mode[:-1]) | (joined[1:] != joined[:-1])
    starts = np.flatnonzero(np.append(True, new)) if len(row) else np.empty(0, np.intp)
    lengths = np.diff(starts, append=len(row))
    place = np.arange(len(row)) - np.repeat(starts, lengths)
    left = np.repeat(lengths, lengths) - 1 - place
    final = np.empty(len(row), bool)
    final[order] = (span >= 0) & (left >= SIZE_WINDOW) & ((place >= SIZE_WINDOW) | begins[span])
    return final


def _with_neighbours(chosen: NDArray[np.bool_], rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Add the records before and after the chosen ones of each row.

    >>> _with_neighbours(np.array([False, False, True, False]), np.array([0, 0, 0, 1])).tolist()
    [False, True, True, False]
    """
    same = rows[1:] == rows[:-1]
    found = chosen.copy()
    found[:-1] |= chosen[1:] & same
    found[1:] |= chosen[:-1] & same
    return found


def _thinned(records: Records, level: int) -> Records:
    """Keep of each row and cell the first record, the last, and the most surprising."""
    place = records["step"] >> level
    amount = np.nan_to_num(np.abs(records["surprise"]))
    kept = np.zeros(len(place), bool)
    for order in (
        np.lexsort((records["step"], place, records["row"])),
        np.lexsort((-records["step"], place, records["row"])),
        np.lexsort((-amount, place, records["row"])),
    ):
        row, at = records["row"][order], place[order]
        kept[order[np.append(True, (row[1:] != row[:-1]) | (at[1:] != at[:-1]))]] = True
    return _chosen(records, kept)


def _chosen(records: Records, rows: NDArray[np.bool_]) -> Records:
    return {name: column[rows] for name, column in records.items()}


def _set_surprise(records: Records, is_new: NDArray[np.bool_], earlier: EarlierSizes | None, has_tensors: bool) -> None:
    """Compute the surprise of new records, and of those whose earlier values are new.

    Mark sudden changes: of tensors, and in a run without tensors the growth of scalars, which may pass through 0.
    """
    row, mode = records["row"], records["mode"]
    if not len(row):
        return
    # They are sorted by row and step; most runs have one mode.
    order: NDArray[Any] | slice = slice(None)
    if ((mode[1:] != mode[:-1]) & (row[1:] == row[:-1])).any():
        order = np.lexsort((records["step"], mode, row))
        row, mode = row[order], mode[order]
    begins = np.flatnonzero(np.append(True, (row[1:] != row[:-1]) | (mode[1:] != mode[:-1])))
    first = np.repeat(begins, np.diff(np.append(begins, len(row)))).astype(np.int64)
    # A record is to be computed if it or one of the 32 before it in its series is new.
    fresh = is_new[order]
    newest = np.maximum.accumulate(np.where(fresh, np.arange(len(fresh)), -1))
    stale = np.flatnonzero((newest >= first) & (np.arange(len(fresh)) - newest <= SIZE_WINDOW) & (newest >= 0))
    sizes = records["size"][order].copy()
    unknown = np.isnan(sizes)
    sizes[unknown] = records["l2"][order][unknown]
    compared = stale
    if earlier is not None:
        sizes, first, compared = earlier.before(sizes, first, stale, row[begins], mode[begins])
    found, usual = surprise(sizes, first, compared)
    changed = stale if isinstance(order, slice) else order[stale]
    records["surprise"][changed] = found
    records["usual"][changed] = usual
    several = records["elements"][changed] != 1
    if has_tensors:
        changed, found, several = changed[several], found[several], several[several]
    with np.errstate(invalid="ignore"):
        is_sudden = np.where(several, np.abs(found), found) >= SIZE_DEVIATIONS
    kept = np.where(several, ~np.uint8(SUDDEN), np.uint8(255))  # a signal has its marks before
    records["flag"][changed] = (records["flag"][changed] & kept) | is_sudden * np.uint8(SUDDEN)


def _empty() -> Records:
    return {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}


def _joined(parts: Iterable[Records]) -> Records:
    parts = [part for part in parts if len(part["row"])] or [_empty()]
    if len(parts) == 1:
        return dict(parts[0])
    return {name: np.concatenate([part[name] for part in parts]) for name in _DTYPES}
