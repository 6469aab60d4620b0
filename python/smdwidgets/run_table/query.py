"""Queries on a table of runs: ``lr < 0.01 | state = ended | top 20 by loss``.

The keys are those of the table in a notebook: columns, hyperparameters, and the best values of curves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from smdwidgets.queries.table import KeyTable, evaluate

#: Values of a curve.
FUNCTIONS: Final = ("first", "last", "min", "max", "best", "count")
#: Name of a column or curve, and the function of the curve.
_Lookup = tuple[str, str | None]


class Row(Protocol):
    """A run of a table."""

    name: str

    @property
    def hparams(self) -> dict[str, Any]:
        """Hyperparameters of the run."""

    def lookup(self, name: str, function: str | None = None) -> Any:
        """Return a column, else a hyperparameter, or the value of a curve."""

    def statistic(self, tag: str, function: str = "last") -> float | None:
        """Return a statistic of a curve; None if it has none."""

    def __iter__(self) -> Iterator[str]: ...


def query_rows(
    rows: Sequence[Row], columns: Sequence[str], tag: str | None, best_of: Callable[[str], str], text: str
) -> list[int]:
    """Return the places of the runs that a query finds. Raises QueryError.

    Args:
        rows: the runs.
        columns: columns that every run has.
        tag: the curve of ``best``, ``last`` and ``loss``.
        best_of: returns whether the best value of a curve is its ``min`` or its ``max``.
        text: the query.
    """
    if not rows:  # a table without rows has no keys
        return []
    lookups = _lookups(rows, columns, tag)
    ascending = {
        key
        for key, (name, function) in lookups.items()
        if function is not None and function != "count" and best_of(name) == "min"
    }
    return evaluate(KeyTable([row.name for row in rows], _Cells(rows, lookups), ascending), text).rows


def _lookups(rows: Sequence[Row], columns: Sequence[str], tag: str | None) -> dict[str, _Lookup]:
    """Return what each key stands for; of equal keys the first one counts."""
    found: dict[str, _Lookup] = {name: (name, None) for name in (*columns, "findings")}
    if tag is not None:
        found |= {"best": (tag, "best"), "last": (tag, "last")}
    hparams = dict.fromkeys(key for row in rows for key in row.hparams)
    for key in hparams:
        found.setdefault(key, (f"hparams.{key}", None))
        found.setdefault(f"hparams.{key}", (f"hparams.{key}", None))
    tags = dict.fromkeys(key for row in rows for key in row if row.statistic(key, "count") is not None)
    for name in tags:
        found.setdefault(name, (name, "best"))
        for function in FUNCTIONS:
            found.setdefault(f"{function}({name})", (name, function))
    if tag is not None:
        for alias in ("loss", tag.rpartition("/")[2]):
            found.setdefault(alias, (tag, "best"))
    return found


class _Cells(Mapping[str, list[Any]]):
    """Columns that are made when a query uses them."""

    def __init__(self, rows: Sequence[Row], lookups: Mapping[str, _Lookup]) -> None:
        self._rows, self._lookups = rows, lookups

    def __getitem__(self, key: str) -> list[Any]:
        name, function = self._lookups[key]
        return [row.lookup(name, function) for row in self._rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self._lookups)

    def __len__(self) -> int:
        return len(self._lookups)
