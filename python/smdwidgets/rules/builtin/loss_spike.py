"""LossSpike."""

from __future__ import annotations

import math
from statistics import median

from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge, collections_parameter, regex_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.losses import loss_need, losses_at
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need


class LossSpike(BuiltinRule):
    """The loss jumps up, or is lost altogether.

    Fires at once when a loss is NaN or infinite. Else it fires when a loss is above the median m of its `window` saved steps before (of
    the same mode) by more than `threshold` times their median distance from m, and by more than `min_rise` times |m|, so that neither
    noise nor a loss that has hardly moved counts. At least `min_steps` of them have to be there. Steps whose loss was not finite do not
    count towards the median.

    What to do: a smaller learning rate, gradient clipping; look at the batch of that step; go back to the checkpoint before.
    """

    sagemaker = False
    collections = {"losses": {"save_interval": "10"}}

    collection_names = collections_parameter(("losses",))
    tensor_regex = regex_parameter()
    threshold = Real(10.0, "How many median distances above the median are a spike.", minimum=0.0)
    min_rise = Real(0.5, "Smallest rise, as a share of the median, that can be a spike.", minimum=0.0)
    window = Integer(20, "Saved steps that the median is taken over.", minimum=2)
    min_steps = Integer(5, "Saved steps that have to be there before judging.", minimum=2)

    @property
    def selector(self) -> Selector:
        return Selector(self.collection_names, self.tensor_regex)

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        self.look(loss_need(self.selector), step)
        judged = False
        losses = losses_at(self.measurements, self.selector, step)
        if not losses:
            raise NothingToJudge("no tensor of this step is a single number")
        for name, loss in losses.items():
            if not math.isfinite(loss):
                judged = True
                self.blame(name, step, loss, None, f"the loss is {number(loss)}")
                continue
            before = self._before(name, step)
            if len(before) < self.min_steps:
                continue
            judged = True
            usual = median(before)
            spread = median(abs(each - usual) for each in before)
            limit = usual + max(self.threshold * spread, self.min_rise * abs(usual))
            if loss > limit:
                message = f"the loss {number(loss)} is above {number(limit)}; its median over {len(before)} saved steps is {number(usual)}"
                self.blame(name, step, loss, limit, message)
        if not judged:
            raise NothingToJudge(f"fewer than {self.min_steps} earlier losses so far")

    def _before(self, name: str, step: int) -> list[float]:
        """The finite losses of the window before this step."""
        found: list[float] = []
        measurements = self.measurements
        for each in measurements.earlier_steps(step, measurements.mode(step)):
            if len(found) == self.window:
                break
            if name in measurements.names(self.selector, each):
                loss = losses_at(measurements, self.selector, each).get(name, math.nan)
                if math.isfinite(loss):
                    found.append(loss)
        return found
