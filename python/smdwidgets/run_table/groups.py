"""Groups of runs, with mean and standard deviation of their numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

from smdwidgets._patterns import LIMIT, compile_pattern
from smdwidgets._text import natural, shown
from smdwidgets.exceptions import SMDebugValueError
from smdwidgets.run_table import page
from smdwidgets.run_table.page import Row

if TYPE_CHECKING:
    import pandas


class Spread(NamedTuple):
    """Return mean and sample standard deviation of finite numbers.

    The deviation of one number is NaN.
    """

    mean: float
    std: float
    values: int

    def __str__(self) -> str:
        return f"{self.mean:.4g}" + ("" if math.isnan(self.std) else f" ± {self.std:.2g}")


class RunGroup(NamedTuple):
    """Runs with the same key."""

    key: tuple[Any, ...]
    runs: list[Row]
    #: By column.
    numbers: dict[str, Spread]


class RunGroups(Sequence[RunGroup]):
    """Groups of runs, returned by :meth:`RunTable.group`."""

    def __init__(self, names: list[str], groups: list[RunGroup], columns: list[str]) -> None:
        self.names = names
        self._groups = groups
        self.columns = columns

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame with the mean of every number. Requires pandas.

        The deviation is in ``<column>.std``.
        """
        import pandas

        rows = []
        for group in self._groups:
            row = dict(zip(self.names, group.key, strict=True)) | {"runs": len(group.runs)}
            for column in self.columns:
                spread = group.numbers.get(column)
                row |= {column: None, f"{column}.std": None} if spread is None else {
                    column: spread.mean, f"{column}.std": spread.std
                }  # fmt: skip
            rows.append(row)
        return pandas.DataFrame(rows)

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, at: Any) -> Any:
        return self._groups[at]

    def __iter__(self) -> Iterator[RunGroup]:
        return iter(self._groups)

    def __repr__(self) -> str:
        return page.groups_text(self._shown())

    def _repr_html_(self) -> str:
        return page.groups_html(self._shown())

    def _shown(self) -> page.Groups:
        shown = [
            (group.key, len(group.runs), [group.numbers.get(column) for column in self.columns])
            for group in self._groups
        ]
        return page.Groups(self.names, self.columns, shown)


def group_rows(rows: Sequence[Row], names: list[str], pattern: str | None, columns: list[str]) -> RunGroups:
    """Group runs by the values of columns, and by what a pattern finds in their names."""
    if not names and pattern is None:
        raise SMDebugValueError("pass the columns to group by, or pattern=")
    found: dict[tuple[str, ...], tuple[tuple[Any, ...], list[Row]]] = {}
    matcher = None if pattern is None else _Matcher(pattern)
    for row in rows:
        key: tuple[Any, ...] = tuple(row.lookup(name) for name in names)
        key += () if matcher is None else matcher.key(row.name)
        found.setdefault(tuple(map(repr, key)), (key, []))[1].append(row)
    groups = [RunGroup(key, members, _numbers(members, columns)) for key, members in found.values()]
    groups.sort(key=lambda group: [natural(str(part)) for part in group.key])
    used = [column for column in columns if column not in names and any(column in group.numbers for group in groups)]
    return RunGroups(names + ([] if matcher is None else matcher.names), groups, used)


class _Matcher:
    def __init__(self, pattern: str) -> None:
        try:
            self._pattern = compile_pattern(pattern)
        except re.error as error:
            raise SMDebugValueError(f"invalid pattern {shown(pattern)}: {error}") from None
        indices = {number: name for name, number in self._pattern.groupindex.items()}
        self.names = [indices.get(at, f"group {at}") for at in range(1, self._pattern.groups + 1)] or ["name"]

    def key(self, name: str) -> tuple[str, ...]:
        """Return the groups of the pattern in a name, or the name without what matches."""
        match = self._pattern.search(name, timeout=LIMIT)
        if self._pattern.groups:
            return tuple("" if part is None else part for part in match.groups()) if match else ("",) * len(self.names)
        return (self._pattern.sub("*", name, timeout=LIMIT),)


def _numbers(rows: Sequence[Row], columns: Sequence[str]) -> dict[str, Spread]:
    found = {}
    for column in columns:
        function, name = (column[:-1].split("(", 1)) if column.endswith(")") and "(" in column else (None, column)
        values = [row.lookup(name, function) for row in rows]
        finite = [
            float(value)
            for value in values
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        ]
        if finite:
            found[column] = Spread(fmean(finite), stdev(finite) if len(finite) > 1 else math.nan, len(finite))
    return found
