"""How many units of a layer are alive: for rules on activations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.measurements import Measurements
from smdwidgets.rules.selector import Selector

__all__ = ["FEWEST_SAMPLES", "inactive_share"]

#: Fewer values a unit than this say nothing about it: a healthy ReLU is off for half of its inputs.
FEWEST_SAMPLES = 16

#: For each axis that units may lie along, and number of them: how many of a unit's values are active, and out of how many.
Activity = dict[tuple[int, int], tuple[NDArray[np.int64], int]]


def activity(active: NDArray[np.bool_]) -> Activity:
    """Count active values of each unit.

    Axis 0 is the batch. Frameworks put a layer's units along axis 1 (PyTorch, MXNet) or along the last one (Keras, and
    transformers everywhere), so both are counted. An array of one axis is a single sample.
    """
    if active.ndim < 2:
        active = active.reshape(1, -1)
    counted: Activity = {}
    for axis in {1, active.ndim - 1}:
        others = tuple(each for each in range(active.ndim) if each != axis)
        units = active.shape[axis]
        counted[axis, units] = np.count_nonzero(active, axis=others).astype(np.int64), active.size // units
    return counted


def _added(total: Activity, more: Activity) -> Activity:
    """Both together; what differs in shape stays apart."""
    sums = dict(total)
    for key, (count, samples) in more.items():
        before, so_far = total.get(key, (np.zeros_like(count), 0))
        sums[key] = before + count, so_far + samples
    return sums


def inactive_share(
    measurements: Measurements,
    selector: Selector,
    name: str,
    step: int,
    test: Callable[[NDArray[Any]], NDArray[np.bool_]],
    key: tuple[Hashable, ...],
    percent: float,
) -> tuple[float, int] | None:
    """The share (in percent) of a layer's units that are active for less than `percent` percent of their values, and how many
    units there are. None where too few values were saved so far to tell.

    Values of all workers count together. Where a step holds too few for each unit, earlier steps are added until there
    are enough. Of the two axes that may hold the units the one with more inactive units counts: slices along the other axis mix
    all units and are practically never inactive as a whole.
    """
    total = _at_step(measurements, name, step, test, key)
    mine = set(total)  # of earlier steps only what has the shape of today counts
    for earlier in measurements.earlier_steps(step, measurements.mode(step)):
        if not mine or min(total[each][1] for each in mine) >= FEWEST_SAMPLES:
            break
        if name in measurements.names(selector, earlier):
            found = _at_step(measurements, name, earlier, test, key)
            if not mine & found.keys():
                break  # the layer had another shape then
            total = _added(total, {each: found[each] for each in mine & found.keys()})
    shares = [
        (100.0 * float(np.mean(100.0 * count / samples < percent)), len(count))
        for count, samples in total.values()
        if samples >= FEWEST_SAMPLES
    ]
    return max(shares, default=None)


def _at_step(
    measurements: Measurements,
    name: str,
    step: int,
    test: Callable[[NDArray[Any]], NDArray[np.bool_]],
    key: tuple[Hashable, ...],
) -> Activity:
    def count() -> Activity:
        total: Activity = {}
        for worker in measurements.workers(name, step):
            try:
                value = measurements.value(name, step, worker)
            except SMDebugError:
                continue
            if value.dtype.kind not in "fiub" or not value.size:
                continue
            total = _added(total, activity(test(value)))
        return total

    return measurements.kept(("activity", name, step, *key), count)
