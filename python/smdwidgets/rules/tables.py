"""Tables of statistics at one step, and the columns that a rule needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smdwidgets.rules.selector import Selector

__all__ = ["SCALAR", "Need", "StepTable"]

#: Columns that the values of scalars are read from.
SCALAR = ("mean", "size")

Column = NDArray[np.float64]
#: Bytes of an empty table including its dictionary entry, and of an empty array in it.
TABLE_OVERHEAD, ARRAY_OVERHEAD = 600, 120


@dataclass(frozen=True)
class Need:
    """Columns that a rule reads at every step."""

    selector: Selector
    columns: tuple[str, ...]


@dataclass(eq=False)
class StepTable:
    """The selected tensors at one step, with one row per tensor and worker."""

    step: int
    names: tuple[str, ...]
    #: The worker of each row; None if the run has one worker.
    workers: tuple[str | None, ...]
    columns: dict[str, Column] = field(default_factory=dict)
    #: Rows in which a column is not available (its value is NaN); only columns with such rows.
    missing: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    #: Tensors that could not be read: (name, message).
    unreadable: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, column: str) -> Column:
        return self.columns[column]

    def unknown(self, column: str) -> NDArray[np.bool_]:
        """Return the rows in which a column is not available."""
        return self.missing.get(column, np.zeros(len(self), dtype=np.bool_))

    def row(self, name: str, worker: str | None) -> int | None:
        """Return the row of a tensor and worker, or None."""
        return self._rows.get((name, worker))

    @cached_property
    def _rows(self) -> dict[tuple[str, str | None], int]:
        return {key: at for at, key in enumerate(zip(self.names, self.workers, strict=True))}

    def matching(self, other: StepTable, mine: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return row numbers, in both tables, of the rows in `mine` that both tables have."""
        rows = np.flatnonzero(mine)
        if self.names is other.names and self.workers is other.workers:
            return rows, rows
        found = [(row, at) for row in rows if (at := other.row(self.names[row], self.workers[row])) is not None]
        pairs = np.array(found, dtype=np.intp).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def scalars(self) -> dict[str, float]:
        """Return the values of scalars by name, averaged over workers.

        Needs the columns "mean" and "size". The size is NaN if only reductions were saved; the mean is then used as the
        value.
        """
        found: dict[str, list[float]] = {}
        for name, mean, size in zip(self.names, self["mean"], self["size"], strict=True):
            if size == 1 or np.isnan(size):
                found.setdefault(name, []).append(float(mean))
        # Sorted, so that the floating-point sum does not depend on the names of the workers.
        return {
            name: values[0] if len(values) == 1 else float(np.mean(sorted(values))) for name, values in found.items()
        }

    @property
    def nbytes(self) -> int:
        """Approximate size in bytes. For small tables, most of it is object overhead."""
        arrays = [*self.columns.values(), *self.missing.values()]
        return TABLE_OVERHEAD + sum(ARRAY_OVERHEAD + array.nbytes for array in arrays) + 16 * len(self)
