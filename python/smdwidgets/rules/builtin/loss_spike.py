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
    """Detect a loss that rises suddenly or is not finite.

    Fires immediately when a loss is NaN or infinite. Otherwise compares the loss with the median m over its previous
    `window` saved steps of the same mode. Fires when the loss exceeds m by more than `threshold` times the median
    absolute deviation and by more than `min_rise` times |m|. The second condition prevents firing on a nearly constant
    loss. At least `min_steps` previous losses are needed. The median ignores losses that are not finite.

    With the default parameters, the rule fires on about half of the healthy runs, because the loss of single batches
    has outliers. `diagnose` reports spikes that are rare in the series.

    What to do: use a smaller learning rate or gradient clipping, check the batch of that step, resume from the previous
    checkpoint.
    """

    sagemaker = False
    collections = {"losses": {"save_interval": "10"}}

    collection_names = collections_parameter(("losses",))
    tensor_regex = regex_parameter()
    threshold = Real(
        10.0, "Number of median absolute deviations above the median at which the rule fires.", minimum=0.0
    )
    min_rise = Real(0.5, "Minimum rise, as a share of the median.", minimum=0.0)
    window = Integer(20, "Number of previous saved steps for the median.", minimum=2)
    min_steps = Integer(5, "Minimum number of previous saved steps.", minimum=2)

    @property
    def selector(self) -> Selector:
        return Selector(self.collection_names, self.tensor_regex)

    def needs(self) -> list[Need]:
        return [loss_need(self.selector)]

    def judge(self, step: int) -> None:
        self.required_table(loss_need(self.selector), step)
        judged = False
        losses = losses_at(self.measurements, self.selector, step)
        if not losses:
            raise NothingToJudge("no tensor at this step is a scalar")
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
            raise NothingToJudge(f"fewer than {self.min_steps} previous losses are available")

    def _before(self, name: str, step: int) -> list[float]:
        """Return the finite losses in the window before this step."""
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
