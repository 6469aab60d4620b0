"""The numbers of one step in columns, and what a rule says of which it will ask for."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smdwidgets.rules.selector import Selector

__all__ = ["Need", "StepTable"]

Column = NDArray[np.float64]
#: Bytes of an empty table with its place, and of an empty array in it.
OF_A_TABLE, OF_AN_ARRAY = 600, 120


@dataclass(frozen=True)
class Need:
    """Columns that a rule will ask for at every step."""

    selector: Selector
    columns: tuple[str, ...]


@dataclass(eq=False)
class StepTable:
    """The selected tensors of one step: a row for each tensor and worker that wrote it."""

    step: int
    names: tuple[str, ...]
    #: Beside each name its worker; None where the run has but one.
    workers: tuple[str | None, ...]
    columns: dict[str, Column] = field(default_factory=dict)
    #: Where columns hold NaN because the number was not saved; only columns of which some is missing.
    missing: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    #: Tensors left out because they could not be read: (name, message).
    unreadable: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, column: str) -> Column:
        return self.columns[column]

    def unknown(self, column: str) -> NDArray[np.bool_]:
        """Where a column's NaN means that the number was not saved and cannot be computed."""
        return self.missing.get(column, np.zeros(len(self), dtype=np.bool_))

    def row(self, name: str, worker: str | None) -> int | None:
        """The row of a tensor and worker."""
        return self._rows.get((name, worker))

    @cached_property
    def _rows(self) -> dict[tuple[str, str | None], int]:
        return {key: at for at, key in enumerate(zip(self.names, self.workers, strict=True))}

    def matching(self, other: StepTable, mine: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Of the rows marked here those that the other table has too: their numbers here and there."""
        rows = np.flatnonzero(mine)
        if self.names is other.names and self.workers is other.workers:
            return rows, rows
        found = [(row, at) for row in rows if (at := other.row(self.names[row], self.workers[row])) is not None]
        pairs = np.array(found, dtype=np.intp).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]

    def scalars(self) -> dict[str, float]:
        """The values of those that are single numbers, workers averaged. Needs columns "mean" and "size".

        The size is NaN where only reductions were saved: the mean then stands for the value.
        """
        found: dict[str, list[float]] = {}
        for name, mean, size in zip(self.names, self["mean"], self["size"], strict=True):
            if size == 1 or np.isnan(size):
                found.setdefault(name, []).append(float(mean))
        # Sorted, so that the sum does not depend on which worker is called what.
        return {
            name: values[0] if len(values) == 1 else float(np.mean(sorted(values))) for name, values in found.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, near enough for a bound: of small tables most is not numbers, but what holds them."""
        arrays = [*self.columns.values(), *self.missing.values()]
        return OF_A_TABLE + sum(OF_AN_ARRAY + array.nbytes for array in arrays) + 16 * len(self)
