"""Statistics of tensors as data frames of Dask."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from smdwidgets._text import shown
from smdwidgets.dask.packages import package
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.executors import using
from smdwidgets.executors.scope import HERE
from smdwidgets.modes import ModeKeys, as_mode, as_steps
from smdwidgets.trials.columns import Columns
from smdwidgets.trials.shipping import Shipment, pack
from smdwidgets.trials.statistics.table import COLUMN_TYPES, names_with_statistics, result_columns, steps_before
from smdwidgets.trials.tables import KEYS
from smdwidgets.trials.trial import Trial

if TYPE_CHECKING:
    import dask.dataframe
    import pandas

#: Rows of a partition, each of which may be a record of 16 KiB.
PARTITION_ROWS: Final = 4096
#: What the rows of a partition have in common.
BY: Final = ("names", "steps")
#: What is done about records that cannot be read.
ERRORS: Final = ("raise", "skip")


def to_dask_dataframe(
    trial: Trial,
    names: Iterable[str] | str | None = None,
    steps: Iterable[int] | int | None = None,
    columns: Iterable[str] | str | None = None,
    mode: ModeKeys | str = ModeKeys.GLOBAL,
    worker: str | None = None,
    *,
    by: str = "names",
    partition_rows: int = PARTITION_ROWS,
    errors: str = "raise",
) -> dask.dataframe.DataFrame:
    """Return statistics as a data frame of Dask.

    Implements :meth:`smdwidgets.Trial.to_dask_dataframe`.

    >>> to_dask_dataframe(trial, columns=["mean"]).groupby("name")["mean"].max().compute()    # doctest: +SKIP
    """
    dd = package("dask.dataframe", "to_dask_dataframe")
    for name, given, known in (("by", by, BY), ("errors", errors, ERRORS)):
        if given not in known:
            raise SMDebugValueError(f"{name} must be one of {', '.join(known)}, got {shown(given)}")
    if not isinstance(partition_rows, int) or partition_rows < 1:
        raise SMDebugValueError(f"partition_rows must be an integer >= 1, got {shown(partition_rows)}")
    mode = as_mode(mode)
    chosen = None if names is None else [names] if isinstance(names, str) else list(dict.fromkeys(names))
    at = None if steps is None else as_steps(steps)
    query = Query(tuple(result_columns(columns)), mode, worker, errors)
    trial.maybe_refresh()
    with trial.refreshing(False):
        trial.reader.load()
        parts = _parts(trial, chosen, at, mode, by, partition_rows)
    made: dask.dataframe.DataFrame = dd.from_map(
        query, parts, meta=query.empty(), label="statistics", enforce_metadata=False
    )
    return made


@dataclass(frozen=True)
class Part:
    """The rows of one partition.

    The first and the last range of names have no limit, so that tensors which only the statistics have belong to one,
    too.
    """

    shipment: Shipment
    #: Names; None: those of the run from `first_name` (inclusive) to `end_name`.
    names: tuple[str, ...] | None
    steps: tuple[int, ...] | None
    first_name: str | None = None
    end_name: str | None = None

    def chosen(self, trial: Trial) -> list[str]:
        """Return the names of the partition."""
        if self.names is not None:
            return list(self.names)
        first, end = self.first_name, self.end_name
        every = names_with_statistics(trial.reader)
        return [name for name in every if (first is None or first <= name) and (end is None or name < end)]

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.shipment.identity, self.names, self.steps, self.first_name, self.end_name


@dataclass(frozen=True)
class Query:
    """Reads partitions."""

    columns: tuple[str, ...]
    mode: ModeKeys
    worker: str | None
    errors: str

    def __dask_tokenize__(self) -> tuple[Any, ...]:
        return self.columns, self.mode.value, self.worker, self.errors

    def __call__(self, part: Part) -> pandas.DataFrame:
        """Return the rows of a partition."""
        trial = part.shipment.open()
        names = part.chosen(trial)
        columns = [name for name in self.columns if name not in KEYS]
        with using(HERE):
            table = trial.statistics(names, part.steps, columns, self.mode, self.worker, cache=False)
        if table.errors and self.errors == "raise":
            raise table.errors[0].error
        keep = np.ones(table.num_rows, bool)
        if not part.shipment.ended and part.shipment.last_step is not None:
            keep &= table["step"] <= part.shipment.last_step  # the statistics of a growing run may have grown since
        rows = Columns({name: column[keep] for name, column in table.items()}).to_pandas()
        return rows.astype(self.empty().dtypes.to_dict())

    def empty(self) -> pandas.DataFrame:
        """Return a table without rows, with the types of the columns."""
        types = {name: COLUMN_TYPES[name] for name in self.columns}
        one = {name: np.array([of()], dtype=object if of is str else of) for name, of in types.items()}
        return Columns(one).to_pandas()[:0]


def _parts(
    trial: Trial, names: list[str] | None, steps: list[int] | None, mode: ModeKeys, by: str, rows: int
) -> list[Part]:
    known = names if names is not None else trial.reader.names(None, mode)
    every = sorted(steps) if steps is not None else trial.steps(mode, show_incomplete_steps=True)
    chosen = None if names is None else tuple(names)
    if by == "steps":
        groups = _groups(every, rows, len(known))
        return [
            Part(pack(trial.reader, names, _needed(trial, known, group, mode)), chosen, tuple(group))
            for group in groups
        ]
    at = None if steps is None else tuple(every)
    groups = _groups(known, rows, len(every))
    if names is not None:
        return [Part(pack(trial.reader, group), tuple(group), at) for group in groups]
    limits = [None, *(group[0] for group in groups[1:]), None]
    ranges = zip(groups, pairwise(limits), strict=True)
    return [Part(pack(trial.reader, group), None, at, first, end) for group, (first, end) in ranges]


def _needed(trial: Trial, names: Sequence[str], steps: Sequence[int], mode: ModeKeys) -> list[int]:
    """Return the global steps that statistics need.

    They include the steps before, for the change since then.
    """
    found = [step for step in (trial.reader.global_step(mode, step) for step in steps) if step is not None]
    return sorted({*found, *steps_before(trial.reader.index, names, found)})


def _groups(items: Sequence[Any], rows: int, each: int) -> list[Sequence[Any]]:
    """Cut items that have `each` rows into groups of about so many rows.

    There is at least one group.
    """
    at_once = max(1, math.ceil(rows / max(1, each)))
    return [items[at : at + at_once] for at in range(0, len(items), at_once)] or [items]
