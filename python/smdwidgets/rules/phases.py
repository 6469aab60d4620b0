"""Pair training with validation losses over the steps between validations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.naming.scalars import by_role
from smdwidgets.rules.scalar_columns import ScalarColumns, Series

__all__ = ["Pairs", "Phases"]

_NOTHING = Series(np.empty(0, np.intp), np.empty(0))
_TRAIN, _EVAL = ModeKeys.TRAIN.value, ModeKeys.EVAL.value


class _Total(NamedTuple):
    """Sum of a loss in a phase, and the number of its values."""

    total: float
    number: int


class Pairs(NamedTuple):
    """Training and validation losses of one name, at the rows that have both."""

    rows: NDArray[np.intp]
    training: NDArray[np.float64]
    validation: NDArray[np.float64]

    def where(self, kept: NDArray[np.bool_]) -> Pairs:
        """Return some of the pairs."""
        return Pairs(self.rows[kept], self.training[kept], self.validation[kept])


class _Sums:
    """Running sums of a loss, which begin again in each phase.

    A sum of earlier steps counts as one more value.
    """

    def __init__(self, series: Series, phases: NDArray[np.intp], before: _Total | None = None, phase: int = 0) -> None:
        rows, values, counts = series.rows, series.values, np.ones(len(series.rows), np.intp)
        if before is not None:
            rows, values = np.append(-1, rows), np.append(before.total, values)
            counts, phases = np.append(before.number, counts), np.append(phase, phases)
        self._rows, self.phases = rows, phases
        begins = np.append(True, phases[1:] != phases[:-1])
        counted = np.cumsum(counts)
        self._counts = counted - np.maximum.accumulate(np.where(begins, counted - counts, 0))
        self._sums = values + 0.0
        if not begins.all():
            # One by one, so that the sum does not depend on the portions.
            total = 0.0
            pairs = zip(values.tolist(), begins.tolist(), strict=True)
            self._sums = np.array([total := (0.0 if begin else total) + loss for loss, begin in pairs])

    def means(self, rows: NDArray[np.intp], phases: NDArray[np.intp]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return whether each row has a mean of the given phase, and the means."""
        index = self._rows.searchsorted(rows, "right") - 1
        return (index >= 0) & (self.phases[index] == phases), self._sums[index] / self._counts[index]

    def total(self) -> _Total:
        return _Total(float(self._sums[-1]), int(self._counts[-1]))


class Phases:
    """Losses of the current phases of training and validation."""

    def __init__(self) -> None:
        #: Training losses identified by name since the previous validation.
        self._named: dict[str, _Total] = {}
        #: Losses of the last phase of TRAIN and of EVAL, and the mode of the last step.
        self._of_mode: dict[int, dict[str, _Total]] = {_TRAIN: {}, _EVAL: {}}
        self._last_mode: int | None = None

    def extend(self, columns: ScalarColumns) -> dict[str, Pairs]:
        """Add steps, and return their pairs by name."""
        pairs = self._pairs_by_name(columns)
        unpaired = np.ones(len(columns), np.bool_)
        for found in pairs.values():
            unpaired[found.rows] = False
        for name, more in self._pairs_by_mode(columns, unpaired).items():
            both = zip(pairs.get(name, more), more, strict=True)
            rows, training, validation = (np.concatenate(columns) for columns in both)
            rows, index = np.unique(rows, return_index=True)
            pairs[name] = Pairs(rows, training[index], validation[index])
        return pairs

    def _pairs_by_name(self, columns: ScalarColumns) -> dict[str, Pairs]:
        series = columns.series(_by_name)
        named, own, validation = (
            {name: one for (kind, name), one in series.items() if kind == part} for part in range(3)
        )
        before, self._named = self._named, {}
        pairs: dict[str, Pairs] = {}
        for name in dict.fromkeys([*before, *named]):
            training, validated = named.get(name, _NOTHING), validation.get(name, _NOTHING)
            # A phase begins with a validation: it counts the step's own training loss, not its mean.
            phases = np.searchsorted(validated.rows, training.rows, "right")
            sums = _Sums(training, phases, before.get(name))
            if sums.phases[-1] == len(validated.rows):
                self._named[name] = sums.total()
            there, usual = sums.means(validated.rows - 1, np.arange(len(validated.rows)))
            _, here, other = np.intersect1d(validated.rows, own.get(name, _NOTHING).rows, True, True)
            if len(here):
                there[here], usual[here] = True, own[name].values[other]
            if there.any():
                pairs[name] = Pairs(validated.rows[there], usual[there], validated.values[there])
        return pairs

    def _pairs_by_mode(self, columns: ScalarColumns, rows: NDArray[np.bool_]) -> dict[str, Pairs]:
        modes = columns.modes
        taken = np.flatnonzero(rows & columns.saved.any(0) & ((modes == _TRAIN) | (modes == _EVAL)))
        if not len(taken):
            return {}
        # The last phase is number 0, the one before it is -1.
        begins = np.append(int(modes[taken[0]]) != self._last_mode, modes[taken[1:]] != modes[taken[:-1]])
        phases = np.zeros(len(columns), np.intp)
        phases[taken] = np.cumsum(begins)
        last = int(phases[taken[-1]])
        phase_of = {mode: 0 if mode == self._last_mode else -1 for mode in (_TRAIN, _EVAL)}
        before, self._of_mode = self._of_mode, {_TRAIN: {}, _EVAL: {}}
        self._last_mode = int(modes[taken[-1]])
        number_of = {name: number for number, name in enumerate(columns.names)}
        pairs: dict[str, Pairs] = {}
        for name in dict.fromkeys([*columns.names, *before[_TRAIN], *before[_EVAL]]):
            sums: dict[int, _Sums] = {}
            own = taken[:0]
            for mode in (_TRAIN, _EVAL):
                own = (
                    taken[columns.saved[number_of[name], taken] & (modes[taken] == mode)]
                    if name in number_of
                    else own[:0]
                )
                series = Series(own, columns.values[number_of[name], own]) if len(own) else _NOTHING
                if len(own) or name in before[mode]:
                    sums[mode] = _Sums(series, phases[own], before[mode].get(name), phase_of[mode])
                    if sums[mode].phases[-1] >= last - 1:
                        self._of_mode[mode][name] = sums[mode].total()
            if len(sums) == 2 and len(own):
                there, usual = sums[_TRAIN].means(own, phases[own] - 1)
                _, validation = sums[_EVAL].means(own, phases[own])
                if there.any():
                    pairs[name] = Pairs(own[there], usual[there], validation[there])
        return pairs


def _by_name(losses: Mapping[str, int], _: ModeKeys) -> Iterator[tuple[tuple[int, str], int]]:
    """Yield the columns for the mean of training, of training, of validation."""
    training, validation = by_role(losses)
    plain = {} if validation else {name: column for name, column in losses.items() if name not in training}
    for part, columns in enumerate((plain | training, training, validation)):
        for name, column in columns.items():
            yield (part, name), column
