"""Schedules of a learning rate that begin again, or go on past their end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._rates import comes_back
from smdwidgets.diagnosis.detectors._show import beside
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["begins_again", "schedules"]

#: Rates of the beginning that come again, those before, and how exactly.
REPEATED, LEAST_BEFORE, EXACT = 5, 5, 1e-6
#: A rate before the jump relative to its peak, and its last fall relative to the largest one, that no schedule has at
#: its end.
FAR_FROM_END, STEEP = 0.05, 0.5
#: Fewest rates on either side of the least one, that rate relative to the peak, and how near all of them are to a
#: cosine, relative to the peak.
LEAST_BESIDE, LOW, NEAR = 8, 0.1, 0.08
#: Least rise past the end, relative to the peak, which the last rate has, too.
RISEN = 0.5


def schedules(data: RunData) -> Iterator[Finding]:
    """Yield schedules that begin again in the middle, and cosines that rise again."""
    for series in data.of(Kind.LEARNING_RATE):
        at = None if comes_back(data) else begins_again(series)
        if at is not None:
            facts = {
                "series": series.quoted,
                "before": float(series.values[at - 1]),
                "after": float(series.values[at]),
                "until": "",
                "back": ", and has the same values as from the first step on: after a restart, the state of the schedule was not loaded, "
                "and often that of the optimizer neither",
            }
            yield beside("rate_rise", "problem", (series,), facts, int(series.steps[at]))
        lowest = _past_its_end(series)
        if lowest is not None:
            facts = {"length": f"about {series.steps[lowest]:,}", "count": int(series.steps[-1])}
            yield beside("schedule_over", "warning", (series,), facts, int(series.steps[lowest]))


def begins_again(series: Series) -> int | None:
    """Return where a rate goes from the middle of its fall to its first values."""
    values, steps = series.values, series.steps
    for at in range(LEAST_BEFORE, len(values) - REPEATED + 1):
        again, peak = values[at : at + REPEATED], float(values[:at].max())
        if values[at - 1] <= FAR_FROM_END * peak or np.ptp(again) == 0:
            continue
        if (np.abs(again - values[:REPEATED]) > EXACT * peak).any():
            continue
        falls = -np.diff(values[:at])
        is_regular = np.array_equal(np.diff(steps[at : at + REPEATED]), np.diff(steps[:REPEATED]))
        if is_regular and falls[-1] >= STEEP * falls.max() > 0:
            return at
    return None


def _past_its_end(series: Series) -> int | None:
    """Return where a cosine is least that rises again as it fell."""
    values = series.values
    highest = np.maximum.accumulate(values)
    lows = np.flatnonzero((values <= LOW * highest) & (highest > 0))
    if not len(lows) or values.min() < 0:
        return None
    at = int(lows[0])
    while at + 1 < len(values) and values[at + 1] <= values[at]:
        at += 1
    begin = int(values[:at].argmax())
    half = at - begin
    length = min(half, len(values) - 1 - at)
    if length < LEAST_BESIDE:
        return None
    peak, low, after = float(values[begin]), float(values[at]), values[at : at + length + 1]
    cosine = low + (peak - low) * (1 - np.cos(np.pi * np.arange(length + 1) / half)) / 2
    is_cosine = all(np.abs(one - cosine).max() <= NEAR * peak for one in (after, values[at - length : at + 1][::-1]))
    return at if is_cosine and min(after[-1], values[-1]) >= RISEN * peak else None
