"""Columns of numbers that grow by rows, with gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.sources.layout import epoch_column, number_of, step_column, time_column
from smdwidgets.sources.source import Scalars

#: Largest step that the index can hold.
_LARGEST = 2**62
#: Times after this are in milliseconds: the year 5138 in seconds.
_MILLISECONDS = 1e11
#: Times before this are not since 1970 but since the start of the training.
_EARLIEST = 5e8

Cells = tuple[NDArray[np.int64], NDArray[np.float64]]


class GrowingColumns:
    """The columns of a table, each with the rows where it has a number."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Cells]] = {}
        self.rows = 0

    def append(self, columns: Mapping[str, Cells], rows: int) -> None:
        """Append rows. The row numbers of the columns count from 0."""
        for name, (at, values) in columns.items():
            if len(at):
                self._parts.setdefault(name, []).append((at + self.rows, values))
        self.rows += rows

    def joined(self, more: Mapping[str, Cells], rows: int) -> dict[str, Cells]:
        """Return the columns, with rows that may still change."""
        found = {}
        for name in dict.fromkeys([*self._parts, *more]):
            parts = self._parts.get(name, [])
            if len(parts) > 1:
                parts = [(np.concatenate([at for at, _ in parts]), np.concatenate([values for _, values in parts]))]
                self._parts[name] = parts
            if name in more and len(more[name][0]):
                last = more[name][0] + self.rows, more[name][1]
                parts = [*parts, last]
            if parts:
                found[name] = (np.concatenate([at for at, _ in parts]), np.concatenate([one for _, one in parts]))
        return found


def cells_of(texts: Sequence[str]) -> Cells:
    """Return the numbers of a column of text, and their rows.

    >>> cells_of(["1", "", "2.5"])
    (array([0, 2]), array([1. , 2.5]))
    """
    try:
        values = np.array(texts, dtype=np.float64)
        return np.arange(len(values)), values
    except ValueError:
        found = [(row, number) for row, text in enumerate(texts) if (number := number_of(text)) is not None]
    return np.array([row for row, _ in found], np.int64), np.array([number for _, number in found], np.float64)


def cells_of_rows(rows: Sequence[Mapping[str, Any]]) -> dict[str, Cells]:
    """Return the numbers of JSON objects as columns, also those in strings."""
    columns: dict[str, tuple[list[int], list[float]]] = {}
    for row, given in enumerate(rows):
        for name, value in given.items():
            if isinstance(value, bool):
                continue
            if isinstance(value, str):
                value = number_of(value)
            if not isinstance(value, (int, float)):
                continue
            try:
                number = float(value)
            except OverflowError:
                continue
            at, numbers = columns.setdefault(name, ([], []))
            at.append(row)
            numbers.append(number)
    return {name: (np.array(at, np.int64), np.array(numbers, np.float64)) for name, (at, numbers) in columns.items()}


def scalars_of(columns: Mapping[str, Cells], rows: int) -> dict[str, Scalars]:
    """Return the scalars of a table by column.

    >>> columns = {"step": (np.arange(2), np.array([10.0, 20.0])), "loss": (np.array([1]), np.array([0.5]))}
    >>> scalars_of(columns, 2)["loss"].steps
    array([20])
    """
    named_step = step_column(columns)
    steps = _steps(columns, named_step, rows)
    named_time = time_column(columns)
    times = None if named_time is None else _times(columns[named_time], rows)
    found = {}
    for name, (at, values) in columns.items():
        if name in (named_step, named_time if times is not None else None):
            continue
        at, values = _without_gaps(at, values)
        keep = (steps[at] >= 0) & last_of_step(steps[at])
        at, values = at[keep], values[keep]
        if len(at):
            found[name] = Scalars(steps[at], values, None if times is None else times[at])
    return found


def last_of_step(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows are the last of a step, of rows that follow each other.

    Several rows of a step are no restart: a logger writes one for the training and one for the validation.

    >>> last_of_step(np.array([1, 1, 2, 1])).tolist()
    [False, True, True, True]
    """
    return np.append(steps[1:] != steps[:-1], True)[: len(steps)]


def _without_gaps(at: NDArray[np.int64], values: NDArray[np.float64]) -> Cells:
    """Drop the NaN of a column in which NaN stands for "not written".

    In such a column numbers follow at least as many NaN. A loss that diverges stays NaN.

    >>> columns = np.array([[np.nan, 1, np.nan, 2, np.nan], [1, 2, 3, np.nan, np.nan]])
    >>> [len(_without_gaps(np.arange(5), column)[0]) for column in columns]
    [2, 5]
    """
    numbers = np.flatnonzero(~np.isnan(values))
    if not len(numbers) or 2 * len(numbers) > numbers[-1] + 1:
        return at, values
    return at[numbers], values[numbers]


def _steps(columns: Mapping[str, Cells], named: str | None, rows: int) -> NDArray[np.int64]:
    """Return the step of each row; without one, that of the row before, or -1."""
    if named is None:
        return np.arange(rows)
    at, values = columns[named]
    usable = np.isfinite(values) & (np.abs(values) < _LARGEST)
    at, values = at[usable], values[usable]
    if len(values) and (values != np.floor(values)).any():
        return np.arange(rows)  # fractions of an epoch
    steps = np.full(rows, -1, np.int64)
    steps[at] = values
    named_epoch = epoch_column(columns)
    if named_epoch is not None and named_epoch != named:
        epochs = np.full(rows, np.nan)
        epochs[columns[named_epoch][0]] = columns[named_epoch][1]
        steps[at] = _unrolled(steps[at], epochs[at])
    last = np.maximum.accumulate(np.where(_has(at, rows), np.arange(rows), -1))
    return np.where(last >= 0, steps[last], -1)


def _has(at: NDArray[np.int64], rows: int) -> NDArray[np.bool_]:
    has = np.zeros(rows, np.bool_)
    has[at] = True
    return has


def _unrolled(steps: NDArray[np.int64], epochs: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number the steps on where they begin again in each epoch.

    A step that goes backwards without a new epoch is a restart, which is left as it is.

    >>> _unrolled(np.array([0, 1, 2, 0, 1]), np.array([0.0, 0, 0, 1, 1]))
    array([0, 1, 2, 3, 4])
    >>> _unrolled(np.array([10, 20, 10, 20]), np.array([0.0, 0, 1, 1]))
    array([10, 20, 30, 40])
    """
    back = np.flatnonzero(steps[1:] < steps[:-1])
    if not len(back) or not (epochs[back + 1] > epochs[back]).all():
        return steps
    found = steps.copy()
    for begin, end in pairwise([*(back + 1).tolist(), len(steps)]):
        found[begin:end] += found[begin - 1] + (1 if steps[begin] == 0 else 0)
    return found


def _times(cells: Cells, rows: int) -> NDArray[np.float64] | None:
    """Return the Unix time of each row; None if the column has other times."""
    at, values = cells
    finite = values[np.isfinite(values)]
    if not len(finite) or finite.min() < _EARLIEST:
        return None
    times = np.full(rows, np.nan)
    times[at] = values / 1000 if finite.min() > _MILLISECONDS else values
    return times
