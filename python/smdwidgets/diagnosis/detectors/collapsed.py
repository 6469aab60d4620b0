"""A reward that was learned and is lost again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence, step_of_block
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import Trend, local_noise
from smdwidgets.finding import Finding

LEAST_POINTS = 14
#: Share of the run that must lie below half of the drop, and its part that is judged.
LEAST_SHARE = 0.12
TAIL = 0.15
#: While the run goes on, rewards often come back from a shorter dip, or had peaked by luck: the same share, and the
#: least share of the blocks before the drop that must have been good.
LEAST_SHARE_SO_FAR, LEAST_GOOD_SO_FAR = 0.4, 1 / 3
#: Share of the gain that is all of it, and a gain in units of the noise that is beyond doubt: then a drop counts, too,
#: that is small for the level of the reward.
ALL, CLEAR_GAIN = 0.85, 10.0
#: Least drop relative to the gain and to the best; the same after a jump of the learning rate.
LEAST_DROP, LEAST_AFTER_JUMP = (0.6, 0.5), (0.4, 0.35)
#: Jump of the learning rate before the drop, which explains the drop, and the share of the run in which it is a
#: warm-up.
RATE_JUMPS, WARM_UP = 5.0, 0.1
#: Blocks that must have been near the best: a single good episode is luck.
NEAR_BEST = 3


def collapsed(data: RunData) -> Iterator[Finding]:
    """Yield rewards whose last part lies far below their best."""
    for series in data.of(Kind.REWARD):
        trend = series.trend
        # Oriented: lower is better. Most runs end here.
        if trend is None or len(series) < LEAST_POINTS or trend.end - trend.best <= 4 * trend.noise:
            continue
        yield from _judge(series, trend, data)


def _judge(series: Series, trend: Trend, data: RunData) -> Iterator[Finding]:
    blocks, best = trend.blocks, trend.best
    tail = blocks[-max(2, round(TAIL * len(blocks))) :]
    has_jumped = _rate_has_jumped(data, int(series.steps[-1]))
    # What a rate destroys goes on falling.
    level = float(tail[-1] if has_jumped else np.median(tail))
    gain, drop = trend.start - best, level - best
    if gain <= 3 * trend.noise and drop <= 6 * trend.noise:
        return
    loses_all = drop >= ALL * gain and gain > CLEAR_GAIN * trend.wide_noise
    of_gain, of_best = LEAST_AFTER_JUMP if has_jumped else LEAST_DROP
    least = max(of_gain * gain, 4 * trend.noise, 0 if loses_all else of_best * abs(best))
    if drop <= least or tail.min() <= best + drop / 2:
        return
    good = np.flatnonzero(blocks <= best + drop / 2)
    around = series.values[max(0, trend.best_at - 1) * trend.length : (trend.best_at + 2) * trend.length]
    if len(good) < NEAR_BEST or drop <= local_noise(around):
        return  # luck
    before = int(good[-1]) + 1
    share = 1 - before / len(blocks)
    if share < LEAST_SHARE:
        return
    is_lasting = data.has_ended or (share >= LEAST_SHARE_SO_FAR and len(good) >= LEAST_GOOD_SO_FAR * before)
    onset, last = step_of_block(series, before), int(series.steps[-1])
    is_lasting = is_lasting or (has_jumped and _rate_has_jumped(data, onset))
    facts = {"series": series.quoted, "best": 0.0 - best, "end": 0.0 - level}
    yield Finding.of(
        "collapsed",
        "problem",
        "medium" if is_lasting else "low",
        onset,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} {-best:.4g} → {-level:.4g}", onset, last),),
    )


def _rate_has_jumped(data: RunData, onset: int) -> bool:
    """Whether the learning rate has jumped before a step, and not come back."""
    begin, end = data.extent
    for rate in data.of(Kind.LEARNING_RATE):
        until = rate.values[rate.steps <= onset]
        jumps = np.flatnonzero((until[1:] >= RATE_JUMPS * until[:-1]) & (until[:-1] > 0)) + 1
        jumps = jumps[rate.steps[jumps] - begin > WARM_UP * (end - begin)]
        if len(jumps) and rate.values[int(jumps[-1]) :].min() >= RATE_JUMPS * until[int(jumps[-1]) - 1]:
            return True
    return False
