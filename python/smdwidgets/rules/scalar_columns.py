"""Scalars at consecutive steps as columns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import natural
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.selector import Selector

if TYPE_CHECKING:
    from smdwidgets.trials import Trial

__all__ = ["ScalarColumns", "Series", "columns_of_log", "columns_of_steps"]

K = TypeVar("K", bound=Hashable)

#: Cells of the columns of a log above which its steps are read in portions.
MOST_CELLS = 20_000_000
#: Larger than the numbers of all modes.
_MODES = 16


class Series(NamedTuple):
    """Scalars of one kind, in the order of steps."""

    #: Rows of the steps, ascending.
    rows: NDArray[np.intp]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScalarColumns:
    """The selected scalars at consecutive saved steps: one row of arrays per name."""

    steps: NDArray[np.int64]
    modes: NDArray[np.uint8]
    mode_steps: NDArray[np.int64]
    #: In the order of a step's table.
    names: tuple[str, ...]
    #: (names, steps); NaN where nothing was saved.
    values: NDArray[np.float64]
    saved: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.steps)

    def part(self, steps: Sequence[int]) -> ScalarColumns | None:
        """Return the columns of these steps; None if they are not consecutive rows."""
        first = int(np.searchsorted(self.steps, steps[0])) if len(steps) else 0
        rows = slice(first, first + len(steps))
        if not np.array_equal(self.steps[rows], np.asarray(steps, np.int64)):
            return None
        return ScalarColumns(
            self.steps[rows],
            self.modes[rows],
            self.mode_steps[rows],
            self.names,
            self.values[:, rows],
            self.saved[:, rows],
        )

    def by_mode(self) -> Iterator[tuple[int, ModeKeys, NDArray[np.intp]]]:
        """Yield the rows of each name and mode."""
        for name, saved in enumerate(self.saved):
            for mode in np.unique(self.modes[saved]).tolist():
                yield name, ModeKeys(mode), np.flatnonzero(saved & (self.modes == mode))

    @cached_property
    def _patterns(self) -> tuple[NDArray[np.intp], list[tuple[int, ...]]]:
        """The number of the set of scalars of each step, and the sets as columns."""
        bits = np.packbits(self.saved, axis=0)
        words = np.zeros((-(-len(bits) // 8) * 8, len(self.steps)), np.uint8)
        words[: len(bits)] = bits
        firsts, of = np.zeros(min(1, len(self.steps)), np.intp), np.zeros(len(self.steps), np.intp)
        for word in np.ascontiguousarray(words.T).view(np.uint64).T:
            _, here = np.unique(word, return_inverse=True)
            _, firsts, of = np.unique(of * len(here) + here, return_index=True, return_inverse=True)
        return of, [tuple(np.flatnonzero(self.saved[:, row]).tolist()) for row in firsts.tolist()]

    def series(self, chosen: Callable[[dict[str, int], ModeKeys], Iterable[tuple[K, int]]]) -> dict[K, Series]:
        """Return the scalars by keys.

        ``chosen`` returns the keys of the scalars of a step with their columns, from the columns by name and the mode.
        """
        pattern_of, patterns = self._patterns
        kinds, kind_of = np.unique(pattern_of * _MODES + self.modes, return_inverse=True)
        parts: dict[K, list[tuple[NDArray[np.intp], int]]] = {}
        for number, kind in enumerate(kinds.tolist()):
            pattern, mode = divmod(kind, _MODES)
            rows = np.flatnonzero(kind_of == number)
            for key, column in chosen({self.names[name]: name for name in patterns[pattern]}, ModeKeys(mode)):
                parts.setdefault(key, []).append((rows, column))
        series = {}
        for key, sources in parts.items():
            rows = np.concatenate([rows for rows, _ in sources])
            values = np.concatenate([self.values[column, rows] for rows, column in sources])
            if len(sources) > 1:
                order = np.argsort(rows, kind="stable")
                rows, values = rows[order], values[order]
            series[key] = Series(rows, values)
        return series

    def pattern(self, row: int) -> tuple[int, ...]:
        """Return the columns of the scalars of a step."""
        pattern_of, patterns = self._patterns
        return patterns[int(pattern_of[row])]

    def mode(self, row: int) -> ModeKeys:
        """Return the mode of a step."""
        return ModeKeys(int(self.modes[row]))


def columns_of_steps(
    steps: Sequence[int], scalars: Sequence[dict[str, float]], modes: Sequence[ModeKeys], mode_steps: Sequence[int]
) -> ScalarColumns:
    """Return columns from the scalars of each step by name."""
    names = sorted({name for row in scalars for name in row}, key=natural)
    number_of = {name: number for number, name in enumerate(names)}
    values = np.full((len(names), len(steps)), np.nan)
    saved = np.zeros((len(names), len(steps)), np.bool_)
    for row, by_name in enumerate(scalars):
        for name, value in by_name.items():
            values[number_of[name], row] = value
            saved[number_of[name], row] = True
    return ScalarColumns(
        np.array(steps, np.int64),
        np.array([mode.value for mode in modes], np.uint8),
        np.array(mode_steps, np.int64),
        tuple(names),
        values,
        saved,
    )


def columns_of_log(trial: Trial, selector: Selector) -> ScalarColumns | None:
    """Return the selected scalars of a log as columns.

    None if the run is no log, if a selected tensor is not a scalar, or if several workers wrote one at the same step.
    """
    log = trial.reader.log
    if log is None or selector.everything or selector.modules is not None:
        return None
    names = sorted(selector.names(trial), key=natural)
    if not names or any(trial.reader.kind_of(name) != "scalar" for name in names):
        return None
    steps = np.array(trial.steps(), dtype=np.int64)
    if len(steps) * len(names) > MOST_CELLS:
        return None
    modes = np.zeros(len(steps), np.uint8)
    mode_steps = np.zeros(len(steps), np.int64)
    values = np.full((len(names), len(steps)), np.nan)
    saved = np.zeros((len(names), len(steps)), np.bool_)
    mode_of = np.array([mode for _, mode in log.directories()], np.uint8)
    for number, name in enumerate(names):
        own_steps, own_mode_steps, _, own_values, lanes = log.course(name)
        rows = np.searchsorted(steps, own_steps)
        rows = rows[rows < len(steps)]
        if not np.array_equal(steps[rows], own_steps):  # the run has grown
            return None
        saved[number, rows] = True
        if np.count_nonzero(saved[number]) != len(rows):  # several workers
            return None
        values[number, rows], modes[rows], mode_steps[rows] = own_values, mode_of[lanes], own_mode_steps
    for row in np.flatnonzero(modes == 0).tolist():  # steps with other tensors only
        modes[row], mode_steps[row] = trial.reader.index.mode_of(int(steps[row])) or (ModeKeys.GLOBAL.value, steps[row])
    return ScalarColumns(steps, modes, mode_steps, tuple(names), values, saved)
