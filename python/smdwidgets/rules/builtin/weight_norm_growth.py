"""WeightNormGrowth."""

from __future__ import annotations

import numpy as np

from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule, collections_parameter
from smdwidgets.rules.findings import number, step_text
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.tables import Need

#: For each tensor and worker: the first nonzero norm, and its step.
_Firsts = dict[tuple[str, str | None], tuple[float, int]]


class WeightNormGrowth(SelectingRule):
    """Detect weights whose norm grows without bound.

    Fires when the root mean square (RMS) of a tensor of collection `weights` is more than `threshold` times its first
    nonzero saved RMS, and above `min_rms`. The minimum allows tensors that start near zero to grow. NaN does not fire;
    ExplodingTensor detects it. Saved reductions `l2` are enough if the tensor's size does not change.

    What to do: use weight decay, a smaller learning rate or gradient clipping. Check whether the loss is unbounded
    below.
    """

    sagemaker = False
    collections = {"weights": {"save_interval": "500"}}
    needs_selector = False

    collection_names = collections_parameter(("weights",))
    threshold = Real(10.0, "Ratio to the first RMS above which the rule fires.", minimum=1.0)
    min_rms = Real(1.0, "RMS up to which growth is ignored.", minimum=0.0)

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("l2", "size"))]

    def judge(self, step: int) -> None:
        need = self.needs()[0]
        table = self.required_table(need, step)
        start: _Firsts = {}
        firsts = self.measurements.fold(("first norms", need.selector), step, start, self._add, self.needs())
        norms, size = table["l2"], table["size"]
        base = np.array([firsts.get(row, (np.nan, 0))[0] for row in zip(table.names, table.workers, strict=True)])
        with np.errstate(invalid="ignore", divide="ignore"):
            growth = norms / base
            rms = norms / np.sqrt(size)
        if np.isnan(growth).all():
            raise NothingToJudge("the weights at this step are zero, or their norms were not saved")
        for at in np.flatnonzero(
            (growth > self.threshold) & (np.isnan(size) | (rms > self.min_rms)) & np.isfinite(growth)
        ):
            name, worker = table.names[at], table.workers[at]
            first, since = firsts[name, worker]
            message = (
                f"norm {number(norms[at])} is {number(growth[at])} times that of {step_text(self.base_trial, since)} ({number(first)}), "
                f"limit {number(self.threshold)} times"
            )
            self.blame(name, step, growth[at], self.threshold, message, worker)

    def _add(self, firsts: _Firsts, step: int) -> _Firsts:
        need = self.needs()[0]
        if not self.measurements.names(need.selector, step):
            return firsts
        table = self.measurements.table(need.selector, step, need.columns)
        new = {
            row: (float(norm), step)
            for row, norm in zip(zip(table.names, table.workers, strict=True), table["l2"], strict=True)
            if row not in firsts and norm > 0 and np.isfinite(norm)
        }
        return {**firsts, **new} if new else firsts
