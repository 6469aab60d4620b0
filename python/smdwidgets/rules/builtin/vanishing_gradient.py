"""VanishingGradient."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import BuiltinRule
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need


class VanishingGradient(BuiltinRule):
    """Detect gradients that are so small that layers no longer learn.

    Fires when the mean absolute value of any tensor of collection `gradients` is below `threshold`. A saved reduction
    `abs_mean` is enough. NaN does not fire; ExplodingTensor detects it.

    What to do: use ReLU-like activations instead of sigmoid or tanh, residual connections, normalisation layers or a
    better initialisation. With mixed precision, use loss scaling.
    """

    collections = {"gradients": {"save_interval": "500"}}

    threshold = Real(1e-7, "Mean magnitude below which the rule fires.", minimum=0.0)

    _need = Need(Selector(("gradients",)), ("abs_mean",))

    def needs(self) -> list[Need]:
        return [self._need]

    def judge(self, step: int) -> None:
        table = self.required_table(self._need, step)
        mean = table["abs_mean"]
        for at in np.flatnonzero(mean < self.threshold):
            self.blame(
                table.names[at],
                step,
                mean[at],
                self.threshold,
                f"mean |g| = {number(mean[at])} is below {number(self.threshold)}",
                table.workers[at],
            )
