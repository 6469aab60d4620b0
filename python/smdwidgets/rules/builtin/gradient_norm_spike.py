"""GradientNormSpike."""

from __future__ import annotations

import math
from statistics import median

import numpy as np

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule, collections_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Integer, Real
from smdwidgets.rules.tables import Need


class GradientNormSpike(SelectingRule):
    """Detect a sudden rise of the global gradient norm.

    The global norm is the square root of the sum of squares over all gradients. Fires when it is more than `threshold`
    times its median over the previous `window` saved steps of the same mode. At least `min_steps` previous norms are
    needed. A norm that is not finite fires immediately. The median ignores zero norms and norms that are not finite. In
    a run with several workers, the rule uses the worker with the largest norm. A saved reduction `l2` is enough.

    What to do: clip gradients, warm up the learning rate, check the batch of that step.
    """

    sagemaker = False
    collections = {"gradients": {"save_interval": "10"}}
    needs_selector = False

    collection_names = collections_parameter(("gradients",))
    threshold = Real(10.0, "Ratio to the median above which the rule fires.", minimum=1.0)
    window = Integer(20, "Number of previous saved steps for the median.", minimum=1)
    min_steps = Integer(5, "Minimum number of previous saved steps.", minimum=1)

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("l2",))]

    def judge(self, step: int) -> None:
        need = self.needs()[0]
        self.required_table(need, step)
        norm, tensor, worker = self._norm(step)
        if not math.isfinite(norm):
            self.blame(tensor, step, norm, None, f"the global gradient norm is {number(norm)}", worker)
            return
        before: list[float] = []
        measurements = self.measurements
        for each in measurements.earlier_steps(step, measurements.mode(step)):
            if len(before) == self.window:
                break
            if measurements.names(need.selector, each):
                earlier = self._norm(each)[0]
                if math.isfinite(earlier) and earlier > 0:
                    before.append(earlier)
        if len(before) < self.min_steps:
            raise NothingToJudge(f"only {len(before)} of {self.min_steps} previous norms are available")
        usual = median(before)
        if norm > self.threshold * usual:
            message = (
                f"the global gradient norm {number(norm)} is {number(norm / usual)} times its median {number(usual)}, "
                f"limit {number(self.threshold)} times; this tensor has the largest norm"
            )
            self.blame(tensor, step, norm, self.threshold * usual, message, worker)

    def _norm(self, step: int) -> tuple[float, str, str | None]:
        """Return the largest global norm of a worker, its largest tensor, and the worker."""
        need = self.needs()[0]

        def compute() -> tuple[float, str, str | None]:
            table = self.measurements.table(need.selector, step, need.columns)
            norms = table["l2"]
            worst: tuple[float, str, str | None] = (-1.0, "", None)
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
                if worst[0] < (math.inf if math.isnan(norm) else norm):
                    worst = (norm, table.names[top], worker or None)
            return worst

        return self.measurements.cached(("global norm", need.selector, step), compute)
