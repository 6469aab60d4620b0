"""LearningRateSchedule."""

from __future__ import annotations

import math

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule, regex_parameter
from smdwidgets.rules.findings import number, step_text
from smdwidgets.rules.losses import loss_need, losses_at
from smdwidgets.rules.parameters import Choice, OptionalReal, Real
from smdwidgets.rules.tables import Need

#: Relative differences up to this are treated as rounding errors.
ROUNDING = 1e-6


class LearningRateSchedule(SelectingRule):
    """Detect learning rates that are out of range or violate their schedule.

    Judges saved learning rates; save them with `hook.save_scalar("learning_rate", …)`. Fires when a rate is NaN,
    infinite, negative, above `max_rate` or below `min_rate`, or when it rises to more than `max_jump` times the rate of
    the previous saved step. With `shape`, also fires when the rate violates that shape: "constant" never changes,
    "decreasing" never rises, "warmup" never rises after its first fall. Steps of EVAL and PREDICT are not judged.

    What to do: check the order of `scheduler.step()` and `optimizer.step()`, whether a resumed training restores its
    scheduler, and whether the schedule counts steps or epochs.
    """

    sagemaker = False
    needs_selector = False

    tensor_regex = regex_parameter((r"(?i)learning_?rate", r"(?i)(^|[/_.])lr([/_.:\d]|$)"))
    max_rate = Real(10.0, "Rate above which the rule fires.", minimum=0.0)
    min_rate = OptionalReal(None, "Rate below which the rule fires.", minimum=0.0)
    max_jump = Real(
        10.0, "Ratio to the previous rate above which the rule fires. A previous rate of zero is ignored.", minimum=1.0
    )
    shape = Choice(None, "Required shape of the schedule.", choices=("constant", "decreasing", "warmup"))

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        self.required_table(loss_need(self.selector), step)
        mode = self.training_steps_only(step)
        rates = losses_at(self.measurements, self.selector, step)
        if not rates:
            raise NothingToJudge("no learning rate at this step is a scalar")
        for name, rate in rates.items():
            self._rate(name, step, rate)
            before = self._before(name, step, mode)
            if before is not None and math.isfinite(rate):
                self._change(name, step, rate, *before, mode)

    def _rate(self, name: str, step: int, rate: float) -> None:
        if not math.isfinite(rate) or rate < 0:
            self.blame(name, step, rate, 0.0, f"the learning rate is {number(rate)}")
        elif rate > self.max_rate:
            self.blame(
                name, step, rate, self.max_rate, f"the learning rate {number(rate)} is above {number(self.max_rate)}"
            )
        elif self.min_rate is not None and rate < self.min_rate:
            self.blame(
                name, step, rate, self.min_rate, f"the learning rate {number(rate)} is below {number(self.min_rate)}"
            )

    def _change(self, name: str, step: int, rate: float, old: float, before: int, mode: ModeKeys) -> None:
        change = f"from {number(old)} at {step_text(self.base_trial, before)} to {number(rate)}"
        if old > 0 and rate > self.max_jump * old:
            self.blame(
                name, step, rate / old, self.max_jump, f"the learning rate jumps {change}: ratio {number(rate / old)}"
            )
            return
        rises, falls = rate > old * (1 + ROUNDING), rate < old * (1 - ROUNDING)
        if self.shape == "constant" and (rises or falls):
            self.blame(name, step, rate, old, f"the learning rate changes {change}; it should be constant")
        elif self.shape == "decreasing" and rises:
            self.blame(name, step, rate, old, f"the learning rate rises {change}; it should only decrease")
        elif self.shape == "warmup" and rises and self._has_fallen(name, before, mode):
            self.blame(name, step, rate, old, f"the learning rate rises {change} after it has fallen")

    def _before(self, name: str, step: int, mode: ModeKeys) -> tuple[float, int] | None:
        """Return the rate at the previous saved step, and that step."""
        earlier = self.measurements.earlier((name,), step, mode).get(name)
        if earlier is None:
            return None
        rate = losses_at(self.measurements, self.selector, earlier).get(name, math.nan)
        return (rate, earlier) if math.isfinite(rate) else None

    def _has_fallen(self, name: str, step: int, mode: ModeKeys) -> bool:
        """Return whether the rate has fallen at any step up to this one."""

        def add(state: tuple[float | None, bool], each: int) -> tuple[float | None, bool]:
            last, fallen = state
            if self.measurements.mode(each) != mode or name not in self.measurements.names(self.selector, each):
                return state
            rate = losses_at(self.measurements, self.selector, each).get(name, math.nan)
            if not math.isfinite(rate):
                return state
            return rate, fallen or (last is not None and rate < last * (1 - ROUNDING))

        start: tuple[float | None, bool] = (None, False)
        return self.measurements.fold(("fallen", self.selector, name, mode), step, start, add, self.needs())[1]
