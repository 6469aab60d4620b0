"""A training loss that falls without bound, because it has the wrong sign."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

LEAST_POINTS = 8
#: Fall relative to the size of the first values, and that from which on it is beyond doubt.
FALL, SURE = 10.0, 100.0
#: The same of a loss that is positive at first, relative to the largest of its first values.
FALL_THROUGH_ZERO = 1e5


def falls_without_bound(series: Series) -> tuple[float, float] | None:
    """Return the first and last level of a loss that falls without a bound.

    It is negative from the start, or falls through 0 to many thousand times its first size, and falls faster and
    faster. None for any other loss. A likelihood may be negative, too, but gains less and less.
    """
    values = series.values
    # Most runs end here.
    if len(values) < LEAST_POINTS or values[-1] >= min(FALL * values[0], 0):
        return None
    first, middle, end = (float(np.median(part)) for part in (values[:3], values[len(values) // 2 :][:3], values[-3:]))
    if end - middle >= middle - first:  # slower and slower
        return None
    least = FALL * first if first < 0 else -FALL_THROUGH_ZERO * max(1.0, float(np.abs(values[:3]).max()))
    return (first, end) if end < least else None


def unbounded_losses(data: RunData) -> list[tuple[Series, tuple[float, float]]]:
    """Return the training losses that fall without bound, with their levels.

    That of one adversary may, but not those of both.
    """
    falling = _falling(data.training_losses())
    if falling:
        return falling
    of_adversaries = [one for one in data.of(Kind.UNDIRECTED) if "loss" in one.words]
    falling = _falling(of_adversaries)
    return falling[:1] if 1 < len(falling) == len(of_adversaries) else []


def _falling(losses: Sequence[Series]) -> list[tuple[Series, tuple[float, float]]]:
    return [(one, levels) for one in losses if (levels := falls_without_bound(one)) is not None]


def unbounded(data: RunData) -> Iterator[Finding]:
    """Yield losses that fall without bound."""
    for series, (first, end) in unbounded_losses(data):
        text = f"{first:.4g} → {end:.4g}"
        onset, last = int(series.steps[0]), int(series.steps[-1])
        yield Finding.of(
            "loss_sign",
            "problem",
            "high" if end < -SURE * abs(first) or len(series.lost_steps) else "medium",
            onset,
            None,
            (series.name,),
            {"what": f"{series.quoted} falls without bound", "detail": text, "series": series.quoted},
            (evidence(series, f"{series.label} {text}", onset, last),),
        )
