"""AllZero."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.tables import Need


class AllZero(SelectingRule):
    """A tensor is zero, or mostly.

    Fires when in any tensor looked at the share of zeros (-0.0 is one, 1e-300 is not) is at least `threshold` percent. A tensor
    without elements is not judged. Where only reductions were saved, `min` and `max` tell of tensors that are all zero, or
    have no zero at all; in between the tensor is not judged.

    What to do: for activations see DeadRelu, for gradients VanishingGradient; for inputs, look at the pipeline that feeds them.
    """

    threshold = Real(100.0, "Share of zeros that fires.", minimum=0.0, maximum=100.0, unit="%")

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("zero", "size", "min", "max"))]

    def judge(self, step: int) -> None:
        table = self.look(self.needs()[0], step)
        zero, size, low, high = (table[column] for column in ("zero", "size", "min", "max"))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = 100.0 * zero / size
        by_limits = np.isnan(size) & ~table.unknown("min") & ~table.unknown("max")
        share = np.where(by_limits & (low == 0) & (high == 0), 100.0, share)
        share = np.where(by_limits & ((low > 0) | (high < 0)), 0.0, share)
        if np.isnan(share).all():
            raise NothingToJudge("the tensors of this step have no elements, or only reductions that do not tell")
        for at in np.flatnonzero(share >= self.threshold):
            self.blame(
                table.names[at],
                step,
                share[at],
                self.threshold,
                f"{number(share[at])} % zeros, {number(self.threshold)} % or more fire",
                table.workers[at],
            )
