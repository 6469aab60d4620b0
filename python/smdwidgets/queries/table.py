"""Evaluate queries on tables: rows with names, and keys with one cell per row."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from smdwidgets._patterns import Glob, Regex
from smdwidgets._text import folded, natural_key
from smdwidgets.exceptions import QueryError
from smdwidgets.queries.grammar import (
    Combination,
    Comparison,
    Condition,
    Literal,
    Members,
    Names,
    Order,
    Query,
    Vocabulary,
    parse,
)
from smdwidgets.queries.words import closest, quoted

#: A cell: a number, a text, or None if the value is missing.
Cell = float | str | None

#: Statistics of a step, in the order of the documentation.
STATISTICS: Final = ("size", "l2", "update", "zeros", "nonfinite", "surprise", "growth", "mean", "std", "min", "max")
VIEWS: Final = ("map", "curves", "histograms", "table")
_OF_STATISTIC: Final = ("first", "last", "worst")
#: Statistics whose largest value is the worst.
_LARGEST_IS_WORST: Final = frozenset({"zeros", "nonfinite", "surprise"})
#: Statistics that are compared by their ratio.
_RATIOS: Final = frozenset({"size", "l2", "update", "growth"})
#: Where the parts of a name end, and parts that need no quotes in a query.
_SEPARATORS: Final = re.compile(r"[./]")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_:.\-]+(/[A-Za-z0-9_:.\-]+)*")


class Table(Vocabulary, Protocol):
    """Rows in model order, which a query selects, filters and sorts."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the rows."""

    @property
    def columns(self) -> Sequence[str]:
        """Keys that every result shows."""

    def members(self, collection: str) -> Collection[int]:
        """Return the rows of a collection."""

    def cells(self, key: str, rows: Sequence[int], query: Query) -> list[Cell]:
        """Return the cells of a key for some rows."""

    def is_descending(self, key: str) -> bool:
        """Return whether the largest numbers of a key come first."""


class Selection(NamedTuple):
    """The result of a query: rows in order, and their cells by key."""

    query: Query
    rows: list[int]
    cells: dict[str, list[Cell]]


def evaluate(table: Table, text: str) -> Selection:
    """Evaluate a query. Raises QueryError.

    >>> runs = KeyTable(["a", "b", "c"], {"lr": [0.1, 0.001, 0.01]})
    >>> found = evaluate(runs, "lr < 0.05 | sort by lr")
    >>> [runs.names[row] for row in found.rows]
    ['c', 'b']
    """
    query = parse(text, table)
    _check_names(table.names, query, text)
    rows = [*range(len(table.names))]
    for stage in query.stages:
        if isinstance(stage, Order):
            rows = _ordered(table, rows, table.cells(stage.key, rows, query), stage)[: stage.limit]
        else:
            rows = _selected(table, stage, rows, query)
    compared = [part.key for part in query.conditions() if isinstance(part, Comparison | Order)]
    keys = dict.fromkeys([*table.columns, *compared])
    return Selection(query, rows, {key: table.cells(key, rows, query) for key in keys})


def _selected(table: Table, condition: Condition, rows: list[int], query: Query) -> list[int]:
    """Return the rows for which a condition is true.

    Cells are read only of rows that depend on them.
    """
    match condition:
        case Names(pattern):
            return [row for row in rows if pattern.matches(table.names[row])]
        case Members(collection):
            members = frozenset(table.members(collection))
            return [row for row in rows if row in members]
        case Comparison(key):
            cells = table.cells(key, rows, query)
            return [row for row, cell in zip(rows, cells, strict=True) if _compares(cell, condition)]
        case Combination("and", parts):
            for part in parts:
                rows = _selected(table, part, rows, query)
            return rows
        case Combination("not", (part,)):
            left_out = frozenset(_selected(table, part, rows, query))
            return [row for row in rows if row not in left_out]
    selected: set[int] = set()
    for part in condition.parts:
        selected |= {*_selected(table, part, [row for row in rows if row not in selected], query)}
    return [row for row in rows if row in selected]


