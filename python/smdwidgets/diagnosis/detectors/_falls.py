"""Whether losses fall, for detectors that need to know whether a model learns."""

from __future__ import annotations

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.inputs import RunData, Series

__all__ = ["ends", "falls_elsewhere", "falls_on"]

#: Fall of a loss, relative to its first values, and statistic of its trend, of a model that learns.
LEARNS, FALLING = 0.05, -3
#: Fall of a loss that is logged in another way, relative to its first values, or without a clear trend.
FALLS_CLEARLY, HALVES = 0.15, 0.5
#: Words that say how one loss is logged.
_OF_LOGGING = frozenset({"loss", "step", "epoch", "batch", "mean", "avg", "average", "smooth", "smoothed", "running"})


def ends(values: Floats) -> tuple[float, float]:
    """Return the levels of the first and of the last values."""
    part = max(1, len(values) // 10)
    return float(np.median(values[:part])), float(np.median(values[-max(part, min(3, len(values) // 2)) :]))


def falls_on(loss: Series) -> bool:
    """Whether a loss is lower at the end than at first, or has such a trend."""
    if not len(loss):
        return False
    part = max(2, len(loss) // 5)
    first, last = float(np.median(loss.values[:part])), float(np.median(loss.values[-part:]))
    return first - last > LEARNS * abs(first) or (loss.trend is not None and loss.trend.z < FALLING)


def falls_elsewhere(data: RunData, series: Series) -> bool:
    """Whether the same loss, logged over epochs or smoothed, falls.

    That of single batches may be too noisy to show it.
    """
    words = _OF_LOGGING.union(series.stem)
    return any(
        other is not series
        and other.trend is not None
        and words.issuperset(other.stem)
        and _OF_LOGGING.union(other.stem).issuperset(series.stem)
        and _falls_clearly(other)
        for other in data.training_losses()
    )


def _falls_clearly(loss: Series) -> bool:
    trend = loss.trend
    if trend is None:
        return False
    fall = trend.start - trend.end
    return fall > HALVES * abs(trend.start) or (trend.z < FALLING and fall > FALLS_CLEARLY * abs(trend.start))
