"""Overtraining."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.naming.scalars import by_role
from smdwidgets.rules.builtin.base import regex_parameter
from smdwidgets.rules.builtin.sequence import Rows, SequenceRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import LOSSES_AND_METRICS
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.scalar_columns import ScalarColumns, Series
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.verdicts import Verdicts

V = TypeVar("V")

TRAINING, VALIDATION = 0, 1


class _Progress(NamedTuple):
    """Best value of a loss so far, and saved steps since it; -1 before the first."""

    best: float = math.inf
    since: int = -1


class _Course:
    """A :class:`_Progress` before the values of a loss and after each of them."""

    def __init__(self, series: Series, before: _Progress, delta: float) -> None:
        self.rows, values = series
        lowest = np.minimum.accumulate(np.where(np.isnan(values), math.inf, values))
        best, improved = before.best, [0]
        for index in np.flatnonzero(values == lowest).tolist():  # others cannot improve
            if values[index] <= best - delta:
                best = float(values[index])
                improved.append(index + 1)
        numbers = np.arange(len(values) + 1)
        best_at = np.array(improved, np.intp)[np.searchsorted(improved, numbers, "right") - 1]
        self._best = np.append(before.best, values)[best_at]
        self._since = numbers - best_at + np.where(best_at == 0, max(before.since, 0), 0)
        self._since[0] = before.since

    def since(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the number of values since the best one; -1 before the first value."""
        return self._since[self.rows.searchsorted(rows, "right")]

    def progress(self, row: int) -> _Progress:
        """Return the progress up to a row."""
        index = int(self.rows.searchsorted(row, "right"))
        return _Progress(float(self._best[index]), int(self._since[index]))


def _split(losses: Mapping[str, V], mode: ModeKeys) -> tuple[dict[str, V], dict[str, V]]:
    """Split the losses of a step into training and validation, by name or mode."""
    training, validation = by_role(losses)
    if not validation:
        training, validation = ({}, dict(losses)) if mode == ModeKeys.EVAL else (dict(losses), {})
        if mode == ModeKeys.PREDICT:
            training = {}
    return training, validation


def _parts(losses: Mapping[str, int], mode: ModeKeys) -> Iterator[tuple[tuple[int, str], int]]:
    """Yield the columns of a step's training and validation losses."""
    for part, columns in enumerate(_split(losses, mode)):
        for name, column in columns.items():
            yield (part, name), column


class Overtraining(SequenceRule):
    """Detect training that continues although no loss improves.

    Fires when a loss has not improved for `patience_train` saved training steps and for `patience_validation` saved
    validation steps. If the run has only training or only validation losses, only those are checked. A loss improves
    when it falls below its minimum so far by at least `delta` (absolute). NaN is not an improvement.

    Training and validation are distinguished by mode (TRAIN, EVAL; steps without a mode are training), or by name as in
    Overfit.

    Without `tensor_regex`, the tensors of the collection `losses` are judged, and those of `metrics` whose names are
    names of losses, such as `val_loss` or `train-rmse`. Learning rates, accuracies and other metrics are not.

    With the default parameters, the rule fires on most healthy runs, because a loss near its minimum improves by less
    than `delta` in a few steps. `diagnose` compares trends with the noise of the loss.

    What to do: stop earlier and keep the weights of the best step.
    """

    patience_train = Integer(5, "Number of saved training steps without improvement.", minimum=1)
    patience_validation = Integer(10, "Number of saved validation steps without improvement.", minimum=1)
    delta = Real(0.01, "Minimum absolute change that counts as an improvement.", minimum=0.0)

    tensor_regex = regex_parameter()

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex) if self.tensor_regex else LOSSES_AND_METRICS

    def begin(self) -> None:
        self._progress: dict[tuple[int, str], _Progress] = {}

    def judge_columns(self, columns: ScalarColumns, judged: Rows) -> Verdicts:
        series = columns.series(_parts)
        nothing = Series(np.empty(0, np.intp), np.empty(0))
        courses = {
            key: _Course(series.get(key, nothing), self._progress.get(key, _Progress()), self.delta)
            for _, name in series
            for key in ((TRAINING, name), (VALIDATION, name))
        }
        self._progress.update((key, course.progress(len(columns))) for key, course in courses.items())
        counts = np.zeros(len(columns), np.int64)
        has_loss = np.zeros(len(columns), np.bool_)
        for name in {name for _, name in series}:
            both = courses[TRAINING, name], courses[VALIDATION, name]
            rows = np.union1d(both[TRAINING].rows, both[VALIDATION].rows).astype(np.intp)
            late = np.ones(len(rows), np.bool_)
            for course, patience in zip(both, (self.patience_train, self.patience_validation), strict=True):
                since = course.since(rows)
                late &= (since < 0) | (since >= patience)
            has_loss[rows] = True
            counts[rows[late]] += 1

        @cache
        def names_of(pattern: tuple[int, ...], mode: ModeKeys) -> list[str]:
            losses = {columns.names[column]: column for column in pattern}
            return list(dict.fromkeys(name for (_, name), _ in _parts(losses, mode)))

        def blame(row: int) -> None:
            for name in names_of(columns.pattern(row), columns.mode(row)):
                both = courses[TRAINING, name].progress(row), courses[VALIDATION, name].progress(row)
                self._blame(name, int(columns.steps[row]), *both)

        return self.verdicts(columns, counts, has_loss, blame, lambda row: "no loss at this step")

    def _blame(self, name: str, step: int, training: _Progress, validation: _Progress) -> None:
        kinds = (("training", training, self.patience_train), ("validation", validation, self.patience_validation))
        seen = [kind for kind in kinds if kind[1].since >= 0]
        if all(progress.since >= patience for _, progress, patience in seen):
            text = " and ".join(
                f"{kind} loss not below {number(progress.best)} for {progress.since} saved steps"
                for kind, progress, _ in seen
            )
            _, progress, patience = seen[-1]
            self.blame(name, step, progress.since, patience, f"{text} (by at least {number(self.delta)})")
