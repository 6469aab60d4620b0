"""A reward that was learned and is lost again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence, step_of_block
from smdwidgets.diagnosis.findings import Candidate
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import Trend

LEAST_POINTS = 14
#: Share of the run that must lie below half of the drop, and its part that is judged.
LEAST_SHARE = 0.12
TAIL = 0.15
#: Blocks that must have been near the best: a single good episode is luck.
NEAR_BEST = 3


def collapsed(data: RunData) -> Iterator[Candidate]:
    """Yield rewards whose last part lies far below their best."""
    for series in data.of(Kind.REWARD):
        trend = series.trend
        # Oriented: lower is better. Most runs end here.
        if trend is None or len(series) < LEAST_POINTS or trend.end - trend.best <= 4 * trend.noise:
            continue
        yield from _judge(series, trend)


def _judge(series: Series, trend: Trend) -> Iterator[Candidate]:
    blocks, best = trend.blocks, trend.best
    tail = blocks[-max(2, round(TAIL * len(blocks))) :]
    level = float(np.median(tail))
    gain, drop = trend.start - best, level - best
    if gain <= 3 * trend.noise and drop <= 6 * trend.noise:
        return
    if drop <= max(0.6 * gain, 4 * trend.noise, 0.5 * abs(best)) or tail.min() <= best + drop / 2:
        return
    good = np.flatnonzero(blocks <= best + drop / 2)
    if len(good) < NEAR_BEST or len(blocks) - 1 - good[-1] < LEAST_SHARE * len(blocks):
        return
    onset, last = step_of_block(series, int(good[-1]) + 1), int(series.steps[-1])
    facts = {"series": series.quoted, "best": 0.0 - best, "end": 0.0 - level}
    yield Candidate(
        "collapsed",
        "problem",
        "medium",
        onset,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} {-best:.4g} → {-level:.4g}", onset, last),),
    )
