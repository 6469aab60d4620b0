"""Pair training with validation losses over the steps between validations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.loss_columns import LossColumns, Series
from smdwidgets.rules.losses import train_and_validation

__all__ = ["Pairs", "Phases", "phases_of"]

V = TypeVar("V")

#: The sum of losses and their number, by name.
Means = dict[str, tuple[float, int]]


@dataclass(frozen=True)
class Phases:
    """Losses of the current training and validation phases."""

    training: Means = field(default_factory=dict)
    validation: Means = field(default_factory=dict)
    last_mode: ModeKeys | None = None
    #: Training losses identified by name since the previous validation.
    named: Means = field(default_factory=dict)

    def then(self, losses: dict[str, float], mode: ModeKeys) -> tuple[Phases, dict[str, tuple[float, float]]]:
        """Return the phases after a step, and its (training, validation) losses by name."""
        named, own, validation = _by_name(losses)
        usual = {name: _mean(total) for name, total in self.named.items()} | own
        pairs = {name: (usual[name], validation[name]) for name in usual.keys() & validation.keys()}
        since = {name: total for name, total in self.named.items() if name not in validation}
        state = replace(self, named=_add(since, named))
        return (state, pairs) if pairs else state._by_mode(mode, losses)

    def _by_mode(self, mode: ModeKeys, losses: dict[str, float]) -> tuple[Phases, dict[str, tuple[float, float]]]:
        if mode == ModeKeys.TRAIN:
            before = self.training if self.last_mode == ModeKeys.TRAIN else {}
            return replace(self, training=_add(before, losses), last_mode=mode), {}
        if mode == ModeKeys.EVAL:
            before = self.validation if self.last_mode == ModeKeys.EVAL else {}
            state = replace(self, validation=_add(before, losses), last_mode=mode)
            both = state.training.keys() & losses.keys()
            return state, {name: (_mean(state.training[name]), _mean(state.validation[name])) for name in both}
        return self, {}


def _by_name(losses: Mapping[str, V]) -> tuple[dict[str, V], dict[str, V], dict[str, V]]:
    """Return losses of a step: for the mean of training, of training, of validation."""
    training, validation = train_and_validation(losses)
    plain = {} if validation else {name: loss for name, loss in losses.items() if name not in training}
    return plain | training, training, validation


def _add(means: Means, losses: dict[str, float]) -> Means:
    sums = {name: means.get(name, (0.0, 0)) for name in losses}
    return means | {name: (total + losses[name], number + 1) for name, (total, number) in sums.items()}


def _mean(total: tuple[float, int]) -> float:
    return total[0] / total[1]


# ----------------------------------------------------------------------------------------------- many steps at once


class Pairs(NamedTuple):
    """Training and validation losses of one name, at the rows that have both."""

    rows: NDArray[np.intp]
    training: NDArray[np.float64]
    validation: NDArray[np.float64]


class _Sums:
    """Running sums of a loss, which begin again in each phase."""

    def __init__(self, series: Series, phases: NDArray[np.intp]) -> None:
        self._series, self.phases = series, phases
        begins = np.append(True, phases[1:] != phases[:-1])
        numbers = np.arange(len(phases))
        self._numbers = numbers - np.maximum.accumulate(np.where(begins, numbers, 0)) + 1
        self._sums = series.values + 0.0
        if not begins.all():
            # One by one, since the sum of single steps is rounded in this order.
            total, rows = 0.0, zip(series.values.tolist(), begins.tolist(), strict=True)
            sums = [total := (0.0 if begin else total) + loss for loss, begin in rows]
            self._sums = np.array(sums)

    def means(self, rows: NDArray[np.intp], phases: NDArray[np.intp]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return whether each row has a mean of the given phase, and the means."""
        at = self._series.latest(rows)
        return (at >= 0) & (self.phases[at] == phases), self._sums[at] / self._numbers[at]

    def total(self) -> tuple[float, int]:
        return float(self._sums[-1]), int(self._numbers[-1])


def phases_of(columns: LossColumns, end: int) -> tuple[Phases, dict[str, Pairs]]:
    """Return the phases after the rows before ``end``, and all pairs by name."""
    named, pairs = _pairs_by_name(columns, end)
    paired = np.zeros(end, np.bool_)
    for found in pairs.values():
        paired[found.rows] = True
    state, more = _pairs_by_mode(columns, end, ~paired)
    for name, found in more.items():
        rows, training, validation = (np.concatenate(both) for both in zip(pairs.get(name, found), found, strict=True))
        rows, at = np.unique(rows, return_index=True)
        pairs[name] = Pairs(rows, training[at], validation[at])
    return replace(state, named=named), pairs


def _pairs_by_name(columns: LossColumns, end: int) -> tuple[Means, dict[str, Pairs]]:
    def chosen(losses: Mapping[str, int], _: ModeKeys) -> Iterator[tuple[tuple[int, str], int]]:
        for part, found in enumerate(_by_name(losses)):
            for name, column in found.items():
                yield (part, name), column

    series = columns.series(end, chosen)
    named, own, validation = ({name: one for (at, name), one in series.items() if at == part} for part in range(3))
    nothing = Series(np.empty(0, np.intp), np.empty(0))
    left: Means = {}
    pairs: dict[str, Pairs] = {}
    for name, training in named.items():
        validated = validation.get(name, nothing)
        # A phase begins with a validation: it counts the step's own training loss, not its mean.
        sums = _Sums(training, np.searchsorted(validated.rows, training.rows, "right"))
        if sums.phases[-1] == len(validated.rows):
            left[name] = sums.total()
        there, usual = sums.means(validated.rows - 1, np.arange(len(validated.rows)))
        _, here, other = np.intersect1d(validated.rows, own.get(name, nothing).rows, True, True)
        if len(here):
            there[here], usual[here] = True, own[name].values[other]
        if there.any():
            pairs[name] = Pairs(validated.rows[there], usual[there], validated.values[there])
    return left, pairs


def _pairs_by_mode(columns: LossColumns, end: int, rows: NDArray[np.bool_]) -> tuple[Phases, dict[str, Pairs]]:
    modes = columns.modes[:end]
    train, evaluation = ModeKeys.TRAIN.value, ModeKeys.EVAL.value
    taken = np.flatnonzero(rows & columns.saved[:, :end].any(0) & ((modes == train) | (modes == evaluation)))
    if not len(taken):
        return Phases(), {}
    phases = np.full(end, -1)
    phases[taken] = np.cumsum(np.append(True, modes[taken[1:]] != modes[taken[:-1]]))
    last = int(phases[taken[-1]])
    left: dict[int, Means] = {train: {}, evaluation: {}}
    pairs: dict[str, Pairs] = {}
    for number, name in enumerate(columns.names):
        sums: dict[int, _Sums] = {}
        for mode in (train, evaluation):
            own = taken[columns.saved[number, taken] & (modes[taken] == mode)]
            if len(own):
                sums[mode] = _Sums(Series(own, columns.values[number, own]), phases[own])
                if sums[mode].phases[-1] >= last - 1:
                    left[mode][name] = sums[mode].total()
        if len(sums) == 2:
            there, usual = sums[train].means(own, phases[own] - 1)
            _, validation = sums[evaluation].means(own, phases[own])
            if there.any():
                pairs[name] = Pairs(own[there], usual[there], validation[there])
    return Phases(left[train], left[evaluation], ModeKeys(int(modes[taken[-1]]))), pairs
