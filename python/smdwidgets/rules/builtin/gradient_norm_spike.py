"""GradientNormSpike."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets.rules.builtin.base import collections_parameter
from smdwidgets.rules.builtin.spike import SpikeRule
from smdwidgets.rules.scalar_columns import ScalarColumns
from smdwidgets.rules.tables import Need

_SERIES = "global gradient norm"


class GradientNormSpike(SpikeRule):
    """Detect a global gradient norm that rises suddenly or is not finite.

    The global norm is the square root of the sum of squares over all gradients. A spike has the same definition as in
    `LossSpike`, `diagnose` and the flight recorder: fires immediately when the norm is NaN or infinite. Otherwise
    compares it with its previous 50 finite values of the same mode, of which at least 15 are needed. Fires when it
    exceeds their median by more than 8 robust standard deviations and by more than half of the median. A norm of zero
    is neither judged nor compared with. In a run with several workers, the rule uses the worker with the largest norm.
    A saved reduction `l2` is enough.

    What to do: clip gradients, warm up the learning rate, check the batch of that step.
    """

    collections = {"gradients": {"save_interval": "10"}}
    quantity = _SERIES
    nothing_usable = "no gradient at this step has a norm"

    collection_names = collections_parameter(("gradients",))

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("l2",))]

    def columns(self, steps: Sequence[int]) -> ScalarColumns:
        norms = self.measurements.each_step(self.needs(), steps, self._norm)
        return self.measurements.as_columns(steps, [{} if norm is None else {_SERIES: norm[0]} for norm in norms])

    def compared(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(values == 0, np.nan, values)

    def subject(self, series: str, step: int) -> tuple[str, str | None, str]:
        norm = self._norm(step)
        assert norm is not None  # the finding is about it
        return norm[1], norm[2], "; this tensor has the largest norm"

    def _norm(self, step: int) -> tuple[float, str, str | None] | None:
        """Return the largest global norm of a worker, its largest tensor, and the worker.

        None if no gradient has a norm.
        """
        need = self.needs()[0]

        def compute() -> tuple[float, str, str | None] | None:
            table = self.measurements.table(need.selector, step, need.columns)
            norms = table["l2"]
            largest: tuple[float, str, str | None] | None = None
            workers = np.array([worker or "" for worker in table.workers])
            known = ~table.unknown("l2")
            for worker in sorted(set(workers[known].tolist())):
                rows = np.flatnonzero(known & (workers == worker))
                ranked = np.where(np.isnan(norms[rows]), np.inf, norms[rows])
                top = rows[np.argmax(ranked)]
                scale = float(ranked.max())
                norm = (
                    scale * math.sqrt(float(np.sum((norms[rows] / scale) ** 2)))
                    if 0 < scale < math.inf
                    else float(norms[top])
                )
                if largest is None or largest[0] < (math.inf if math.isnan(norm) else norm):
                    largest = (norm, table.names[top], worker or None)
            return largest

        return self.measurements.cached(("global norm", need.selector, step), compute)
