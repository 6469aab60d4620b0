"""Courses of learning rates, for detectors that need to know what a schedule does."""

from __future__ import annotations

import math

import numpy as np

from smdwidgets.diagnosis.inputs import Kind, RunData

__all__ = ["comes_back"]

#: Ratio of the largest and the least rate of a cycle, how often a rate comes back to the upper half, and the last rate
#: relative to the largest one at which no cycle ends.
CYCLE, TIMES, AT_PEAK = 3.0, 2, 0.7


def comes_back(data: RunData) -> bool:
    """Whether a learning rate falls and rises again and again.

    Those with cycles or restarts do. A cosine that is shorter than the training does so, too, and often
    ends at its peak.
    """
    for rate in data.of(Kind.LEARNING_RATE):
        values = rate.values[rate.values > 0]
        if not len(values) or values.max() < CYCLE * values.min():
            continue
        # A rate that falls for good by orders of magnitude has its cycles near the top.
        middle = max(math.sqrt(float(values.min() * values.max())), float(values.max()) / CYCLE)
        is_high = values >= middle
        if values[-1] <= AT_PEAK * values.max() and int(np.count_nonzero(is_high[1:] & ~is_high[:-1])) >= TIMES + (
            not is_high[0]
        ):
            return True
    return False
