"""Columns of numbers and texts that grow by rows, with gaps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.sources.layout import epoch_column, is_missing, number_of, step_column, time_column
from smdwidgets.sources.long_tables import Cells, Texts, long_curves
from smdwidgets.sources.source import Scalars

#: Largest step that the index can hold.
LARGEST_STEP: Final = 2**62
#: Times after this are in milliseconds: the year 5138 in seconds.
_MILLISECONDS = 1e11
#: Times before this are not since 1970 but since the start of the training.
_EARLIEST = 5e8

#: Numbers in a row at the beginning of a column that is written in each row.
_WRITTEN: Final = 3
#: Distinct texts of a column beyond which it is prose.
MOST_WORDS: Final = 10_000
#: Characters of a text.
LONGEST_WORD: Final = 400
#: Rows that show whether a column goes up and down, and the share of them that is less than the row before.
_FEWEST_ROWS, _FALLS = 8, 0.2
#: Names of the steps of an environment, which each row of a table has.
_OF_ENVIRONMENT: Final = frozenset({"total_timesteps", "timesteps", "num_timesteps"})
#: Largest relative difference of a number that two loggers wrote, such as float32 and 5 digits.
_SAME: Final = 1e-4


class Rows(NamedTuple):
    """Rows of a table by column."""

    length: int
    numbers: Mapping[str, Cells]
    texts: Mapping[str, Texts]


#: No row.
NO_ROWS: Final = Rows(0, {}, {})


class Curves(NamedTuple):
    """The scalars of a table, and sentences on what was not read or only in part."""

    scalars: dict[str, Scalars]
    problems: list[str]
    notes: list[str]


class GrowingColumns:
    """The columns of a table, each with the rows where it has a number or a text."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Cells]] = {}
        self._texts: dict[str, list[Texts]] = {}
        #: Numbers of texts by column; None: a column of prose, which is not kept.
        self._words: dict[str, dict[str, int] | None] = {}
        self.rows = 0

    def append(self, rows: Rows) -> None:
        """Append rows. The row numbers of the columns count from 0."""
        for name, (at, values) in rows.numbers.items():
            if len(at):
                self._parts.setdefault(name, []).append((at + self.rows, values))
        for name, texts in rows.texts.items():
            if (own := self._renumbered(name, texts)) is not None:
                self._texts.setdefault(name, []).append(own)
        self.rows += rows.length

    def _renumbered(self, name: str, texts: Texts) -> Texts | None:
        """Return texts of the next rows with the numbers of the column."""
        words = self._words.setdefault(name, {})
        if words is None:
            return None
        numbers = np.array([words.setdefault(word, len(words)) for word in texts.words], np.int64)
        if len(words) > MOST_WORDS:
            self._words[name] = None
            self._texts.pop(name, None)
            return None
        return Texts(texts.at + self.rows, numbers[texts.codes], ())

    def joined(self, more: Rows = NO_ROWS) -> Rows:
        """Return all rows, with some that may still change."""
        columns = {}
        for name in dict.fromkeys([*self._parts, *more.numbers]):
            parts = self._parts.get(name, [])
            if len(parts) > 1:
                parts = [(np.concatenate([at for at, _ in parts]), np.concatenate([values for _, values in parts]))]
                self._parts[name] = parts
            if name in more.numbers and len(more.numbers[name][0]):
                last = more.numbers[name][0] + self.rows, more.numbers[name][1]
                parts = [*parts, last]
            if parts:
                columns[name] = (np.concatenate([at for at, _ in parts]), np.concatenate([one for _, one in parts]))
        last_texts = {name: self._renumbered(name, texts) for name, texts in more.texts.items()}
        texts = {}
        for name, words in self._words.items():
            last_of_name = last_texts.get(name)
            pieces = [*self._texts.get(name, ()), *([last_of_name] if last_of_name is not None else [])]
            if words is not None and pieces:
                texts[name] = Texts(
                    np.concatenate([one.at for one in pieces]),
                    np.concatenate([one.codes for one in pieces]),
                    list(words),
                )
        return Rows(self.rows + more.length, columns, texts)


