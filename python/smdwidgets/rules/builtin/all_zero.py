"""AllZero."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.tables import Need


class AllZero(SelectingRule):
    """Detect tensors that are zero or mostly zero.

    Fires when the share of zeros in any selected tensor is at least `threshold` percent. -0.0 counts as zero, 1e-300
    does not. A tensor without elements is not judged. If only reductions were saved, `min` and `max` show whether the
    tensor is all zero or has no zero; otherwise the tensor is not judged.

    What to do: for activations see DeadRelu, for gradients see VanishingGradient. For inputs, check the data pipeline.
    """

    threshold = Real(100.0, "Share of zeros at or above which the rule fires.", minimum=0.0, maximum=100.0, unit="%")

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("zero", "size", "min", "max"))]

    def judge(self, step: int) -> None:
        table = self.required_table(self.needs()[0], step)
        zero, size, low, high = (table[column] for column in ("zero", "size", "min", "max"))
        with np.errstate(invalid="ignore", divide="ignore"):
            share = 100.0 * zero / size
        by_limits = np.isnan(size) & ~table.unknown("min") & ~table.unknown("max")
        share = np.where(by_limits & (low == 0) & (high == 0), 100.0, share)
        share = np.where(by_limits & ((low > 0) | (high < 0)), 0.0, share)
        if np.isnan(share).all():
            raise NothingToJudge(
                "the tensors at this step have no elements, or their saved reductions do not determine zeros"
            )
        for at in np.flatnonzero(share >= self.threshold):
            self.blame(
                table.names[at],
                step,
                share[at],
                self.threshold,
                f"{number(share[at])} % zeros, limit {number(self.threshold)} %",
                table.workers[at],
            )
