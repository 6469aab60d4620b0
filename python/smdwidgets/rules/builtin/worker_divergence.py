"""WorkerDivergence."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule, collections_parameter
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import Real
from smdwidgets.rules.tables import Need


class WorkerDivergence(SelectingRule):
    """Detect weights that differ between data-parallel workers.

    In data-parallel training, every worker ends each step with the same weights. Fires when any element of a tensor of
    collection `weights` differs from the workers' median by more than `atol + rtol * m`, where m is the largest
    magnitude in the tensor. The finding names the worker with the largest difference. If only reductions were saved,
    `min`, `max` and `l2` are compared. NaN equals NaN. Steps and tensors that a single worker saved are not judged.

    What to do: check that all parameters are inside the DistributedDataParallel module, that all workers loaded the
    same seed or checkpoint, and that buffers (batch norm) are synchronised. With mixed precision, check that on
    overflow all workers skip the update.
    """

    sagemaker = False
    collections = {"weights": {"save_interval": "500"}}
    needs_selector = False

    collection_names = collections_parameter(("weights",))
    rtol = Real(1e-5, "Tolerance relative to the tensor's largest magnitude.", minimum=0.0)
    atol = Real(1e-8, "Absolute tolerance.", minimum=0.0)

    def needs(self) -> list[Need]:
        return [Need(self.selector, ("min", "max", "l2"))]

    def judge(self, step: int) -> None:
        need = self.needs()[0]
        table = self.required_table(need, step)
        rows = sorted(range(len(table)), key=lambda row: (table.names[row], table.workers[row] or ""))
        judged = False
        for name, group in groupby(rows, key=lambda row: table.names[row]):
            mine = list(group)
            if len(mine) < 2:
                continue
            judged = True
            key = ("divergence", name, step, tuple(table.workers[row] for row in mine))
            workers = [table.workers[row] for row in mine]
            reductions = np.stack([table[column][mine] for column in need.columns], axis=1)
            distances, size = self.measurements.cached(key, partial(self._distances, name, step, workers, reductions))
            limit = self.atol + self.rtol * size
            worst = int(np.argmax(distances))
            if not distances[worst] <= limit:
                message = f"differs from the other workers by up to {number(distances[worst])}, limit {number(limit)}"
                self.blame(name, step, distances[worst], limit, message, table.workers[mine[worst]])
        if not judged:
            raise NothingToJudge("no tensor at this step was saved by at least two workers")

    def _distances(
        self, name: str, step: int, workers: list[str | None], reductions: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], float]:
        """Return each worker's distance from the median, and the largest magnitude."""
        try:
            values = [self.measurements.value(name, step, worker) for worker in workers]
        except SMDebugError:
            values = list(reductions)
        if len({value.shape for value in values}) > 1 or any(value.dtype.kind not in "fiub" for value in values):
            same = [value.shape == values[0].shape for value in values]
            return np.where(same, 0.0, np.inf), 0.0
        if not values[0].size:
            return np.zeros(len(values)), 0.0
        if all(np.array_equal(values[0], value, equal_nan=True) for value in values[1:]):
            return np.zeros(len(values)), 0.0
        stacked = np.stack([value.reshape(-1).astype(np.float64) for value in values])
        finite = np.isfinite(stacked)
        size = float(np.max(np.abs(stacked), where=finite, initial=0.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # columns without finite values have no median
            usual = np.nanmedian(np.where(finite, stacked, np.nan), axis=0)
        same = (stacked == stacked[0]).all(axis=0) | np.isnan(stacked).all(axis=0)
        # A value that is not finite and differs between workers counts as infinitely far away.
        apart = np.where(same, 0.0, np.where(finite, np.abs(stacked - usual), np.inf))
        return apart.max(axis=1), size
