"""WeightUpdateRatio."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.rules.builtin.base import BuiltinRule, NothingToJudge
from smdwidgets.rules.findings import number
from smdwidgets.rules.measurements import Need
from smdwidgets.rules.parameters import OptionalInteger, Real
from smdwidgets.rules.selector import Selector

WEIGHTS = Selector(("weights",))


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
        table = self.measurements.table(WEIGHTS, step)
        change = np.full(len(rows), np.nan)
        now = self.measurements.values(table, rows, step)
        then = self.measurements.values(table, rows, before)
        with np.errstate(all="ignore"):
            if isinstance(now, np.ndarray) and isinstance(then, np.ndarray):
                if now.shape == then.shape and now.size and now.dtype.kind in "fiub":
                    return mean_of_difference(now, then)
                return change
            for at, (new, old) in enumerate(zip(now, then, strict=True)):
                if (
                    new is not None
                    and old is not None
                    and new.shape == old.shape
                    and new.size
                    and new.dtype.kind in "fciub"
                ):
                    change[at] = float(mean_of_difference(new[None], old[None])[0])
        return change


def mean_of_difference(now: NDArray[np.generic], then: NDArray[np.generic]) -> NDArray[np.float64]:
    """mean|a - b| of each row, in double precision."""
    difference = np.abs(now.astype(np.float64) - then.astype(np.float64))
    result: NDArray[np.float64] = difference.reshape(len(now), -1).mean(axis=1)
    return result
