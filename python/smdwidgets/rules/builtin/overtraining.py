"""Overtraining."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import loss_need, losses_at, train_and_validation
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need


@dataclass(frozen=True)
class _Series:
    """A loss's optimum so far, and how many saved steps have passed without a better one."""

    best: float = math.inf
    since: int = 0

    def then(self, loss: float, delta: float) -> _Series:
        return _Series(loss, 0) if loss <= self.best - delta else _Series(self.best, self.since + 1)


@dataclass(frozen=True)
class _State:
    training: dict[str, _Series] = field(default_factory=dict)
    validation: dict[str, _Series] = field(default_factory=dict)
    #: The losses that the step last folded told something about.
    judged: tuple[str, ...] = ()


class Overtraining(BuiltinRule):
    """Training goes on although neither training nor validation loss gets any better.

    Fires when a loss's training series has not improved for `patience_train` saved training steps and its validation series has
    not improved for `patience_validation` saved validation steps. Where the run has only one of the two, that one decides. An
    improvement is a new optimum by at least `delta` (absolute). NaN is no improvement.

    Training and validation are told apart by mode (TRAIN, EVAL; steps of a run without modes are training), or by names as in
    Overfit.

    What to do: stop earlier; keep the weights of the optimum.
    """

    patience_train = Integer(5, "Saved training steps without a better training loss.", minimum=1)
    patience_validation = Integer(10, "Saved validation steps without a better validation loss.", minimum=1)
    delta = Real(0.01, "Smallest change that counts as better.", minimum=0.0)

    selector = Selector(("losses", "metrics"))

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        self.look(loss_need(self.selector), step)
        state = self.measurements.fold(("overtraining", self.delta), step, _State(), self._add, self.needs())
        if not state.judged:
            raise NothingToJudge("no loss at this step")
        for name in state.judged:
            series = [
                ("training", state.training.get(name), self.patience_train),
                ("validation", state.validation.get(name), self.patience_validation),
            ]
            there = [(what, one, patience) for what, one, patience in series if one is not None]
            if all(one.since >= patience for _, one, patience in there):
                told = " and ".join(
                    f"{what} loss not below {number(one.best)} for {one.since} saved steps" for what, one, _ in there
                )
                _, one, patience = there[-1]
                self.blame(name, step, one.since, patience, f"{told} (by {number(self.delta)} or more)")

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
