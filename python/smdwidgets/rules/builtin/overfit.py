"""Overfit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, no_tensor_message, regex_parameter
from smdwidgets.rules.findings import Finding, number
from smdwidgets.rules.loss_columns import LossColumns
from smdwidgets.rules.losses import LOSSES_AND_METRICS, loss_need, losses_at
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.phases import Pairs, Phases, phases_of
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need
from smdwidgets.rules.verdicts import Outcome, Verdicts

_NO_PAIR = "no training loss and validation loss to compare at this step"


@dataclass(frozen=True)
class _State:
    """Phases of training and validation, and ratios so far."""

    phases: Phases = field(default_factory=Phases)
    #: For each loss: (ratio, training, validation) at the last folded step, and the number of consecutive steps above the limit.
    ratios: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    too_high: dict[str, int] = field(default_factory=dict)


class _Course(NamedTuple):
    """Ratios of one loss at the rows where it is judged."""

    rows: NDArray[np.intp]
    ratio: NDArray[np.float64]
    training: NDArray[np.float64]
    validation: NDArray[np.float64]
    #: The number of consecutive ratios above the limit.
    too_high: NDArray[np.intp]

    def at(self, row: int) -> tuple[int, tuple[float, float, float]] | None:
        at = int(self.rows.searchsorted(row))
        if at == len(self.rows) or self.rows[at] != row:
            return None
        return int(self.too_high[at]), (float(self.ratio[at]), float(self.training[at]), float(self.validation[at]))


class Overfit(BuiltinRule):
    """Detect a validation loss well above the training loss.

    Fires when `(validation - training) / training` of any loss is above `ratio_threshold` at `patience` consecutive
    judged steps.

    Training and validation are distinguished in one of two ways:

    - By mode: each saved EVAL step is judged. The validation loss is the mean over the current phase of EVAL steps so
      far, the training loss is the mean over the preceding phase of TRAIN steps.
    - By name: `train-rmse` and `validation-rmse` (XGBoost), `loss` and `val_loss` (Keras), `loss/train` and
      `loss/test`. If a step has a validation loss without its training loss, the training loss is the mean over the
      steps since the previous validation.

    A training loss that is NaN, zero or negative has no ratio and is not judged. Steps before `start_step` (a global
    step) are not judged.

    Without `tensor_regex`, the tensors of the collection `losses` are judged, and those of `metrics` whose names are
    names of losses, such as `val_loss` or `train-rmse`. Learning rates, accuracies and other metrics are not.

    With the default parameters, the rule fires on most healthy runs, because a validation loss that is a few percent
    above the training loss is normal. `diagnose` reports overfitting when the validation loss rises.

    What to do: use more data or augmentation, regularisation, dropout, early stopping or a smaller model.
    """

    tensor_regex = regex_parameter()
    start_step = Integer(0, "First global step to judge.", minimum=0)
    patience = Integer(1, "Number of consecutive judged steps with a high ratio before the rule fires.", minimum=1)
    ratio_threshold = Real(0.1, "Maximum ratio.")

    @property
    def selector(self) -> Selector:
        return Selector((), self.tensor_regex) if self.tensor_regex else LOSSES_AND_METRICS

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    @property
    def _fold_key(self) -> tuple[Hashable, ...]:
        return "overfit", self.selector, self.start_step, self.ratio_threshold

    @property
    def columns_selector(self) -> Selector:
        return self.selector

    def judge_columns(self, columns: LossColumns, first: int, end: int) -> Verdicts | None:
        phases, pairs_of = phases_of(columns, end)
        counts = np.zeros(end, np.int64)
        judged = np.zeros(end, np.bool_)
        courses = {name: self._course(columns, pairs) for name, pairs in sorted(pairs_of.items())}
        for course in courses.values():
            judged[course.rows] = True
            counts[course.rows[course.too_high >= self.patience]] += 1
        outcomes = np.where(judged, np.where(counts > 0, Outcome.FIRED, Outcome.PASSED), Outcome.SKIPPED)

        def ratios(row: int) -> dict[str, tuple[int, tuple[float, float, float]]]:
            return {name: found for name, course in courses.items() if (found := course.at(row)) is not None}

        last = ratios(end - 1)
        too_high = {name: int(course.too_high[-1]) for name, course in courses.items() if len(course.rows)}
        state = _State(phases, {name: ratio for name, (_, ratio) in last.items()}, too_high)
        self.measurements.continue_fold(self._fold_key, int(columns.steps[end - 1]), state)

        def findings(row: int) -> list[Finding]:
            self.findings = []
            if counts[first + row]:
                found = ratios(first + row)
                too_high = {name: times for name, (times, _) in found.items()}
                here = _State(ratios={name: ratio for name, (_, ratio) in found.items()}, too_high=too_high)
                self._judge_state(here, int(columns.steps[first + row]))
            return self.findings

        def reason(row: int) -> str:
            return _NO_PAIR if columns.saved[:, first + row].any() else no_tensor_message(self.selector)

        return Verdicts(outcomes[first:end].astype(np.uint8), counts[first:end], reason, findings)

    def _course(self, columns: LossColumns, pairs: Pairs) -> _Course:
        """Return the ratios of a loss, and how often each was too high."""
        kept = (columns.steps[pairs.rows] >= self.start_step) & (pairs.training > 0)
        rows, low, high = pairs.rows[kept], pairs.training[kept], pairs.validation[kept]
        with np.errstate(all="ignore"):
            ratio = (high - low) / low
        numbers = np.arange(len(rows))
        fine = np.maximum.accumulate(np.where(ratio > self.ratio_threshold, -1, numbers))
        return _Course(rows, ratio, low, high, numbers - fine)

    def judge(self, step: int) -> None:
        self.required_table(loss_need(self.selector), step)
        state = self.measurements.fold(self._fold_key, step, _State(), self._add, self.needs())
        if not state.ratios:
            raise NothingToJudge(_NO_PAIR)
        self._judge_state(state, step)

    def _judge_state(self, state: _State, step: int) -> None:
        for name, (ratio, training, validation) in state.ratios.items():
            if state.too_high.get(name, 0) >= self.patience:
                message = (
                    f"validation {number(validation)} is {number(100 * ratio)} % above training {number(training)}, "
                    f"limit {number(100 * self.ratio_threshold)} % ({state.too_high[name]} consecutive judged steps)"
                )
                self.blame(name, step, ratio, self.ratio_threshold, message)

    def _add(self, state: _State, step: int) -> _State:
        return self._then(state, step, losses_at(self.measurements, self.selector, step), self.measurements.mode(step))

    def _then(self, state: _State, step: int, losses: dict[str, float], mode: ModeKeys) -> _State:
        if not losses:
            return replace(state, ratios={})
        phases, pairs = state.phases.then(losses, mode)
        state = replace(state, phases=phases)
        if step < self.start_step:
            return replace(state, ratios={})
        ratios = {name: ((high - low) / low, low, high) for name, (low, high) in sorted(pairs.items()) if low > 0}
        counted = {
            name: state.too_high.get(name, 0) + 1 if ratio > self.ratio_threshold else 0
            for name, (ratio, _, _) in ratios.items()
        }
        return replace(state, ratios=ratios, too_high={**state.too_high, **counted})
