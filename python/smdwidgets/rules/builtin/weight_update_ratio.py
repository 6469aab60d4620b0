"""WeightUpdateRatio."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.parameters import OptionalInteger, Real
from smdwidgets.rules.selector import Selector
from smdwidgets.rules.tables import Need

WEIGHTS = Selector(("weights",))
#: Elements up to which tensors are read together, how many in all at once, and how much of a large one is looked at at once.
SMALL, MOST_AT_ONCE, BLOCK = 65_536, 4_000_000, 1_000_000


class WeightUpdateRatio(BuiltinRule):
    """Weights change too much between saved steps, or hardly at all.

    For each tensor of collection `weights` the ratio is `mean|w - w0| / (mean|w0| + epsilon)`, where w0 is the tensor at an earlier
    saved step: the one before, or with `num_steps` the oldest saved step that is at most `num_steps` earlier. Fires when any
    ratio is above `large_threshold` or below `small_threshold`. A frozen layer has ratio 0 and fires.

    Where the run has steps of TRAIN, only those are judged and compared with each other (and `num_steps` counts them): weights do not
    move while a model is evaluated. Tensors without elements, with NaN, or with another shape than before are not judged.

    What to do: too large: a smaller learning rate, warm-up. Too small: a larger learning rate; is the layer frozen or
    the gradient gone? A share of about 1e-3 a step is healthy.
    """

    collections = {"weights": {"save_interval": "500"}}

    num_steps = OptionalInteger(None, "How far back to compare; None: with the saved step before.", minimum=1)
    large_threshold = Real(10.0, "Ratio above this fires.", minimum=0.0)
    small_threshold = Real(1e-8, "Ratio below this fires.", minimum=0.0)
    epsilon = Real(1e-9, "Keeps the division from zero.", minimum=0.0)

    def needs(self) -> list[Need]:
        return [Need(WEIGHTS, ("abs_mean", "size"))]

    def judge(self, step: int) -> None:
        table = self.look(self.needs()[0], step)
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
            change = self.measurements.kept(("update", step, other), partial(self._change, step, other, rows))
            with np.errstate(invalid="ignore", divide="ignore"):
                ratio = change / (then["abs_mean"][its] + self.epsilon)
            judged = judged or bool(np.isfinite(ratio).any())
            for limit, word, fault in (
                (self.large_threshold, "above", ratio > self.large_threshold),
                (self.small_threshold, "below", ratio < self.small_threshold),
            ):
                for at in np.flatnonzero(fault):
                    name, worker = table.names[rows[at]], table.workers[rows[at]]
                    message = f"update ratio {number(ratio[at])} since step {other} is {word} {number(limit)}"
                    self.blame(name, step, ratio[at], limit, message, worker)
        if not judged:
            raise NothingToJudge(
                "the weights of this step can't be compared: whole tensors, finite and of one shape, are needed"
            )

    def _before(self, names: tuple[str, ...], step: int, mode: ModeKeys) -> dict[str, int]:
        """The step that each tensor is compared with."""
        measurements = self.measurements
        if self.num_steps is None:
            return measurements.earlier(names, step, mode)
        found: dict[str, int] = {}
        first = measurements.position(step, mode) - self.num_steps
        for before in measurements.earlier_steps(step, mode):
            if measurements.position(before, mode) < first:
                break
            there = set(measurements.names(WEIGHTS, before))
            found.update((name, before) for name in names if name in there)
        return found

    def _change(self, step: int, before: int, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """mean|w - w0| of these tensors; NaN where it can't be said."""
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
            # Large ones one by one: nothing is gained by reading many at once, and memory is lost.
            for at in np.flatnonzero(large):
                name, worker = table.names[rows[at]], table.workers[rows[at]]
                try:
                    new, old = (self.measurements.value(name, each, worker) for each in (step, before))
                except SMDebugError:
                    continue
                change[at] = _one(new, old)
        return change


def _portions(which: NDArray[np.intp], sizes: NDArray[np.float64]) -> list[NDArray[np.intp]]:
    """Cut into portions of bounded size in all."""
    if not len(which):
        return []
    number = np.cumsum(sizes[which]) // MOST_AT_ONCE
    return np.split(which, np.flatnonzero(np.diff(number)) + 1)


def _one(new: NDArray[Any] | None, old: NDArray[Any] | None) -> float:
    """mean|w - w0| of one tensor, block by block."""
    if new is None or old is None or new.shape != old.shape or not new.size or new.dtype.kind not in "fiub":
        return float("nan")
    now, then = new.reshape(1, -1), old.reshape(1, -1)
    total = 0.0
    for start in range(0, now.shape[1], BLOCK):
        block = slice(start, start + BLOCK)
        total += float(mean_of_difference(now[:, block], then[:, block])[0]) * now[:, block].shape[1]
    return total / now.shape[1]


def mean_of_difference(now: NDArray[Any], then: NDArray[Any]) -> NDArray[np.float64]:
    """mean|a - b| of each row, in double precision."""
    difference = np.subtract(now, then, dtype=np.float64)
    means: NDArray[np.float64] = np.abs(difference, out=difference).mean(axis=1)
    return means