def _check_names(names: Sequence[str], query: Query, text: str) -> None:
    """Raise QueryError if a pattern of the query is found in no name.

    A table without rows has no names to check.
    """
    for part in query.conditions() if names else ():
        match part:
            case Names(pattern, start, end) if not any(map(pattern.matches, names)):
                raise _no_name(names, pattern, text, start, end)
            case Comparison("name", "~", Glob() | Regex() as pattern, start, end) if not any(
                map(pattern.matches, names)
            ):
                raise _no_name(names, pattern, text, start, end)
            case Comparison("name", "=", Literal(word, None), start, end) if word:
                if folded(word) not in map(folded, names):
                    raise QueryError(
                        text, start, end, f"No name is {quoted(word)}.", closest(word, _suggestible(names))
                    )


def _no_name(names: Sequence[str], pattern: Glob | Regex, text: str, start: int, end: int) -> QueryError:
    """Return the error of a pattern that is found in no name."""
    source = text[start:end]
    if isinstance(pattern, Regex) or len(pattern.parts) != 1:
        return QueryError(text, start, end, f"No name matches {quoted(source)}.")
    first = source.split(" ", 1)[0]
    if first != source and (stage := closest(first, ("top", "sort"))):
        return QueryError(text, start, start + len(first), f"Unknown word {quoted(first)}.", stage)
    suggestion = closest(pattern.parts[0], _suggestible(names))
    return QueryError(text, start, end, f"No name contains {quoted(source)}.", suggestion)


def _suggestible(names: Sequence[str]) -> list[str]:
    """Return the parts of names, and names, that need no quotes in a query."""
    parts = dict.fromkeys(part for name in names for part in _SEPARATORS.split(name) if len(part) < len(name))
    return [part for part in dict.fromkeys([*parts, *names]) if _PLAIN.fullmatch(part)]


def _compares(cell: Cell, comparison: Comparison) -> bool:
    """Return whether a comparison is true. With a missing value it is false."""
    _, operator, value, *_ = comparison
    if isinstance(value, Glob | Regex):
        return isinstance(cell, str) and value.matches(cell)
    number = value.number
    if number is not None and math.isnan(number):
        return (cell is None) == (operator == "=")
    if cell is None:
        return False
    if isinstance(cell, str):
        equal = folded(cell) == folded(value.text)
        return equal if operator == "=" else not equal if operator == "!=" else False
    if number is None:
        return operator == "!="
    match operator:
        case "<":
            return cell < number
        case "<=":
            return cell <= number
        case ">":
            return cell > number
        case ">=":
            return cell >= number
        case "=":
            return cell == number
        case _:
            return cell != number


def _ordered(table: Table, rows: list[int], cells: list[Cell], stage: Order) -> list[int]:
    """Sort rows: numbers, texts, missing values; ties in model order."""
    numbers, texts, missing = [], [], []
    for row, cell in sorted(zip(rows, cells, strict=True), key=lambda pair: pair[0]):
        if cell is None:
            missing.append(row)
        elif isinstance(cell, str):
            texts.append((cell, row))
        else:
            numbers.append((cell, row))
    descending = table.is_descending(stage.key) if stage.descending is None else stage.descending
    numbers.sort(key=lambda pair: pair[0], reverse=descending)
    texts.sort(key=lambda pair: natural_key(pair[0]), reverse=stage.descending is True)
    return [row for _, row in numbers] + [row for _, row in texts] + missing


# ------------------------------------------------------------------------------------------------------------------
# keys


@dataclass
class KeyTable:
    """A table with one cell per row and key, such as a table of runs.

    Attributes:
        names: names of the rows.
        cells_of: cells by key. None and NaN are missing values; ``True`` is the text "true".
        ascending: keys whose smallest numbers come first, such as losses.
    """

    names: Sequence[str]
    cells_of: Mapping[str, Sequence[Any]]
    ascending: Collection[str] = ()
    statistics: Sequence[str] = ()
    views: Sequence[str] = ()
    has_steps: bool = False
    collections: Iterable[str] = ()
    columns: Sequence[str] = ("name",)

    @property
    def keys(self) -> Sequence[str]:
        """``name``, and the given keys."""
        return list(dict.fromkeys(["name", *self.cells_of]))

    def is_text(self, key: str) -> bool:
        """Return whether a key has strings, or no cells."""
        cells = [cell_of(cell) for cell in self.cells_of.get(key, self.names)]
        return any(isinstance(cell, str) for cell in cells) or not any(cell is not None for cell in cells)

    def members(self, collection: str) -> Collection[int]:
        """Return no rows: there are no collections."""
        return ()

    def cells(self, key: str, rows: Sequence[int], query: Query) -> list[Cell]:
        """Return the cells of a key."""
        cells = self.cells_of.get(key, self.names)
        return [cell_of(cells[row]) for row in rows]

    def is_descending(self, key: str) -> bool:
        """Return whether the largest numbers of a key come first."""
        return key not in self.ascending


