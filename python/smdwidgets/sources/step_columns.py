"""Numbers by name that arrive in rows with a step, such as the lines of a log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import visible
from smdwidgets.sources.columns import LARGEST_STEP, GrowingColumns, Rows, invalid_steps, last_of_step, rows_of_objects
from smdwidgets.sources.long_tables import Cells
from smdwidgets.sources.source import Scalars

#: Names that are read of one run.
MOST_NAMES: Final = 10_000
#: Rows that become columns at once.
_ROWS: Final = 50_000


class StepColumns:
    """Scalars that grow by rows.

    Args:
        most: names that are read.

    >>> columns = StepColumns()
    >>> columns.append([{"loss": 2.0}, {"loss": 1.0, "lr": 0.1}], [10, 20])
    >>> columns.scalars()["loss"].steps, [*columns.scalars(least=2)]
    (array([10, 20]), ['loss'])
    """

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._left_out = False
        self._columns = GrowingColumns()
        self._names: set[str] = set()
        self._steps: list[NDArray[np.int64]] = []
        self._times: list[NDArray[np.float64]] = []
        #: Rows whose steps are no steps, and the first of them.
        self._invalid = 0
        self._first_invalid = 0.0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self._columns.rows

    @property
    def notes(self) -> list[str]:
        """What is left out."""
        notes = [f"more than {self._most:,} names; the first are read"] if self._left_out else []
        return notes + ([invalid_steps(self._invalid, self._first_invalid)] if self._invalid else [])

    def append(
        self, rows: Sequence[Mapping[str, Any]], steps: Sequence[int], times: Sequence[float] | None = None
    ) -> None:
        """Append rows with their steps.

        Times are in seconds since 1970; either all rows have them or none.
        """
        own = rows_of_objects(rows)
        self.append_columns(
            own.numbers, np.array(steps, np.int64), None if times is None else np.array(times, np.float64)
        )

    def append_columns(
        self, columns: Mapping[str, Cells], steps: NDArray[np.int64], times: NDArray[np.float64] | None = None
    ) -> None:
        """Append rows that are columns, as :meth:`append` does."""
        numbers = {}
        for name, cells in columns.items():
            if name in self._names or len(self._names) < self._most:
                self._names.add(name)
                numbers[name] = cells
            else:
                self._left_out = True
        self._columns.append(Rows(len(steps), numbers, {}))
        wrong = (steps < 0) | (steps >= LARGEST_STEP)
        if wrong.any():
            self._first_invalid = self._first_invalid if self._invalid else float(steps[wrong][0])
            self._invalid += int(wrong.sum())
        self._steps.append(steps)
        if times is not None:
            self._times.append(times)

    def append_each(self, rows: Iterable[tuple[Mapping[str, Any], int, float]]) -> None:
        """Append rows with their steps and times as they come.

        Few of them are held at a time.

        >>> columns = StepColumns()
        >>> columns.append_each(({"loss": 1 / step}, step, 60.0 * step) for step in (1, 2))
        >>> columns.scalars()["loss"].wall_times
        array([ 60., 120.])
        """
        remaining = iter(rows)
        while some := list(islice(remaining, _ROWS)):
            numbers, steps, times = zip(*some, strict=True)
            self.append(numbers, steps, times)

    def scalars(self, least: int = 1) -> dict[str, Scalars]:
        """Return the scalars that have at least this many numbers, by name."""
        if not self._steps:
            return {}
        steps = np.concatenate(self._steps)
        times = np.concatenate(self._times) if self._times else None
        series = {}
        for name, (at, values) in self._columns.joined().numbers.items():
            if len(at) < least:
                continue
            own = steps[at]
            keep = last_of_step(own) & (own >= 0) & (own < LARGEST_STEP)
            if not keep.any():
                continue
            series[visible(name, 400)] = Scalars(own[keep], values[keep], None if times is None else times[at][keep])
        return series
