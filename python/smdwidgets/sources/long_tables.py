"""Find the curves of a long table, in which a text says what a number is.

A wide table has a column for each curve. A long one has a row for each number, and columns of text beside it: a name,
the data (``train`` or ``val``), a worker. Exports of trackers are long, and so are tables that were melted for a plot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Cells = tuple[NDArray[np.int64], NDArray[np.float64]]

#: Columns with the name of a curve, the best first.
_NAMES: Final = (
    *("tensor", "tag", "metric", "metric_name", "name", "variable", "key", "attribute_path", "attribute", "series"),
    *("curve", "scalar", "measure", "quantity", "statistic", "stat", "label", "metrics"),
)
#: Columns with the data that numbers were measured on.
_DATA: Final = ("split", "phase", "mode", "stage", "subset", "dataset", "set", "partition", "data")
#: Columns that tell curves of one name apart; they may have whole numbers.
_PARTS: Final = (
    *("worker", "rank", "process", "replica", "gpu", "layer", "head", "expert"),
    *("run", "run_id", "run_name", "experiment", "seed", "fold", "trial"),
)
_KNOWN: Final = (*_NAMES, *_DATA, *_PARTS)
_UNKNOWN: Final = len(_KNOWN)
#: Columns with the numbers of a long table.
_VALUES: Final = frozenset(("value", "values", "float_value", "val", "metric_value", "scalar", "number"))
#: A date or a time, which is no name.
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d(:\d\d)?|\d{1,2}[/.]\d{1,2}[/.]\d{2,4}")


class Texts(NamedTuple):
    """The texts of a column: their rows, and a number for each distinct text."""

    at: NDArray[np.int64]
    codes: NDArray[np.int64]
    #: The distinct texts, by their numbers.
    words: Sequence[str]


class _Column(NamedTuple):
    """A column that may tell curves apart, with the number of each row's text."""

    name: str
    codes: NDArray[np.int64]
    words: Sequence[str]
    #: Its place among the known names; other names are last. Rows without a text have the number -1.
    rank: int


def long_curves(
    columns: Mapping[str, Cells], texts: Mapping[str, Texts], steps: NDArray[np.int64]
) -> Mapping[str, Cells]:
    """Return the curves of a long table by name, or the columns of a wide one.

    >>> steps = np.array([0, 0, 1, 1])
    >>> columns = {"value": (np.arange(4), np.array([1.0, 0.5, 2.0, 0.6]))}
    >>> names = Texts(np.arange(4), np.array([0, 1, 0, 1]), ["loss", "acc"])
    >>> {name: values.tolist() for name, (_, values) in long_curves(columns, {"tag": names}, steps).items()}
    {'loss': [1.0, 2.0], 'acc': [0.5, 0.6]}
    """
    candidates = [*_candidates(columns, texts, len(steps))]
    if not candidates:
        return columns
    of_text = {one.name for one in candidates if one.name in texts and one.rank < _UNKNOWN}
    numbers = {name: cells for name, cells in columns.items() if name not in of_text}
    keys = {
        one.name
        for name, (at, values) in numbers.items()
        for one in _separating([one for one in candidates if one.name != name], at, values, steps)
    }
    numbers = {name: cells for name, cells in numbers.items() if name not in keys}
    alone = _alone(numbers)
    if alone is not None and alone.strip().lower() in _VALUES and candidates[0].rank < len(_NAMES):
        keys.add(candidates[0].name)  # also where no step has two of its names yet
    if not keys:
        return columns
    separating = [one for one in candidates if one.name in keys]
    if not any(one.rank < len(_NAMES) for one in separating):
        alone = None
    found: dict[str, Cells] = {}
    for name, (at, values) in numbers.items():
        for text, rows in _groups(separating, at):
            own = _name(separating, text, None if name == alone else name)
            here = at[rows], values[rows]
            if own in found:
                before = found[own]
                here = np.concatenate([before[0], here[0]]), np.concatenate([before[1], here[1]])
            found[own] = here
    return found