def cell_of(value: Any) -> Cell:
    """Return a value as a cell.

    >>> cell_of(3), cell_of(float("nan")), cell_of(True)
    (3.0, None, 'true')
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)
    return None if math.isnan(number) else number


# ------------------------------------------------------------------------------------------------------------
# statistics


class Statistics(Protocol):
    """Statistics of tensors at steps."""

    def values(self, statistic: str, rows: Sequence[int], query: Query) -> Iterable[Sequence[float]]:
        """Return the values of tensors at the saved steps of the query.

        NaN is no value.
        """


@dataclass
class TensorTable:
    """The tensors of a run, with keys that follow from statistics of their steps."""

    names: Sequence[str]
    source: Statistics
    members_of: Mapping[str, Collection[int]] = field(default_factory=dict)
    keys: Sequence[str] = ("change", *_OF_STATISTIC, "name", *STATISTICS)
    statistics: Sequence[str] = STATISTICS
    views: Sequence[str] = VIEWS
    has_steps: bool = True
    columns: Sequence[str] = ("name", *_OF_STATISTIC, "change")

    @property
    def collections(self) -> Iterable[str]:
        """Names of the collections."""
        return self.members_of

    def is_text(self, key: str) -> bool:
        """Return whether the key is ``name``: the others have numbers."""
        return key == "name"

    def members(self, collection: str) -> Collection[int]:
        """Return the rows of a collection."""
        return self.members_of[collection]

    def is_descending(self, key: str) -> bool:
        """Return True: the largest numbers come first."""
        return True

    def cells(self, key: str, rows: Sequence[int], query: Query) -> list[Cell]:
        """Return the cells of a key."""
        if key == "name":
            return [self.names[row] for row in rows]
        if key == "change":
            return self._changes(rows, query)
        if key in STATISTICS:
            return [_extreme(key, values) for values in self._values(key, rows, query)]
        statistic = query.statistic or "size"
        found = self._values(statistic, rows, query)
        if key == "worst":
            return [worst(statistic, values) for values in found]
        at = 0 if key == "first" else -1
        return [cell_of(values[at]) if len(values) else None for values in found]

    def _changes(self, rows: Sequence[int], query: Query) -> list[Cell]:
        cells = [_change(values) for values in self._values("size", rows, query)]
        unknown = [at for at, cell in enumerate(cells) if cell is None]
        norms = self._values("l2", [rows[at] for at in unknown], query)
        for at, values in zip(unknown, norms, strict=True):
            cells[at] = _change(values)
        return cells

    def _values(self, statistic: str, rows: Sequence[int], query: Query) -> list[Sequence[float]]:
        found = [*self.source.values(statistic, rows, query)]
        return [[abs(value) for value in values] for values in found] if statistic == "surprise" else found


def _extreme(statistic: str, values: Iterable[float]) -> Cell:
    """Return the smallest value of ``min``, and the largest of other statistics."""
    return (min if statistic == "min" else max)((value for value in values if value == value), default=None)


def _change(values: Iterable[float]) -> Cell:
    """Return maximum divided by minimum; 1 of equal values.

    >>> _change([2.0, 1.0, 4.0]), _change([0.0, 1.0]), _change([math.nan])
    (4.0, inf, None)
    """
    known = [value for value in values if value == value]
    if not known:
        return None
    low, high = min(known), max(known)
    return 1.0 if low == high else high / low if low else math.inf


def worst(statistic: str, values: Iterable[float]) -> Cell:
    """Return the value that is farthest from the median, as the Run Map shows it.

    >>> worst("l2", [1.0, 1.0, 1.0, 2.0, 0.1]), worst("zeros", [0.0, 0.5, 0.5])
    (0.1, 0.5)
    """
    ordered = sorted(value for value in values if value == value)
    if not ordered:
        return None
    low, middle, high = ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]
    if statistic in _LARGEST_IS_WORST:
        return high
    if statistic in _RATIOS:
        return high if _ratio(high, middle) >= _ratio(middle, low) else low
    return high if high - middle >= middle - low else low


def _ratio(larger: float, smaller: float) -> float:
    """Return how many times a size is larger; that of equal ones is 1."""
    if larger == smaller:
        return 1.0
    return larger / smaller if smaller else math.inf
