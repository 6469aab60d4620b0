"""A training loss that rises again and stays up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence, step_of_block
from smdwidgets.diagnosis.findings import Candidate
from smdwidgets.diagnosis.inputs import RunData

LEAST_POINTS = 20


def diverged(data: RunData) -> Iterator[Candidate]:
    """Yield training losses whose last fifth lies wholly above their best."""
    for series in data.training_losses():
        trend = series.trend
        if trend is None or len(series) < LEAST_POINTS or trend.end - trend.best <= 6 * trend.wide_noise:
            continue
        blocks, noise = trend.blocks, trend.wide_noise
        tail = blocks[-max(2, len(blocks) // 5) :]
        rise, learned = float(np.median(tail)) - trend.best, trend.start - trend.best
        if (
            tail.min() <= trend.best + 3 * noise
            or rise <= max(0.2 * abs(trend.best), 0.3 * learned)
            or trend.best_at >= len(blocks) - len(tail)
        ):
            continue
        near = np.flatnonzero(blocks <= trend.best + max(3 * noise, rise / 4))
        onset, last = step_of_block(series, int(near[-1])), int(series.steps[-1])
        facts = {"series": series.quoted, "best": trend.best, "end": trend.end}
        yield Candidate(
            "diverged",
            "problem",
            "high" if rise > 0.6 * learned else "medium",
            onset,
            last,
            (series.name,),
            facts,
            (evidence(series, f"{series.label} {trend.best:.4g} → {trend.end:.4g}", onset, last),),
        )
