"""Statistics of tensors that files of other programs contain, without the values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets.sources import Scalars, TensorStatistics
from smdwidgets.trials.tables import COUNTS, LIMITS, NUMBERS, REDUCTIONS_ONLY, Table, joined, key_columns, selected

#: Numbers of values that are not finite.
_LOST = ("nan", "neg_inf", "pos_inf")


class SourceStatistics:
    """The statistics of several sources, as a run's statistics file has them.

    >>> l2 = Scalars(np.array([1, 2]), np.array([3.0, 4.0]))
    >>> statistics = SourceStatistics([{"worker_0": {"fc1_weight": {"l2": l2}}}], lambda step: None)
    >>> statistics.names(), statistics.read(steps=[2])["l2"]
    (['fc1_weight'], array([4.]))
    """

    def __init__(
        self, sources: Sequence[TensorStatistics], mode_of: Callable[[int], tuple[int, int] | None] = lambda step: None
    ) -> None:
        self._columns = [
            (name, worker, columns)
            for one in sources
            for worker, tensors in one.items()
            for name, columns in tensors.items()
        ]
        self._columns.sort(key=lambda one: one[:2])
        self._mode_of = mode_of

    def names(self) -> list[str]:
        """Return the names of the tensors."""
        return list(dict.fromkeys(name for name, _, _ in self._columns))

    def workers(self) -> list[str]:
        """Return the workers."""
        return sorted({worker for _, worker, _ in self._columns})

    def pyramid(self, worker: str) -> None:
        """Return None: there are few statistics, which have no pyramid."""

    def scan(self, after: int, progress: Callable[[int, int], object]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the steps with rows, and those at which values are first lost.

        At the latter, values of some tensor are not finite for the first time.

        >>> nan = Scalars(np.array([1, 2, 3]), np.array([0.0, 4.0, 4.0]))
        >>> statistics = SourceStatistics([{"worker_0": {"fc1_weight": {"nan": nan}}}])
        >>> [found.tolist() for found in statistics.scan(0, lambda done, total: None)]
        [[1, 2, 3], [2]]
        """
        steps, broken = [np.empty(0, np.int64)], []
        for at, (_, _, columns) in enumerate(self._columns, 1):
            steps += [one.steps for one in columns.values()]
            lost = [one.steps[(one.values > 0) & (one.steps > after)] for name, one in columns.items() if name in _LOST]
            broken += [int(one.min()) for one in lost if len(one)]
            progress(at, len(self._columns))
        every = np.unique(np.concatenate(steps))
        return every[every > after], np.unique(np.array(broken, np.int64))

    def size(self) -> tuple[int, int, int]:
        """Return the numbers of series, rows and bytes."""
        rows = sum(max(len(one.steps) for one in columns.values()) for _, _, columns in self._columns)
        return len(self._columns), rows, rows * 8 * (len(COUNTS) + len(NUMBERS))

    def read(
        self,
        names: Sequence[str] | None = None,
        steps: Sequence[int] | None = None,
        workers: Sequence[str] | None = None,
        mode: int | None = None,
    ) -> Table:
        """Return rows as columns, sorted by name, step and worker."""
        tables = [
            self._table(name, worker, columns)
            for name, worker, columns in self._columns
            if (names is None or name in names) and (workers is None or worker in workers)
        ]
        table = joined(tables) if tables else self._table("", "", {})
        if isinstance(steps, range) and steps.step == 1:
            table = selected(table, (table["step"] >= steps.start) & (table["step"] < steps.stop))
        elif steps is not None:
            table = selected(table, np.isin(table["step"], list(steps)))
        if mode is not None:
            table = selected(table, table["mode"] == mode)
        # They are sorted by name and worker.
        order = np.lexsort((table["step"], np.unique(table["name"].astype(str), return_inverse=True)[1]))
        return selected(table, order)

    def _table(self, name: str, worker: str, columns: Mapping[str, Scalars]) -> Table:
        every = [one.steps for one in columns.values()]
        steps = np.unique(np.concatenate(every)) if every else np.empty(0, np.int64)
        table = key_columns([(name, step, worker) for step in steps.tolist()], self._mode_of)
        table |= {column: np.full(len(steps), -1, np.int64) for column in (*COUNTS, *LIMITS)}
        table |= {column: np.full(len(steps), np.nan) for column in NUMBERS}
        for column, one in columns.items():
            at = np.searchsorted(steps, one.steps)
            if column in NUMBERS:
                table[column][at] = one.values
            else:
                is_count = np.isfinite(one.values) & (one.values >= 0) & (one.values < 2**53)
                table[column][at[is_count]] = one.values[is_count].astype(np.int64)
        largest = np.maximum(np.abs(table["min"]), np.abs(table["max"]))
        table["abs_max"] = np.where(np.isnan(table["abs_max"]), largest, table["abs_max"])
        table["flags"] = np.full(len(steps), REDUCTIONS_ONLY, np.uint16)
        return table | {"error": []}
