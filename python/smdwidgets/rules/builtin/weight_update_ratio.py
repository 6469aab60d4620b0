"""WeightUpdateRatio."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number, step_text
from smdwidgets.rules.parameters import OptionalInteger, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need

WEIGHTS = Selector(("weights",))
#: Maximum size of tensors that are read in bulk, maximum elements per bulk read, and block size within a large tensor.
SMALL, MOST_AT_ONCE, BLOCK = 65_536, 4_000_000, 1_000_000


class WeightUpdateRatio(BuiltinRule):
    """Detect weights that change too much or too little between saved steps.

    For each tensor of collection `weights`, the ratio is `mean|w - w0| / (mean|w0| + epsilon)`, where w0 is the tensor
    at an earlier saved step. This is the previous saved step, or with `num_steps` the oldest saved step at most
    `num_steps` earlier. Fires when any ratio is above `large_threshold` or below `small_threshold`. A frozen layer has
    ratio 0 and fires.

    Steps of EVAL and PREDICT are not judged, because weights do not change during evaluation. TRAIN steps are compared
    with TRAIN steps, and `num_steps` counts TRAIN steps. Tensors without elements, with NaN or with a changed shape are
    not judged.

    What to do: if the ratio is too large, use a smaller learning rate or warm-up. If it is too small, use a larger
    learning rate, and check for frozen layers and vanishing gradients. A healthy ratio is about 1e-3 per step.
    """

    collections = {"weights": {"save_interval": "500"}}

    num_steps = OptionalInteger(
        None, "Maximum distance to the compared step; None: the previous saved step.", minimum=1
    )
    large_threshold = Real(10.0, "Ratio above which the rule fires.", minimum=0.0)
    small_threshold = Real(1e-8, "Ratio below which the rule fires.", minimum=0.0)
    epsilon = Real(1e-9, "Added to the denominator to avoid division by zero.", minimum=0.0)

    def needs(self) -> list[Need]:
        return [Need(WEIGHTS, ("abs_mean", "size"))]

    def judge(self, step: int) -> None:
        table = self.required_table(self.needs()[0], step)
        mode = self.training_steps_only(step)
        before = self._before(table.names, step, mode)
        if not before:
            raise NothingToJudge("no earlier step to compare with")
        judged = False
        for other in sorted(set(before.values())):
            then = self.measurements.table(WEIGHTS, other, self.needs()[0].columns)
            rows, its = table.matching(
                then, np.array([before.get(name) == other for name in table.names], dtype=np.bool_)
            )
            change = self.measurements.cached(("update", step, other), partial(self._change, step, other, rows))
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = change / (then["abs_mean"][its] + self.epsilon)
            judged = judged or bool(np.isfinite(ratio).any())
            for limit, word, fault in (
                (self.large_threshold, "above", ratio > self.large_threshold),
                (self.small_threshold, "below", ratio < self.small_threshold),
            ):
                for at in np.flatnonzero(fault):
                    name, worker = table.names[rows[at]], table.workers[rows[at]]
                    since = step_text(self.base_trial, other)
                    message = f"update ratio {number(ratio[at])} since {since} is {word} {number(limit)}"
                    self.blame(name, step, ratio[at], limit, message, worker)
        if not judged:
            raise NothingToJudge(
                "the weights at this step cannot be compared; the rule needs saved values that are finite and of equal shape"
            )

    def _before(self, names: tuple[str, ...], step: int, mode: ModeKeys) -> dict[str, int]:
        """Return the step that each tensor is compared with."""
        measurements = self.measurements
        if self.num_steps is None:
            return measurements.earlier(names, step, mode)
        found: dict[str, int] = {}
        first = measurements.position(step, mode) - self.num_steps
        for before in measurements.earlier_steps(step, mode):
            if measurements.position(before, mode) < first:
                break
            present = set(measurements.names(WEIGHTS, before))
            found.update((name, before) for name in names if name in present)
        return found

    def _change(self, step: int, before: int, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return mean|w - w0| of these tensors; NaN where it cannot be computed."""
        table = self.measurements.table(WEIGHTS, step, self.needs()[0].columns)
        change = np.full(len(rows), np.nan)
        large = ~(table["size"][rows] <= SMALL)
        with np.errstate(all="ignore"):
            for some in _portions(np.flatnonzero(~large), table["size"][rows]):
                now = self.measurements.values(table, rows[some], step)
                then = self.measurements.values(table, rows[some], before)
                if isinstance(now, np.ndarray) and isinstance(then, np.ndarray):
                    if now.shape == then.shape and now.size and now.dtype.kind in "fiub":
                        change[some] = mean_of_difference(now.reshape(len(some), -1), then.reshape(len(some), -1))
                    continue
                for at, new, old in zip(some, now, then, strict=True):
                    change[at] = _one(new, old)
            # Read large tensors one by one: bulk reads are not faster for them and need more memory.
            for at in np.flatnonzero(large):
                name, worker = table.names[rows[at]], table.workers[rows[at]]
                try:
                    new, old = (self.measurements.value(name, each, worker) for each in (step, before))
                except SMDebugError:
                    continue
                change[at] = _one(new, old)
        return change


def _portions(which: NDArray[np.intp], sizes: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Split into portions of bounded total size."""
    if not len(which):
        return []
    number = np.cumsum(sizes[which]) // MOST_AT_ONCE
    return np.split(which, np.flatnonzero(np.diff(number)) + 1)


def _one(new: NDArray[Any] | None, old: NDArray[Any] | None) -> float:
    """Return mean|w - w0| of one tensor, computed in blocks."""
    if new is None or old is None or new.shape != old.shape or not new.size or new.dtype.kind not in "fiub":
        return float("nan")
    now, then = new.reshape(1, -1), old.reshape(1, -1)
    total = 0.0
    for start in range(0, now.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        total += float(mean_of_difference(now[:, block], then[:, block])[0]) * now[:, block].shape[1]
    return total / now.shape[1]


def mean_of_difference(now: NDArray[Any], then: NDArray[Any]) -> NDArray[np.float64]:
    """Return mean|a - b| of each row, in double precision."""
    difference = np.subtract(now, then, dtype=np.float64)
    means: NDArray[np.float64] = np.abs(difference, out=difference).mean(axis=1)
    return means
