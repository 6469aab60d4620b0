"""The statistics of all tensors that a survey shows, by tensor, worker and step."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural
from smdwidgets.survey.bins import DOMAINS, ERROR, INFINITE, NAN, REDUCTIONS, Bins, binned
from smdwidgets.survey.measures import measures
from smdwidgets.survey.surprise import WINDOW, surprise
from smdwidgets.trials.statistics_file import APPROXIMATE, REDUCTIONS_ONLY

#: Statistics that are stored; surprise follows from them.
_STORED = ("size", "l2", "update", "zeros", "not_finite", "mean", "elements")

_DTYPES: Mapping[str, Any] = {
    "row": np.int32,
    "step": np.int64,
    "mode": np.uint8,
    "flag": np.uint8,
    **dict.fromkeys((*_STORED, "surprise", "usual"), np.float32),
}
#: Worker that stands for the worst of all.
WORST = "*"

Records = dict[str, NDArray[Any]]


class SurveyTable:
    """The records of a survey: one per tensor, worker and saved step. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Row of each tensor and worker.
        self._rows: dict[str, dict[str, int]] = {}
        self._count = 0
        self._records = _empty()
        #: Added records that are not merged into the sorted ones yet.
        self._added: list[Records] = []
        #: First step of the records that changed since the last call of `changed_from`.
        self._changed: int | None = None

    def __len__(self) -> int:
        with self._lock:
            return len(self._records["row"]) + sum(len(part["row"]) for part in self._added)

    def names(self) -> list[str]:
        """Return the names of the tensors in natural order."""
        with self._lock:
            return sorted(self._rows, key=natural)

    def row_names(self) -> list[str]:
        """Return the tensor of each row."""
        with self._lock:
            names = [""] * self._count
            for name, rows in self._rows.items():
                for row in rows.values():
                    names[row] = name
            return names

    def add(self, table: Mapping[str, Any], assembled: bool = False) -> None:
        """Add a table of statistics; known records are replaced.

        ``assembled``: it has whole tensors, combined from the shards of several workers.
        """
        with self._lock:
            records = self._converted(table, "" if assembled else None)
            if len(records["row"]):
                first = int(records["step"].min())
                self._changed = first if self._changed is None else min(first, self._changed)
                self._added.append(records)

    def changed_from(self) -> int | None:
        """Return the first step that changed since the last call, or None."""
        with self._lock:
            changed, self._changed = self._changed, None
            return changed

    def _converted(self, table: Mapping[str, Any], worker: str | None) -> Records:
        rows = self._numbered(table["name"].tolist(), table["worker"].tolist() if worker is None else worker)
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
        records: Records = {
            "row": rows,
            "step": np.asarray(table["step"], np.int64),
            "mode": np.asarray(table["mode"], np.uint8),
            "flag": flag.astype(np.uint8),
            **{name: column.astype(np.float32) for name, column in columns.items()},
            "surprise": np.full(len(rows), np.nan, np.float32),
            "usual": np.full(len(rows), np.nan, np.float32),
        }
        failed = [error for error in table.get("error", ()) if error[1] >= 0]
        return _joined([records, self._failed(failed)]) if failed else records

    def _failed(self, errors: Sequence[tuple[str, int, str | None, Any]]) -> Records:
        """Return records of values that could not be read."""
        records = {name: np.full(len(errors), np.nan, dtype) for name, dtype in _DTYPES.items() if dtype is np.float32}
        rows = self._numbered([name for name, *_ in errors], [worker or "" for _, _, worker, _ in errors])
        return {
            "row": rows,
            "step": np.array([step for _, step, *_ in errors], np.int64),
            "mode": np.full(len(errors), 4, np.uint8),
            "flag": np.full(len(errors), ERROR, np.uint8),
            **records,
        }

    def _numbered(self, names: list[str], workers: list[str] | str) -> NDArray[np.int32]:
        pairs = zip(names, [workers] * len(names) if isinstance(workers, str) else workers, strict=True)
        known: dict[tuple[str, str], int] = {}
        numbers = np.empty(len(names), np.int32)
        for at, pair in enumerate(pairs):
            number = known.get(pair)
            if number is None:
                of_tensor = self._rows.setdefault(pair[0], {})
                if pair[1] not in of_tensor:
                    of_tensor[pair[1]] = self._count
                    self._count += 1
                number = known[pair] = of_tensor[pair[1]]
            numbers[at] = number
        return numbers

    # ---------------------------------------------------------------------------------------------------------- records

    def records(self) -> Records:
        """Return all records, sorted by row and step. The arrays are not to be changed."""
        with self._lock:
            if self._added:
                parts = [self._records, *self._added]
                self._records, self._added = self._merged(parts), []
            return self._records

    def _merged(self, parts: list[Records]) -> Records:
        is_new = np.concatenate([np.full(len(part["row"]), at > 0) for at, part in enumerate(parts)])
        joined = _joined(parts)
        order = np.lexsort((joined["step"], joined["row"]))
        row, step = joined["row"][order], joined["step"][order]
        # Of equal keys, the last one counts.
        last = np.append((row[1:] != row[:-1]) | (step[1:] != step[:-1]), True) if len(row) else np.zeros(0, bool)
        order = order[last]
        records = {name: column[order] for name, column in joined.items()}
        _set_surprise(records, is_new[order])
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
        records = self.records()
        layers: list[list[tuple[int, int]]] = []
        for at, name in enumerate(names):
            for depth, row in enumerate(self.rows_of(name, worker)):
                if depth == len(layers):
                    layers.append([])
                layers[depth].append((at, row))
        found = Bins.empty(len(names), count)
        for depth, layer in enumerate(layers):
            one = self._layer(records, layer, mode, stat, level, first, (len(names), count))
            if depth:
                found.merge(one)
            else:
                found = one
        return found

    @staticmethod
    def _layer(
        records: Records,
        layer: list[tuple[int, int]],
        mode: int,
        stat: str,
        level: int,
        first: int,
        shape: tuple[int, int],
    ) -> Bins:
        """Merge the records of at most one row per tensor."""
        rows = np.array([row for _, row in layer], np.int32)
        starts = np.searchsorted(records["row"], rows, "left")
        ends = np.searchsorted(records["row"], rows, "right")
        begin_step, end_step = first << level, (first + shape[1]) << level
        pieces, owners = [], []
        for (at, _), start, end in zip(layer, starts.tolist(), ends.tolist(), strict=True):
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


