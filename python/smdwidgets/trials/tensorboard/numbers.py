"""All numbers of a log in a few arrays, to sweep very many series at once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.trials.tables import Table

__all__ = ["MOST", "Numbers"]

#: Numbers that are held in arrays at most.
MOST = 8_000_000


@dataclass(frozen=True)
class Numbers:
    """The numbers of a log whose steps are those of its files.

    Attributes:
        places: the series of each name, one for each worker; none of a name whose numbers were all left out.
        names: the name of each series.
        workers: the worker of each series.
        begins: where each series begins in `steps` and `values`, and where the last one ends.
        steps: ascending steps of each series.
        values: the number at each step.
    """

    places: dict[str, list[int]]
    names: NDArray[np.object_]
    workers: NDArray[np.object_]
    begins: NDArray[np.int64]
    steps: NDArray[np.int64]
    values: NDArray[np.float64]

    @classmethod
    def of(cls, log: _core.EventLog, names: Collection[str]) -> Numbers:
        """Return the numbers of a log that have some names."""
        rows = [row for row in _core.ScalarCursor().advance(log) if row[0] in names]
        workers = [worker for worker, _ in log.directories()]
        places: dict[str, list[int]] = {name: [] for name in names}
        for at, (name, *_) in enumerate(rows):
            places[name].append(at)
        steps = np.concatenate([np.empty(0, np.int64), *(row[2] for row in rows)])
        values = np.concatenate([np.empty(0), *(row[3] for row in rows)])
        counts = np.array([len(row[2]) for row in rows], np.int64)
        series = np.repeat(np.arange(len(rows)), counts)
        if not (np.diff(steps)[np.diff(series) == 0] > 0).all():
            # Of several numbers of a step, the one written last counts.
            order = np.lexsort((steps, series))  # stable
            steps, values, series = steps[order], values[order], series[order]
            last = np.append((np.diff(steps) != 0) | (np.diff(series) != 0), True)
            steps, values = steps[last], values[last]
            counts = np.bincount(series[last], minlength=len(rows))
        return cls(
            places,
            np.array([row[0] for row in rows], object),
            np.array([workers[row[1]] for row in rows], object),
            np.append(0, np.cumsum(counts)),
            steps,
            values,
        )

    def table(self, names: Sequence[str], steps: Sequence[int] | None) -> tuple[Table, NDArray[np.float64]]:
        """Return the keys of some series at some steps, and their numbers."""
        series = np.array([at for name in names for at in self.places[name]], np.int64)
        counts = self.begins[series + 1] - self.begins[series]
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.begins[series] - (ends - counts), counts)
        series = np.repeat(series, counts)
        if steps is not None:
            kept = np.isin(self.steps[rows], np.array(steps, np.int64))
            rows, series = rows[kept], series[kept]
        step = self.steps[rows]
        columns: Table = {"name": self.names[series], "step": step, "mode_step": step, "worker": self.workers[series]}
        return columns, self.values[rows]
