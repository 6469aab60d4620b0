"""A validation loss that rises from value to value while the training loss falls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.inputs import Series
from smdwidgets.diagnosis.step_axes import steps_along
from smdwidgets.diagnosis.trends import local_noise, mann_kendall

__all__ = ["is_one_by_chance", "rises_alone", "rises_while_training_falls"]


#: Values from the best on that rise one by one where no training loss was logged, and their rise.
ALONE, RISE_ALONE = 4, 0.2


class _Least(NamedTuple):
    """Values from the best on, and a rise and a fall relative to their beginnings."""

    values: int
    rise: float
    fall: float


#: The fewer values there are, the more each of them must show.
_LIMITS = (_Least(4, 0.06, 0.2), _Least(3, 0.12, 0.25), _Least(2, 0.2, 0.4))
#: Rise at a single evaluation relative to all that was gained until then.
OF_GAIN = 0.5
#: Values from the best on that are few, and their rise relative to all that was gained, which may be noise at the
#: bottom of a loss that has fallen far.
FEW, OF_ALL_GAINED = 3, 0.015
#: Part of the rise by which it may fall back in between.
FALLS_BACK = 0.2
#: Values from the best on that show a slow rise with noise: the statistic of their trend, the rise relative to the best
#: and in units of the noise, and the fall of the training loss.
SLOW, TREND, SLOW_RISE, OF_NOISE, SLOW_FALL = 8, 2.0, 0.1, 4.0, 0.25


def is_one_by_chance(values: Floats) -> bool:
    """Whether only the last value is worse than the best, by little.

    >>> is_one_by_chance(np.array([0.4, 0.2, 0.1, 0.15])), is_one_by_chance(np.array([0.4, 0.2, 0.1, 0.3]))
    (True, False)
    """
    best = float(values.min())
    return int(values.argmin()) == len(values) - 2 and float(values[-1]) - best < OF_GAIN * (float(values[0]) - best)


def rises_while_training_falls(validation: Series, training: Series) -> bool:
    """Whether the validation loss rises from its best to its last value.

    The training loss is compared between the evaluations, so that one value an epoch is enough.
    """
    values = validation.values
    at = int(values.argmin()) if len(values) else 0
    after = values[at:]
    if len(after) < 2 or values[at] <= 0 or is_one_by_chance(values):
        return False
    between = _between(validation, training)[at:]
    if not np.isfinite(between[[0, -1]]).all() or between[0] <= 0:
        return False
    # A last value that is close to the best of a noisy series is no rise.
    rise, fall = float(after[-1] / after[0]) - 1, 1 - float(between[-1] / between[0])
    if len(after) <= FEW and after[-1] - after[0] < OF_ALL_GAINED * (values[0] - after[0]):
        return False
    if len(after) >= SLOW:
        level = float(np.median(after[-3:])) - float(after[0])
        is_slow = level >= max(SLOW_RISE * float(after[0]), OF_NOISE * local_noise(values))
        return is_slow and fall >= SLOW_FALL and float(mann_kendall(after[None])[0]) >= TREND
    if np.diff(after).min() < -FALLS_BACK * (after[-1] - after[0]):
        return False
    return any(len(after) >= least.values and rise >= least.rise and fall >= least.fall for least in _LIMITS)


def rises_alone(validation: Series) -> bool:
    """Whether a validation loss of few values rises at each of the last ones."""
    values = validation.values
    after = values[int(values.argmin()) :] if len(values) else values
    is_clear = len(after) >= ALONE and bool((np.diff(after) > 0).all()) and after[0] > 0
    # A loss that was never better than at first has learned nothing to overfit.
    return is_clear and float(after[-1]) >= (1 + RISE_ALONE) * float(after[0]) and float(values[0]) > float(after[0])


def _between(validation: Series, training: Series) -> Floats:
    """Return the median training loss between each evaluation and the one before."""
    ends = np.searchsorted(training.steps, steps_along(validation, training), "right")
    begins = np.append(0, ends[:-1])
    parts = (training.values[begin:end] for begin, end in zip(begins, ends, strict=True))
    return np.array([np.median(part) if len(part) else np.nan for part in parts])