def _set_surprise(records: Records, is_new: NDArray[np.bool_]) -> None:
    """Compute the surprise of new records, and of those whose earlier values are new."""
    order = np.lexsort((records["step"], records["mode"], records["row"]))
    row, mode = records["row"][order], records["mode"][order]
    if not len(row):
        return
    begins = np.flatnonzero(np.append(True, (row[1:] != row[:-1]) | (mode[1:] != mode[:-1])))
    first = np.repeat(begins, np.diff(np.append(begins, len(row)))).astype(np.int64)
    # A record is to be computed if it or one of the 32 before it in its series is new.
    fresh = is_new[order]
    newest = np.maximum.accumulate(np.where(fresh, np.arange(len(fresh)), -1))
    stale = np.flatnonzero((newest >= first) & (np.arange(len(fresh)) - newest <= WINDOW) & (newest >= 0))
    sizes = records["size"][order]
    unknown = np.isnan(sizes)
    sizes[unknown] = records["l2"][order][unknown]
    found, usual = surprise(sizes, first, stale)
    records["surprise"][order[stale]] = found
    records["usual"][order[stale]] = usual


def _empty() -> Records:
    return {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}


def _joined(parts: Iterable[Records]) -> Records:
    parts = list(parts)
    return {name: np.concatenate([part[name] for part in parts]) for name in _DTYPES}