def _candidates(columns: Mapping[str, Cells], texts: Mapping[str, Texts], rows: int) -> Iterator[_Column]:
    """Yield the columns whose texts may tell curves apart, the best first."""
    found = []
    for name, cells in texts.items():
        plain = name.strip().lower()
        rank = _KNOWN.index(plain) if plain in _KNOWN else _UNKNOWN
        if rank == _UNKNOWN and all(map(_DATE.match, cells.words)):
            continue
        codes = np.full(rows, -1, np.int64)
        codes[cells.at] = cells.codes
        found.append(_Column(name, codes, cells.words, rank))
    for name, (at, values) in columns.items():
        plain = name.strip().lower()
        if plain in _PARTS and name not in texts and (values == np.floor(values)).all():
            numbers, codes_of = np.unique(values, return_inverse=True)
            if 2 * len(numbers) > len(values):
                continue
            codes = np.full(rows, -1, np.int64)
            codes[at] = codes_of
            found.append(_Column(name, codes, [f"{name} {number:.0f}" for number in numbers], _KNOWN.index(plain)))
    yield from sorted(found, key=lambda one: (one.rank, -len(one.words)))


def _separating(
    candidates: Sequence[_Column], at: NDArray[np.int64], values: NDArray[np.float64], steps: NDArray[np.int64]
) -> list[_Column]:
    """Return the columns that distinguish several numbers of a step."""
    there = steps[at] >= 0
    at, values = at[there], values[there]
    own = steps[at]
    if len(np.unique(own)) == len(own):
        return []
    found: list[_Column] = []
    key = np.zeros(len(at), np.int64)
    count = _pairs(own, key)
    beside = np.flatnonzero((own[1:] == own[:-1]) & (values[1:] != values[:-1]))
    for one in candidates:
        codes = one.codes[at]
        if one.rank == _UNKNOWN and not (
            # Texts of an unknown kind, such as a host or a message, differ after a restart, too.
            len(beside) and (codes[beside] != codes[beside + 1]).any() and 2 * len(one.words) <= len(at)
        ):
            continue
        joined = np.unique(key * (len(one.words) + 1) + codes + 1, return_inverse=True)[1]
        if (more := _pairs(own, joined)) > count:
            found.append(one)
            key, count = joined, more
        if count == len(at):
            break
    return found


def _pairs(steps: NDArray[np.int64], codes: NDArray[np.int64]) -> int:
    """Return the number of distinct pairs."""
    order = np.lexsort((codes, steps))
    steps, codes = steps[order], codes[order]
    return 1 + int(((steps[1:] != steps[:-1]) | (codes[1:] != codes[:-1])).sum()) if len(steps) else 0


def _alone(numbers: Mapping[str, Cells]) -> str | None:
    """Return the column of the numbers, if the table has one only or names it so."""
    named = [name for name in numbers if name.strip().lower() in _VALUES]
    return named[0] if len(named) == 1 else next(iter(numbers)) if len(numbers) == 1 else None


def _groups(
    separating: Sequence[_Column], at: NDArray[np.int64]
) -> Iterator[tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Yield the texts of each group of rows, and its rows, in order."""
    codes = np.stack([one.codes[at] for one in separating], axis=1) if len(at) else np.empty((0, 0), np.int64)
    distinct, first, group = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    for one in np.argsort(first, kind="stable").tolist() if len(at) else ():
        words = tuple(
            "" if code < 0 else column.words[code]
            for column, code in zip(separating, distinct[one].tolist(), strict=True)
        )
        yield words, np.flatnonzero(group == one)


def _name(separating: Sequence[_Column], texts: Sequence[str], column: str | None) -> str:
    """Return the name of a curve.

    It is the name in its text, or that of its column, after the data and before the part that it belongs to.
    """
    names, data, parts = [], [], []
    for one, text in zip(separating, texts, strict=True):
        if not text:
            continue
        if one.rank < len(_NAMES):
            names.append(text)
        elif one.rank < len(_NAMES) + len(_DATA) or one.rank == _UNKNOWN:
            data.append(text)
        else:
            parts.append(text)
    label = "/".join([*data, *names, *([column] if column else [])])
    if not label:
        return " ".join(parts)
    return f"{label} ({', '.join(parts)})" if parts else label
