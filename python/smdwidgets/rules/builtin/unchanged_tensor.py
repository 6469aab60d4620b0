"""UnchangedTensor."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import TensorUnavailableForStep
from smdwidgets.rules.builtin.base import NothingToJudge, SelectingRule
from smdwidgets.rules.parameters import Flag, Integer, Real
from smdwidgets.rules.tables import Need, StepTable


class UnchangedTensor(SelectingRule):
    """Detect tensors that do not change over several saved steps.

    Fires when any selected tensor is unchanged over the last `num_steps` steps at which it was saved, including this
    step. Each pair of consecutive steps is compared with `numpy.allclose(earlier, now, rtol, atol, equal_nan)`. Only
    steps of the same mode are compared, because weights do not change during evaluation. A tensor with a shorter
    history, or absent at this step, is not judged. Steps before the first judged step are part of the history. A change
    of shape counts as a change. The finding "Frozen" of `diagnose` has another meaning: a weight that is exactly the
    same at all its saves although it has a gradient, while other weights change.

    What to do: check whether the layer is frozen, missing from the optimiser, cut off by `detach`, or has a learning
    rate of zero.
    """

    num_steps = Integer(3, "Number of saved steps to compare, including the current step.", minimum=2)
    rtol = Real(1e-5, "Relative tolerance.", minimum=0.0)
    atol = Real(1e-8, "Absolute tolerance.", minimum=0.0)
    equal_nan = Flag(False, "Whether NaN equals NaN.")

    def needs(self) -> list[Need]:
        # If the extremes differ, the tensor changed, and its values need not be compared.
        return [Need(self.selector, ("min", "max", "size"))]

    def judge(self, step: int) -> None:
        table = self.required_table(self.needs()[0], step)
        if not self._has_history(step):
            raise NothingToJudge(f"fewer than {self.num_steps} saved steps so far")
        for row in np.flatnonzero(self._same_as_before(step)[1]):
            name, worker = table.names[row], table.workers[row]
            first = self._unchanged_since(name, worker, step)
            if first is not None:
                message = f"unchanged over its last {self.num_steps} saved steps ({first} to {step})"
                self.blame(name, step, self.num_steps, self.num_steps, message, worker)

    def _has_history(self, step: int) -> bool:
        """Return whether any selected tensor was saved often enough."""
        measurements = self.measurements
        seen = 1
        for before in measurements.earlier_steps(step, measurements.mode(step)):
            if seen >= self.num_steps:
                break
            seen += bool(measurements.names(self.selector, before))
        return seen >= self.num_steps

    def _unchanged_since(self, name: str, worker: str | None, step: int) -> int | None:
        """Return the first of the last `num_steps` steps if the tensor is unchanged."""
        for _ in range(self.num_steps - 1):
            before, same = self._same_as_before(step)
            row = self.required_table(self.needs()[0], step).row(name, worker)
            if row is None or not same[row]:
                return None
            step = int(before[row])
        return step

    def _same_as_before(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return, per tensor, its previous step (-1: none) and whether it is unchanged."""
        key = ("unchanged", self.selector, step, self.rtol, self.atol, self.equal_nan)
        return self.measurements.cached(key, lambda: self._compare(step))

    def _compare(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        now = self.required_table(self.needs()[0], step)
        measurements = self.measurements
        earlier = measurements.earlier(now.names, step, measurements.mode(step))
        before = np.array([earlier.get(name, -1) for name in now.names], dtype=np.int64)
        same = np.zeros(len(now), dtype=np.bool_)
        for other in sorted({step for step in before.tolist() if step >= 0}):
            then = measurements.table(self.selector, other, self.needs()[0].columns)
            mine, its = now.matching(then, before == other)
            for row in mine[~self._provably_differ(now, mine, then, its)]:
                same[row] = self._close(now.names[row], now.workers[row], int(other), step)
        return before, same

    def _provably_differ(
        self, now: StepTable, mine: NDArray[np.intp], then: StepTable, its: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Return where the extremes differ by more than the tolerance allows."""
        with np.errstate(invalid="ignore", over="ignore"):
            tolerance = self.atol + self.rtol * np.maximum(np.abs(now["min"][mine]), np.abs(now["max"][mine]))
            apart = np.maximum(np.abs(now["min"][mine] - then["min"][its]), np.abs(now["max"][mine] - then["max"][its]))
            differ: NDArray[np.bool_] = (apart > tolerance) & np.isfinite(tolerance) & np.isfinite(apart)
        return differ

    def _close(self, name: str, worker: str | None, before: int, step: int) -> bool:
        try:
            then = self.measurements.value(name, before, worker)
            now = self.measurements.value(name, step, worker)
        except TensorUnavailableForStep:  # only reductions were saved, and they do not prove equality
            return False
        if then.shape != now.shape:
            return False
        if now.dtype.kind not in "fciub":
            return bool((then == now).all())
        return bool(np.allclose(then, now, self.rtol, self.atol, self.equal_nan))
