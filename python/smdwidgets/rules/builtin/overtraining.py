"""Overtraining."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, no_tensor_message, regex_parameter
from smdwidgets.rules.findings import Finding, number
from smdwidgets.rules.loss_columns import LossColumns, Series
from smdwidgets.rules.losses import LOSSES_AND_METRICS, loss_need, losses_at, train_and_validation
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need
from smdwidgets.rules.verdicts import Outcome, Verdicts

V = TypeVar("V")


@dataclass(frozen=True)
class _Series:
    """Best value of a loss so far, and saved steps since the last improvement."""

    best: float = math.inf
    since: int = 0

    def then(self, loss: float, delta: float) -> _Series:
        return _Series(loss, 0) if loss <= self.best - delta else _Series(self.best, self.since + 1)


@dataclass(frozen=True)
class _State:
    training: dict[str, _Series] = field(default_factory=dict)
    validation: dict[str, _Series] = field(default_factory=dict)
    #: Losses saved at the last folded step.
    judged: tuple[str, ...] = ()


class _Courses:
    """A :class:`_Series` after each of the values of a loss."""

    def __init__(self, series: Series, delta: float) -> None:
        self._series = series
        self._values = values = series.values
        lowest = np.minimum.accumulate(np.where(np.isnan(values), math.inf, values))
        best, improved = math.inf, []
        for at in np.flatnonzero(values == lowest).tolist():  # others cannot improve
            if values[at] <= best - delta:
                best = float(values[at])
                improved.append(at)
        numbers = np.arange(len(values))
        latest = np.full(len(values), -1)
        latest[improved] = improved
        #: Index of the best value so far; -1 before the first.
        self._best_at = np.maximum.accumulate(latest)
        self._since = numbers - self._best_at

    def since(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the number of values since the best one; -1 before the first value."""
        at = self._series.latest(rows)
        return np.where(at < 0, -1, self._since[at])

    def at(self, row: int) -> _Series | None:
        at = int(self._series.rows.searchsorted(row, "right")) - 1
        if at < 0:
            return None
        best = int(self._best_at[at])
        return _Series(math.inf if best < 0 else float(self._values[best]), int(self._since[at]))


def _split(losses: Mapping[str, V], mode: ModeKeys) -> tuple[dict[str, V], dict[str, V]]:
    """Split the losses of a step into training and validation, by name or mode."""
    training, validation = train_and_validation(losses)
    if not validation:
        training, validation = ({}, dict(losses)) if mode == ModeKeys.EVAL else (dict(losses), {})
        if mode == ModeKeys.PREDICT:
            training = {}
    return training, validation


class Overtraining(BuiltinRule):
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

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        self.required_table(loss_need(self.selector), step)
        state = self.measurements.fold(self._fold_key, step, _State(), self._add, self.needs())
        if not state.judged:
            raise NothingToJudge("no loss at this step")
        for name in state.judged:
            self._judge_loss(name, step, state.training.get(name), state.validation.get(name))

    @property
    def _fold_key(self) -> tuple[Hashable, ...]:
        return "overtraining", self.selector, self.delta

    def _judge_loss(self, name: str, step: int, training: _Series | None, validation: _Series | None) -> None:
        series = [("training", training, self.patience_train), ("validation", validation, self.patience_validation)]
        present = [(what, one, patience) for what, one, patience in series if one is not None]
        if all(one.since >= patience for _, one, patience in present):
            text = " and ".join(
                f"{what} loss not below {number(one.best)} for {one.since} saved steps" for what, one, _ in present
            )
            _, one, patience = present[-1]
            self.blame(name, step, one.since, patience, f"{text} (by at least {number(self.delta)})")

    def _add(self, state: _State, step: int) -> _State:
        losses = losses_at(self.measurements, self.selector, step)
        training, validation = _split(losses, self.measurements.mode(step))
        return _State(
            {
                **state.training,
                **{n: state.training.get(n, _Series()).then(x, self.delta) for n, x in training.items()},
            },
            {
                **state.validation,
                **{n: state.validation.get(n, _Series()).then(x, self.delta) for n, x in validation.items()},
            },
            _names(training, validation),
        )

    @property
    def columns_selector(self) -> Selector:
        return self.selector

    def judge_columns(self, columns: LossColumns, first: int, end: int) -> Verdicts | None:
        series = columns.series(end, _parts)
        courses = {key: _Courses(one, self.delta) for key, one in series.items()}
        training, validation = (
            {name: one for (part, name), one in courses.items() if part == which} for which in (0, 1)
        )
        pattern_of, patterns = columns.patterns
        counts = np.zeros(end, np.int64)
        skipped = np.ones(end, np.bool_)
        for name in _names(training, validation):
            rows = np.zeros(end, np.bool_)
            for part in (0, 1):
                if (part, name) in series:
                    rows[series[part, name].rows] = True
            judged = np.flatnonzero(rows)
            late = np.ones(len(judged), np.bool_)
            for known, patience in ((training, self.patience_train), (validation, self.patience_validation)):
                if name in known:
                    since = known[name].since(judged)
                    late &= (since < 0) | (since >= patience)
            skipped[judged] = False
            counts[judged[late]] += 1
        outcomes = np.where(skipped, Outcome.SKIPPED, np.where(counts > 0, Outcome.FIRED, Outcome.PASSED))

        def judged_at(row: int) -> tuple[str, ...]:
            return names_of(int(pattern_of[row]), columns.mode(row))

        @cache
        def names_of(pattern: int, mode: ModeKeys) -> tuple[str, ...]:
            return _names(*_split({columns.names[number]: number for number in patterns[pattern]}, mode))

        def state(known: dict[str, _Courses], row: int) -> dict[str, _Series]:
            return {name: one for name, course in known.items() if (one := course.at(row)) is not None}

        done = _State(state(training, end - 1), state(validation, end - 1), judged_at(end - 1))
        self.measurements.continue_fold(self._fold_key, int(columns.steps[end - 1]), done)

        def findings(row: int) -> list[Finding]:
            self.findings = []
            row += first
            for name in judged_at(row) if counts[row] else ():
                series = (known[name].at(row) if name in known else None for known in (training, validation))
                self._judge_loss(name, int(columns.steps[row]), *series)
            return self.findings

        def reason(row: int) -> str:
            saved = columns.saved[:, first + row].any()
            return "no loss at this step" if saved else no_tensor_message(self.selector)

        return Verdicts(outcomes[first:end].astype(np.uint8), counts[first:end], reason, findings)


def _parts(losses: Mapping[str, int], mode: ModeKeys) -> Iterator[tuple[tuple[int, str], int]]:
    """Yield the columns of a step's training (0) and validation (1) losses."""
    for part, found in enumerate(_split(losses, mode)):
        for name, column in found.items():
            yield (part, name), column


def _names(*parts: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in parts for name in part))