def rows_of_cells(columns: Mapping[str, Sequence[str]], count: int) -> Rows:
    """Return rows of text as columns.

    >>> rows = rows_of_cells({"step": ["1", "", "2.5"], "tag": ["loss", "-", "acc"]}, 3)
    >>> rows.numbers["step"], rows.texts["tag"].words
    ((array([0, 2]), array([1. , 2.5])), ['loss', 'acc'])
    """
    numbers, texts = {}, {}
    for name, cells in columns.items():
        if "_" not in "".join(cells):
            with suppress(ValueError):
                values = np.array(cells, dtype=np.float64)
                numbers[name] = np.arange(len(values)), values
                continue
        parsed = [number_of(cell) for cell in cells]
        at = [row for row, number in enumerate(parsed) if number is not None]
        numbers[name] = np.array(at, np.int64), np.array([parsed[row] for row in at], np.float64)
        if len(at) < len(cells):
            words = _Words()
            for row, number in enumerate(parsed):
                if number is None:
                    words.add(row, cells[row])
            if (own := words.texts()) is not None:
                texts[name] = own
    return Rows(count, numbers, texts)


def rows_of_objects(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Return JSON objects as columns. A number may be in a string."""
    columns: dict[str, tuple[list[int], list[float]]] = {}
    texts: dict[str, _Words] = {}
    for row, given in enumerate(rows):
        for name, value in given.items():
            if isinstance(value, bool):
                continue
            if isinstance(value, str):
                text, value = value, number_of(value)
                if value is None:
                    texts.setdefault(name, _Words()).add(row, text)
            if not isinstance(value, (int, float)):
                continue
            at, numbers = columns.setdefault(name, ([], []))
            at.append(row)
            try:
                numbers.append(float(value))
            except OverflowError:
                numbers.append(math.inf if value > 0 else -math.inf)
    return Rows(
        len(rows),
        {name: (np.array(at, np.int64), np.array(numbers, np.float64)) for name, (at, numbers) in columns.items()},
        {name: own for name, words in texts.items() if (own := words.texts()) is not None},
    )


class _Words:
    """The texts of a column, while they are collected."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._codes: list[int] = []
        self._words: dict[str, int] = {}

    def add(self, row: int, text: str) -> None:
        text = text.strip()
        if not is_missing(text) and len(self._words) <= MOST_WORDS:
            self._at.append(row)
            self._codes.append(self._words.setdefault(text[:LONGEST_WORD], len(self._words)))

    def texts(self) -> Texts | None:
        return (
            Texts(np.array(self._at, np.int64), np.array(self._codes, np.int64), [*self._words]) if self._at else None
        )


def with_steps(rows: Rows, summed: str) -> Rows:
    """Return rows whose step is the sum of a column so far.

    Rows without a number in that column are left out. So are texts: lengths of
    episodes number the rows of one curve.

    >>> rows = with_steps(Rows(2, {"length": (np.arange(2), np.array([10.0, 20.0]))}, {}), "length")
    >>> rows.numbers["total_timesteps"][1]
    array([10., 30.])
    """
    if summed not in rows.numbers:
        return rows
    at, values = rows.numbers[summed]
    numbers = {"total_timesteps": (at, np.nancumsum(values))}
    for name, (own, cells) in rows.numbers.items():
        has_step = np.isin(own, at)
        numbers[name] = own[has_step], cells[has_step]
    return Rows(rows.length, numbers, {})


def curves_of(rows: Rows, *, fills_gaps: bool = False) -> Curves:
    """Return the scalars of a table by column, or by name if the table is long.

    ``fills_gaps`` says that a cell without a value may hold NaN, as tables of text and Parquet do. In JSON, what was
    not written is null or absent, so that each NaN is a value.

    >>> columns = {"step": (np.arange(2), np.array([10.0, 20.0])), "loss": (np.array([1]), np.array([0.5]))}
    >>> curves_of(Rows(2, columns, {})).scalars["loss"].steps
    array([20])
    """
    columns = rows.numbers
    named_step = _numbering(columns)
    steps, problems = _steps(columns, named_step, rows.length)
    named_time = time_column(columns)
    times = None if named_time is None else _times(columns[named_time], rows.length)
    of_place = {named_step, named_time if times is not None else None}
    if named_step is not None and "mode" in rows.texts:
        of_place.add("mode_step")  # another number of the same step
    scalars: dict[str, Scalars] = {}
    repeated: list[tuple[str, int, int]] = []
    wide = {name: cells for name, cells in columns.items() if name not in of_place}
    for name, (at, values) in long_curves(wide, rows.texts, steps).items():
        at, values = _without_gaps(at, values) if fills_gaps else (at, values)
        there = steps[at] >= 0
        at, values = at[there], values[there]
        keep = last_of_step(steps[at])
        lost = _lost(keep, values)
        if len(lost):
            repeated.append((name, len(lost), int(steps[at[lost[0]]])))
        at, values = at[keep], values[keep]
        if len(at):
            scalars[name] = Scalars(steps[at], values, None if times is None else times[at])
    notes = []
    if repeated:
        name, _, step = repeated[0]
        others = f" and {len(repeated) - 1:,} more" if len(repeated) > 1 else ""
        notes.append(
            f"{sum(count for _, count, _ in repeated):,} numbers of {shown(name, 80)}{others} have the step of the number "
            f"after them, first at step {step}; the last number of a step is read"
        )
    return Curves(_without_ranges(scalars), problems, notes)


def _numbering(columns: Mapping[str, Cells]) -> str | None:
    """Return the column that numbers the rows, or None.

    A column of lengths, such as the steps of each episode, goes up and down: another one numbers the rows then. Neither
    do iterations that only some rows have, if the others have the steps of the environment, too.

    >>> at, lengths = np.arange(8), np.array([9.0, 3, 8, 2, 7, 4, 6, 1])
    >>> _numbering({"steps": (at, lengths), "episode": (at, at / 1), "reward": (at, -lengths)})
    'episode'
    """
    best = step_column(columns)
    if best is None or epoch_column(columns) is not None:
        return best
    if _goes_up_and_down(columns[best][1]):
        others = [name for name in columns if name != best]
        while (next_best := step_column(others)) is not None and _goes_up_and_down(columns[next_best][1]):
            others.remove(next_best)
        return next_best or best
    whole = next((one for one in columns if one.rpartition("/")[2].lower() in _OF_ENVIRONMENT), best)
    is_whole = len(columns[whole][0]) > len(columns[best][0]) and not _goes_up_and_down(columns[whole][1])
    return whole if is_whole else best


def _goes_up_and_down(values: NDArray[np.float64]) -> bool:
    """Whether numbers fall too often for steps, even for those of several runs."""
    return len(values) >= _FEWEST_ROWS and float(np.mean(values[1:] < values[:-1])) > _FALLS


def _lost(keep: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the positions of numbers that another number of the same step replaces.

    >>> _lost(np.array([False, True, False, True]), np.array([1.0, 1.0, 2.0, 3.0])).tolist()
    [2]
    """
    at = np.flatnonzero(~keep)
    differs = (values[at] != values[at + 1]) & ~(np.isnan(values[at]) & np.isnan(values[at + 1]))
    lost: NDArray[np.int64] = at[differs]
    return lost


def _without_ranges(scalars: dict[str, Scalars]) -> dict[str, Scalars]:
    """Drop extremes that an export of Weights & Biases repeats for one run.

    >>> same = Scalars(np.arange(2), np.ones(2))
    >>> list(_without_ranges({"loss": same, "loss__MIN": same, "loss__MAX": same}))
    ['loss']
    """
    for ending in ("__MIN", "__MAX"):
        for name in [one for one in scalars if one.endswith(ending)]:
            own = scalars.get(name.removesuffix(ending))
            if own is not None and are_equal(own, scalars[name]):
                del scalars[name]
    return scalars


def are_equal(one: Scalars, other: Scalars) -> bool:
    """Return whether two scalars have the same numbers at the same steps.

    >>> are_equal(Scalars(np.arange(2), np.array([0.1, 1])), Scalars(np.arange(2), np.array([np.float32(0.1), 1])))
    True
    """
    return np.array_equal(one.steps, other.steps) and agree(one, other)


def agree(one: Scalars, other: Scalars) -> bool:
    """Return whether two scalars have common steps, and the same numbers there."""
    steps, here, there = np.intersect1d(one.steps, other.steps, return_indices=True)
    return len(steps) > 0 and bool(
        np.allclose(one.values[here], other.values[there], rtol=_SAME, atol=1e-12, equal_nan=True)
    )


def last_of_step(steps: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows are the last of a step, of rows that follow each other.

    Several rows of a step are no restart: a logger writes one for the training and one for the validation.

    >>> last_of_step(np.array([1, 1, 2, 1])).tolist()
    [False, True, True, True]
    """
    return np.append(steps[1:] != steps[:-1], True)[: len(steps)]


def _without_gaps(at: NDArray[np.int64], values: NDArray[np.float64]) -> Cells:
    """Drop the NaN of a column in which NaN stands for "not written".

    In such a column numbers follow at least as many NaN. A loss that diverges stays NaN: it was written in the first
    rows.

    >>> columns = np.array([[np.nan, 1, np.nan, 2, np.nan], [1, 2, 3, np.nan, np.nan]])
    >>> [len(_without_gaps(np.arange(5), column)[0]) for column in columns]
    [2, 5]
    """
    numbers = np.flatnonzero(~np.isnan(values))
    was_written = len(numbers) >= _WRITTEN and numbers[_WRITTEN - 1] == _WRITTEN - 1
    if not len(numbers) or was_written or 2 * len(numbers) > numbers[-1] + 1:
        return at, values
    return at[numbers], values[numbers]


def _steps(columns: Mapping[str, Cells], named: str | None, rows: int) -> tuple[NDArray[np.int64], list[str]]:
    """Return the step of each row, and the rows without a valid one, in a sentence.

    A row without a step has that of the row before. The step of a row is -1 if there is none, or if it is not valid.
    """
    if named is None:
        return np.arange(rows), []
    at, values = columns[named]
    is_number = ~np.isnan(values)
    at, values = at[is_number], values[is_number]
    fits = (values >= 0) & (values < LARGEST_STEP)
    if (values[fits] != np.floor(values[fits])).any():  # fractions of an epoch
        steps = np.arange(rows)
        steps[at[~fits]] = -1
    else:
        steps = np.full(rows, -1, np.int64)
        steps[at[fits]] = values[fits]
        named_epoch = epoch_column(columns)
        if named_epoch is not None and named_epoch != named:
            epochs = np.full(rows, np.nan)
            epochs[columns[named_epoch][0]] = columns[named_epoch][1]
            steps[at[fits]] = _unrolled(steps[at[fits]], epochs[at[fits]])
        last = np.maximum.accumulate(np.where(_has(at, rows), np.arange(rows), -1))
        steps = np.where(last >= 0, steps[last], -1)
    if fits.all():
        return steps, []
    first = int(np.flatnonzero(~fits)[0])
    return steps, [f"{invalid_steps(int((~fits).sum()), values[first])}, in row {int(at[first]) + 1:,}"]


def invalid_steps(count: int, first: float) -> str:
    """Return that rows are not read because of their steps.

    >>> invalid_steps(1, -1)
    '1 row is not read, because its step is not a number from 0 to 4.6e+18: it is -1'
    >>> invalid_steps(2, -1)
    '2 rows are not read, because their step is not a number from 0 to 4.6e+18: the first one is -1'
    """
    if count == 1:
        return f"1 row is not read, because its step is not a number from 0 to {LARGEST_STEP:.2g}: it is {first:.6g}"
    return (
        f"{count:,} rows are not read, because their step is not a number from 0 to {LARGEST_STEP:.2g}: "
        f"the first one is {first:.6g}"
    )


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
