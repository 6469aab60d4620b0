"""Losses of a whole log as columns, from which rules judge many steps at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
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

__all__ = ["LossColumns", "Series", "loss_columns"]

K = TypeVar("K", bound=Hashable)

#: Cells of the columns above which steps are judged one by one.
MOST_CELLS = 20_000_000
#: Larger than the numbers of all modes.
_MODES = 16


class Series(NamedTuple):
    """Losses of one kind, in the order of steps."""

    #: Rows of the steps, ascending.
    rows: NDArray[np.intp]
    values: NDArray[np.float64]

    def latest(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return, for each row, the index of the latest loss up to it, or -1."""
        return self.rows.searchsorted(rows, "right") - 1


@dataclass(frozen=True, eq=False)
class LossColumns:
    """The selected scalars of a run at every step: one row of arrays per name."""

    steps: NDArray[np.int64]
    modes: NDArray[np.uint8]
    mode_steps: NDArray[np.int64]
    #: In the order of a step's table.
    names: tuple[str, ...]
    #: (names, steps); NaN where nothing was saved.
    values: NDArray[np.float64]
    saved: NDArray[np.bool_]

    def row_of(self, steps: Sequence[int]) -> int | None:
        """Return the row of the first of these steps; None if rows are missing."""
        if not len(steps):
            return None
        first = int(np.searchsorted(self.steps, steps[0]))
        here = self.steps[first : first + len(steps)]
        return first if len(here) == len(steps) and np.array_equal(here, np.asarray(steps, np.int64)) else None

    @cached_property
    def patterns(self) -> tuple[NDArray[np.intp], list[tuple[int, ...]]]:
        """For each step the number of its set of losses, and the sets as indices of names."""
        bits = np.packbits(self.saved, axis=0)
        words = np.zeros((-(-len(bits) // 8) * 8, len(self.steps)), np.uint8)
        words[: len(bits)] = bits
        firsts, of = np.zeros(1, np.intp), np.zeros(len(self.steps), np.intp)
        for word in np.ascontiguousarray(words.T).view(np.uint64).T:
            _, here = np.unique(word, return_inverse=True)
            _, firsts, of = np.unique(of * len(here) + here, return_index=True, return_inverse=True)
        return of, [tuple(np.flatnonzero(self.saved[:, row]).tolist()) for row in firsts.tolist()]

    def series(
        self, end: int, chosen: Callable[[dict[str, int], ModeKeys], Iterable[tuple[K, int]]]
    ) -> dict[K, Series]:
        """Return the losses before a row by keys.

        ``chosen`` returns the keys of the losses of a step with their columns, from the columns by name and the mode.
        """
        pattern_of, patterns = self.patterns
        kinds, kind_of = np.unique(pattern_of[:end] * _MODES + self.modes[:end], return_inverse=True)
        parts: dict[K, list[tuple[NDArray[np.intp], int]]] = {}
        for number, kind in enumerate(kinds.tolist()):
            pattern, mode = divmod(kind, _MODES)
            rows = np.flatnonzero(kind_of == number)
            for key, column in chosen({self.names[name]: name for name in patterns[pattern]}, ModeKeys(mode)):
                parts.setdefault(key, []).append((rows, column))
        found = {}
        for key, sources in parts.items():
            rows = np.concatenate([rows for rows, _ in sources])
            values = np.concatenate([self.values[column, rows] for rows, column in sources])
            if len(sources) > 1:
                order = np.argsort(rows, kind="stable")
                rows, values = rows[order], values[order]
            found[key] = Series(rows, values)
        return found

    def mode(self, row: int) -> ModeKeys:
        """Return the mode of a step."""
        return ModeKeys(int(self.modes[row]))


def loss_columns(trial: Trial, selector: Selector) -> LossColumns | None:
    """Return the selected scalars of a log as columns.

    None if the run is no log, if a selected tensor is not a scalar, or if several workers wrote one at the same step.
    """
    run = trial._run
    log = getattr(run, "log", None)
    if log is None or selector.everything or selector.modules is not None:
        return None
    names = sorted(selector.names(trial), key=natural)
    if not names or any(run.kind_of(name) != "scalar" for name in names):
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
        at = np.searchsorted(steps, own_steps)
        at = at[at < len(steps)]
        if not np.array_equal(steps[at], own_steps):  # the run has grown
            return None
        saved[number, at] = True
        if np.count_nonzero(saved[number]) != len(at):  # several workers
            return None
        values[number, at], modes[at], mode_steps[at] = own_values, mode_of[lanes], own_mode_steps
    for row in np.flatnonzero(modes == 0).tolist():  # steps with other tensors only
        modes[row], mode_steps[row] = run.index.mode_of(int(steps[row])) or (ModeKeys.GLOBAL.value, steps[row])
    return LossColumns(steps, modes, mode_steps, tuple(names), values, saved)
