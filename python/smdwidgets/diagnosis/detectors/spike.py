"""Sudden rises of a training loss, lasting or recovered."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from smdwidgets.anomalies import Rises, begins_episode
from smdwidgets.anomalies.defaults import EPISODE_QUIET, SPIKE_MILD
from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.detectors._again import begins_again
from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.finding import Finding

#: Points after a spike that decide whether it lasts.
AFTER = 10
#: Least height, as a share of what was learned until then.
LEAST_OF_LEARNED = 0.3
#: Recovered spikes from which on they are a warning.
REPEATED = 3
#: How spikes occur, the gravest first.
MANNERS = ("again", "lasting", "repeated", "long", "swell", "single")
#: Points of a spike that is long, and its height relative to the level before.
LONG, HIGH = 5, 2.0
#: Points of a spike that are above the first values of the loss, and by how much: as if nothing had been learned.
BACK, ABOVE_FIRST = 3, 1.05
#: Height relative to the first values of the loss that is none, however long it lasts.
NEGLIGIBLE = 0.05
#: Fewest values of a loss that can relapse; what it has learned before, and the first level to which it returns.
LEAST_POINTS, LEARNED, AS_AT_FIRST = 30, 0.85, 0.97
#: Rise to that level in units of the noise of so many values before it.
CLEAR, AROUND = 6.0, 20
#: The same of a loss that has learned less.
LITTLE, CLEARLY = 0.94, 8.0
#: Share of what was learned that a setback takes, its rise in units of the noise before and of how far the level moved
#: in the stretch before, and the values on either side that show that it is one step.
TAKES, SETBACK, WANDERS, EDGE = 0.18, 3.0, 1.5, 3
#: Share of a setback that is made up for at the end of a run that ends too soon.
REGAINED = 0.3
#: Places at which a relapse may begin that are looked at.
CANDIDATES = 20
#: Series that are shown as evidence.
SHOWN = 6
#: Spikes at more than this share of the points are noise.
RARE = 0.02
#: Values relative to the median of all that no noise has, the share of all that they are at most, and the least of them
#: relative to the largest other one.
FAR_OUTSIDE, AT_MOST, APART = 50.0, 0.3, 10.0
#: Values whose median is a level of a loss that swells; its rise relative to its best, the share of the run for which
#: it stays above half of that, its best relative to the first value, and fewest evaluations that show the same.
OVER, SWELLS, SWELLS_FOR, SWELLS_FROM, LEAST_HELD_OUT = 5, 1.3, 0.15, 0.75, 8
#: Most values of a setting that a curriculum changes, and words of those that make the task itself harder.
STAGES = 12
_OF_TASK = frozenset(
    {"len", "length", "seqlen", "context", "resolution", "res", "difficulty", "curriculum", "horizon", "mask", "noise"}
)


class _Spike(NamedTuple):
    first: int
    last: int
    top: float
    level: float
    lasting: bool


def spike(data: RunData) -> Iterator[Finding]:
    """Yield lasting, repeated and long rises as warnings, single ones as notes."""
    found = []
    for series in data.training_losses():
        if (at := begins_again(series.values)) is not None:
            level = float(np.median(series.values[max(0, at - EDGE) : at]))
            found.append((series, [_Spike(at, at, float(series.values[at]), level, True)], "again"))
            continue
        relapse = _relapse(series)
        least = NEGLIGIBLE * abs(float(np.median(series.values[:EDGE]))) if len(series) else 0.0
        if relapse is not None and relapse.top - relapse.level >= least:
            found.append((series, [relapse], "long"))
            continue
        far = _far_outside(series)
        if len(far) >= REPEATED:
            found.append((series, far, "repeated"))
            continue
        rises, trend = series.rises, series.trend
        spikes = [] if rises is None or trend is None else _spikes(series, rises, trend.start)
        lasting = [one for one in spikes if one.lasting]
        if lasting:
            found.append((series, lasting, "lasting"))
        elif len(spikes) >= REPEATED:
            if sum(one.last - one.first + 1 for one in spikes) <= RARE * len(series):
                found.append((series, spikes, "repeated"))
        else:
            long = [one for one in spikes if _is_long(series, one)] or _setbacks(data, series)
            long = [one for one in long if one.top - one.level >= least]
            swell = [] if long else _swell(data, series)
            if long or swell or spikes:
                manner = "long" if long else "swell" if swell else "single"
                found.append((series, long or swell or spikes, manner))
    found.sort(key=lambda one: MANNERS.index(one[2]))
    # A loss jumps when its targets do, as those of a copy of the network that is renewed now and then.
    moves = any(one.id == "targets_grow" for one in data.checks)
    for at, (series, spikes, manner) in enumerate(found):
        harder = _harder_task(data, series, spikes) if manner in ("lasting", "long", "swell", "single") else None
        is_note = moves or manner == "single" or harder is not None or _begin_stages(data, series, spikes)
        yield _finding(series, spikes, manner, is_note=is_note, shown=at < SHOWN, harder=harder)


def _begin_stages(data: RunData, series: Series, spikes: list[_Spike]) -> bool:
    """Whether another optimizer begins at each jump, as with other weights."""
    return _lie_at(series, spikes, np.array(data.stages))


def _lie_at(series: Series, spikes: list[_Spike], changes: Steps) -> bool:
    """Whether something has changed at each jump, since the value before."""
    begins = ((series.steps[max(0, one.first - 1)], series.steps[one.first]) for one in spikes)
    return all(((changes > before) & (changes <= at)).any() for before, at in begins)


def _harder_task(data: RunData, series: Series, spikes: list[_Spike]) -> Series | None:
    """Return a setting of the task that changes at each of some jumps, or None.

    A loss that jumps and recovers then is one of longer rows or larger images, as a curriculum has them. One that does
    not recover is reported as without it.
    """
    end = float(np.median(series.values[-AFTER:]))
    if any(one.lasting and end > (one.level + one.top) / 2 for one in spikes):
        return None
    for setting in data.of(Kind.HOUSEKEEPING, Kind.UNKNOWN):
        if _OF_TASK.isdisjoint(setting.words) or not 2 <= len(np.unique(setting.values)) <= min(
            STAGES, len(setting) / 4
        ):
            continue
        if _lie_at(series, spikes, setting.steps[1:][np.diff(setting.values) != 0]):
            return setting
    return None


def _spikes(series: Series, rises: Rises, start: float) -> list[_Spike]:
    least = np.maximum(rises.least, LEAST_OF_LEARNED * (start - rises.level))
    kept = rises.height > least
    if not kept.any():
        return []
    index = rises.index[kept]
    begins = np.flatnonzero(begins_episode(index))
    mild = rises.index[~kept & (rises.height > SPIKE_MILD * least)]
    if len(mild) >= len(begins) and np.count_nonzero(_distance(mild, index) > EPISODE_QUIET) >= len(begins):
        return []  # noise with heavy tails
    firsts, lasts = index[begins].tolist(), index[np.append(begins[1:], len(index)) - 1].tolist()
    levels, spreads, uppers = (column[kept][begins].tolist() for column in (rises.level, rises.spread, rises.upper))
    return [
        _Spike(
            first,
            last,
            float(series.values[first : last + 1].max()),
            level,
            _lasts(
                series.values[last + 1 : last + 1 + AFTER].tolist(),
                max(level + max(0.2 * abs(level), 3 * spread), upper),
            ),
        )
        for first, last, level, spread, upper in zip(firsts, lasts, levels, spreads, uppers, strict=True)
    ]


def _far_outside(series: Series) -> list[_Spike]:
    """Return single values that are far above all others, each among usual ones."""
    values = series.values
    level = float(np.median(values)) if len(values) >= LEAST_POINTS else 0.0
    if level <= 0:
        return []
    is_far = values > FAR_OUTSIDE * level
    far = np.flatnonzero(is_far[1:] & ~is_far[:-1]) + 1  # the first losses of a training may be far above the last ones
    far = far[values[far] >= APART * values[far - 1]]  # which fall with noise
    usual = values[len(values) // 10 :][~is_far[len(values) // 10 :]]
    if not len(far) or values[far].min() < APART * usual.max():
        return []
    # Those that follow each other are a divergence, which comes back or not.
    if len(far) > AT_MOST * len(values) or (len(far) > 2 and (far[2:] - far[:-2] == 2).any()):
        return []
    return [_Spike(at, at, float(values[at]), level, False) for at in far.tolist()]


def _lasts(after: list[float], limit: float) -> bool:
    """Whether the values after a spike are still high, by their median."""
    return len(after) == AFTER and sum(value > limit for value in after) > AFTER // 2


def _relapse(series: Series) -> _Spike | None:
    """Return a stretch at the first level of a loss that had fallen, and falls again."""
    if series.trend is None or len(series) < LEAST_POINTS or series.trend.start <= 0:
        return None
    values, start = series.values, series.trend.start
    if series.trend.end > LITTLE * start:
        return None
    # Stretches of high values are looked for first, because most losses have none after their first ones.
    high = np.flatnonzero(values[LONG:] >= AS_AT_FIRST * start) + LONG
    stretches = high[: len(high) - LONG + 1]
    stretches = stretches[high[LONG - 1 :] - stretches == LONG - 1] if len(high) >= LONG else high[:0]
    levels = np.median(np.lib.stride_tricks.sliding_window_view(values, LONG)[stretches - LONG], axis=1)
    has_learned = levels <= LITTLE * start
    candidates = zip(stretches[has_learned].tolist(), levels[has_learned].tolist(), strict=True)
    for first, level in islice(candidates, CANDIDATES):  # noise makes many
        back = np.flatnonzero(values[first:] < (start + level) / 2)
        clear = CLEAR if max(level, series.trend.end) <= LEARNED * start else CLEARLY
        if len(back) and start - level > clear * local_noise(values[max(0, first - AROUND) : first]):
            last = first + int(back[0]) - 1
            return _Spike(first, last, float(values[first : last + 1].max()), level, False)
    return None


def _setbacks(data: RunData, series: Series) -> list[_Spike]:
    """Return a jump that takes a part of what was learned.

    It is from one value to the next, and made up for slowly. A training that goes on from a checkpoint without the
    state of its optimizer does so.
    """
    values, trend = series.values, series.trend
    if trend is None or len(values) < 3 * AROUND or any(map(_begins_again, data.of(Kind.LEARNING_RATE))):
        return []
    jumps = np.argpartition(-np.diff(values), CANDIDATES)[:CANDIDATES] + 1
    largest: list[_Spike] = []
    for first in jumps[(jumps >= AROUND) & (jumps <= len(values) - 2 * AROUND)].tolist():
        before, after = values[first - AROUND : first], values[first : first + AROUND]
        level, top = float(np.median(before)), float(np.median(after))
        least = max(TAKES * (trend.start - level), SETBACK * local_noise(before))
        if not 0 < level <= LEARNED * trend.start or top - level < least or (largest and top <= largest[0].top):
            continue
        soon = float(np.median(values[first : first + EDGE]) - np.median(values[first - EDGE : first]))
        if min(soon, top - level) < WANDERS * _wandering(values[first // 2 : first]):
            continue  # noise whose level wanders
        levels = _levels(values[first:])
        back = np.flatnonzero(levels < (level + top) / 2)
        if len(back):  # else it diverged
            largest = [_Spike(first, first + int(back[0]), top, level, False)]
        elif levels[-1] < top - REGAINED * (top - level):  # or the run ended before
            largest = [_Spike(first, len(values) - 1, top, level, True)]
    return largest


def _swell(data: RunData, series: Series) -> list[_Spike]:
    """Return a rise over many values that evaluations share, and that ends.

    A rate that is too high at its peak does so where the rate is not logged. Restarts of a rate, and weights of a part
    of the loss that grow, have a reason.
    """
    rates = data.of(Kind.LEARNING_RATE)
    if data.of(Kind.REWARD, Kind.UNDIRECTED) or any(map(_begins_again, rates)) or len(series) < LEAST_POINTS:
        return []
    evaluated = [one for one in data.held_out(Kind.LOSS) if one.stem == series.stem and len(one) >= LEAST_HELD_OUT]
    if not evaluated or series.values.min() <= 0:
        return []
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(series.values, OVER), axis=1)
    rise = _rise_above_best(smooth)
    top = int(rise.argmax())
    level = float(smooth[: top + 1].min())
    high = np.flatnonzero(rise > (1 + SWELLS) / 2)
    if rise[top] < SWELLS or len(high) < SWELLS_FOR * len(smooth) or level > SWELLS_FROM * series.values[0]:
        return []
    height = float(smooth[top]) - level
    least = max(
        LEAST_OF_LEARNED * (float(series.values[0]) - level),
        SETBACK * local_noise(series.values[high[0] : high[-1] + 1]),
    )
    if height < least:
        return []
    first, last = int(high[0]) + OVER // 2, int(high[-1]) + OVER // 2
    peaks = ((one.steps, _rise_above_best(one.values)) for one in evaluated)
    shared = all(
        peak.max() >= SWELLS
        and peak[-1] < (1 + peak.max()) / 2
        and series.steps[first] <= steps[peak.argmax()] <= series.steps[last]
        for steps, peak in peaks
    )
    end = float(np.median(series.values[-2 * OVER :]))
    is_over = end < (level + float(smooth[top])) / 2
    return [_Spike(first, last, float(smooth[top]), level, False)] if shared and is_over else []


def _rise_above_best(values: Floats) -> Floats:
    """Return each value relative to the best one until then.

    >>> _rise_above_best(np.array([4.0, 2.0, 3.0, 1.0])).tolist()
    [1.0, 1.0, 1.5, 1.0]
    """
    rise: Floats = values / np.minimum.accumulate(values)
    return rise


def _levels(values: Floats) -> Floats:
    """Return the median of each stretch of values."""
    levels: Floats = np.median(np.lib.stride_tricks.sliding_window_view(values, AROUND), axis=1)
    return levels


def _wandering(values: Floats) -> float:
    """Return how far the level of values moves between stretches, up or down."""
    levels = _levels(values) if len(values) >= AROUND else values
    return float(np.abs(levels[AROUND:] - levels[:-AROUND]).max(initial=0.0)) or float(np.ptp(values) / 2)


def _begins_again(rate: Series) -> bool:
    """Whether a learning rate jumps up, as in schedules with restarts."""
    return bool((rate.values[1:] > 1.5 * rate.values[:-1]).any())


def _is_long(series: Series, spike: _Spike) -> bool:
    """Whether several values in succession stay near the top of a high spike.

    Or above the first values of the loss.
    """
    above = series.values[spike.first : spike.first + BACK] > ABOVE_FIRST * float(series.values[:EDGE].max())
    if spike.first >= AROUND and len(above) == BACK and above.all() and spike.top > HIGH * spike.level > 0:
        return True
    near_top = series.values[spike.first : spike.first + LONG] > (spike.level + spike.top) / 2
    return len(near_top) == LONG and bool(near_top.all()) and spike.top > HIGH * spike.level > 0


def _distance(points: Steps, to: Steps) -> Steps:
    """Return the distance of each point to the nearest of others, both ascending."""
    after = np.minimum(np.searchsorted(to, points), len(to) - 1)
    distance: Steps = np.minimum(np.abs(to[after] - points), np.abs(points - to[np.maximum(after - 1, 0)]))
    return distance


def _finding(
    series: Series, spikes: list[_Spike], manner: str, is_note: bool, shown: bool, harder: Series | None
) -> Finding:
    highest = max(spikes, key=lambda one: one.top - one.level)
    first, last = int(series.steps[spikes[0].first]), int(series.steps[spikes[-1].last])
    title = {
        "again": f"{series.quoted} jumps at step {first:,} to its first value, and falls as it did at first: as with new weights",
        "lasting": f"{series.quoted} jumps at step {first:,} and does not come back soon",
        "repeated": f"{series.quoted} jumps {len(spikes)} times and recovers",
        "long": f"{series.quoted} jumps at step {first:,} and recovers after step {last:,}",
        "swell": f"{series.quoted} rises from step {first:,} to {last:,} and falls again, and so does that of evaluations",
        "single": f"{series.quoted} jumps at step {first:,} and recovers",
    }[manner]
    if harder is not None:
        title += f", as {harder.quoted} changes"
    facts = {"series": series.quoted, "title": title, "level": highest.level, "top": highest.top}
    return Finding.of(
        "spike",
        "note" if is_note else "warning",
        "low" if is_note else "medium",
        first,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} {highest.level:.4g} → {highest.top:.4g}", first, last),) if shown else (),
    )
