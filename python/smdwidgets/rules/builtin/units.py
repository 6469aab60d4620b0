"""Count inactive units of a layer, for rules on activations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugError
from smdwidgets.rules.measurements import Measurements
from smdwidgets.rules.selector import Selector

__all__ = ["FEWEST_SAMPLES", "inactive_share"]

#: Minimum number of values per unit. A healthy ReLU is off for half of its inputs, so fewer values are not conclusive.
FEWEST_SAMPLES = 16

#: For each possible (axis of units, number of units): the active values of each unit, and the values per unit.
Activity = dict[tuple[int, int], tuple[NDArray[np.int64], int]]


def activity(active: NDArray[np.bool_]) -> Activity:
    """Count the active values of each unit.

    Axis 0 is the batch. A layer's units are along axis 1 (PyTorch, MXNet) or along the last axis (Keras, transformers),
    so both are counted. An array of one axis is a single sample.
    """
    if active.ndim < 2:
        active = active.reshape(1, -1)
    counted: Activity = {}
    for axis in {1, active.ndim - 1}:
        others = tuple(each for each in range(active.ndim) if each != axis)
        units = active.shape[axis]
        counted[axis, units] = np.count_nonzero(active, axis=others).astype(np.int64), active.size // units
    return counted


def _add_activity(total: Activity, more: Activity) -> Activity:
    """Add two counts; entries of different shapes stay separate."""
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
    """Return the share of inactive units in percent, and the number of units.

    A unit is inactive if less than `percent` percent of its values are active. The result is None if too few values
    were saved so far. Values of all workers are combined. If a step has too few values per unit, earlier steps are
    added. The axis of units with more inactive units is used: slices along the other axis mix
    all units and are almost never inactive.
    """
    total = _at_step(measurements, name, step, test, key)
    mine = set(total)  # earlier steps count only if their shape is the same
    for earlier in measurements.earlier_steps(step, measurements.mode(step)):
        if not mine or min(total[each][1] for each in mine) >= FEWEST_SAMPLES:
            break
        if name in measurements.names(selector, earlier):
            found = _at_step(measurements, name, earlier, test, key)
            if not mine & found.keys():
                break  # the layer had a different shape
            total = _add_activity(total, {each: found[each] for each in mine & found.keys()})
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
            total = _add_activity(total, activity(test(value)))
        return total

    return measurements.cached(("activity", name, step, *key), count)
