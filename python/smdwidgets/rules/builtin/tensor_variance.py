"""TensorVariance."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import SelectingRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import OptionalReal
from smdwidgets.rules.tables import Need


class TensorVariance(SelectingRule):
    """Detect tensors whose variance is too large or too small.

    Fires when the variance of any selected tensor is above `max_threshold` or below `min_threshold`. The variance is
    the mean squared deviation, as in `numpy.var`. A limit of None is not applied; with both None the rule never fires.
    NaN does not fire.

    What to do: check the initialisation, the normalisation and the scale of the data.
    """

    max_threshold = OptionalReal(None, "Variance above which the rule fires.", minimum=0.0)
    min_threshold = OptionalReal(None, "Variance below which the rule fires.", minimum=0.0)

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("variance",))]

    def judge(self, step: int) -> None:
        table = self.required_table(self.needs()[0], step)
        variance = table["variance"]
        for limit, word, sign in ((self.max_threshold, "above", 1.0), (self.min_threshold, "below", -1.0)):
            if limit is None:
                continue
            for at in np.flatnonzero(sign * variance > sign * limit):
                self.blame(
                    table.names[at],
                    step,
                    variance[at],
                    limit,
                    f"variance {number(variance[at])} is {word} {number(limit)}",
                    table.workers[at],
                )
