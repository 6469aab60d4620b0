"""Overtraining."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import LOSSES_AND_METRICS, loss_need, losses_at, train_and_validation
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need


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
        state = self.measurements.fold(
            ("overtraining", self.selector, self.delta), step, _State(), self._add, self.needs()
        )
        if not state.judged:
            raise NothingToJudge("no loss at this step")
        for name in state.judged:
            series = [
                ("training", state.training.get(name), self.patience_train),
                ("validation", state.validation.get(name), self.patience_validation),
            ]
            present = [(what, one, patience) for what, one, patience in series if one is not None]
            if all(one.since >= patience for _, one, patience in present):
                text = " and ".join(
                    f"{what} loss not below {number(one.best)} for {one.since} saved steps" for what, one, _ in present
                )
                _, one, patience = present[-1]
                self.blame(name, step, one.since, patience, f"{text} (by at least {number(self.delta)})")

    def _add(self, state: _State, step: int) -> _State:
        losses = losses_at(self.measurements, self.selector, step)
        mode = self.measurements.mode(step)
        training, validation = train_and_validation(losses)
        if not validation:
            training, validation = ({}, losses) if mode == ModeKeys.EVAL else (losses, {})
            if mode == ModeKeys.PREDICT:
                training = {}
        return _State(
            {
                **state.training,
                **{n: state.training.get(n, _Series()).then(x, self.delta) for n, x in training.items()},
            },
            {
                **state.validation,
                **{n: state.validation.get(n, _Series()).then(x, self.delta) for n, x in validation.items()},
            },
            tuple(dict.fromkeys((*training, *validation))),
        )
