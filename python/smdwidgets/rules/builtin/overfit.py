"""Overfit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import LOSSES_AND_METRICS, loss_need, losses_at, train_and_validation
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need

Means = dict[str, tuple[float, int]]


@dataclass(frozen=True)
class _State:
    """Losses of the current training and validation phases, and ratios so far."""

    training: Means = field(default_factory=dict)
    validation: Means = field(default_factory=dict)
    last_mode: ModeKeys | None = None
    #: Training losses identified by name since the previous validation.
    named: Means = field(default_factory=dict)
    #: For each loss: (ratio, training, validation) at the last folded step, and the number of consecutive steps above the limit.
    ratios: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    too_high: dict[str, int] = field(default_factory=dict)


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

    def judge(self, step: int) -> None:
        self.required_table(loss_need(self.selector), step)
        key = ("overfit", self.selector, self.start_step, self.ratio_threshold)
        state = self.measurements.fold(key, step, _State(), self._add, self.needs())
        if not state.ratios:
            raise NothingToJudge("no training loss and validation loss to compare at this step")
        for name, (ratio, training, validation) in state.ratios.items():
            if state.too_high.get(name, 0) >= self.patience:
                message = (
                    f"validation {number(validation)} is {number(100 * ratio)} % above training {number(training)}, "
                    f"limit {number(100 * self.ratio_threshold)} % ({state.too_high[name]} consecutive judged steps)"
                )
                self.blame(name, step, ratio, self.ratio_threshold, message)

    def _add(self, state: _State, step: int) -> _State:
        measurements = self.measurements
        losses = losses_at(measurements, self.selector, step)
        if not losses:
            return replace(state, ratios={})
        mode = measurements.mode(step)
        training, validation = train_and_validation(losses)
        usual = {name: _mean(total) for name, total in state.named.items()} | training
        pairs = {name: (usual[name], validation[name]) for name in usual.keys() & validation.keys()}
        since = {name: total for name, total in state.named.items() if name not in validation}
        plain = {} if validation else {name: loss for name, loss in losses.items() if name not in training}
        state = replace(state, named=_add_losses(since, {**plain, **training}))
        if not pairs:
            state, pairs = self._by_mode(state, mode, losses)
        if step < self.start_step:
            return replace(state, ratios={})
        ratios = {name: ((high - low) / low, low, high) for name, (low, high) in sorted(pairs.items()) if low > 0}
        counted = {
            name: state.too_high.get(name, 0) + 1 if ratio > self.ratio_threshold else 0
            for name, (ratio, _, _) in ratios.items()
        }
        return replace(state, ratios=ratios, too_high={**state.too_high, **counted})

    @staticmethod
    def _by_mode(
        state: _State, mode: ModeKeys, losses: dict[str, float]
    ) -> tuple[_State, dict[str, tuple[float, float]]]:
        if mode == ModeKeys.TRAIN:
            before = state.training if state.last_mode == ModeKeys.TRAIN else {}
            return replace(state, training=_add_losses(before, losses), last_mode=mode), {}
        if mode == ModeKeys.EVAL:
            before = state.validation if state.last_mode == ModeKeys.EVAL else {}
            state = replace(state, validation=_add_losses(before, losses), last_mode=mode)
            both = state.training.keys() & losses.keys()
            return state, {name: (_mean(state.training[name]), _mean(state.validation[name])) for name in both}
        return state, {}


def _add_losses(means: Means, losses: dict[str, float]) -> Means:
    new = {
        name: (means.get(name, (0.0, 0))[0] + loss, means.get(name, (0.0, 0))[1] + 1) for name, loss in losses.items()
    }
    return {**means, **new}


def _mean(total: tuple[float, int]) -> float:
    return total[0] / total[1]
