"""Trainings that get slower, and trainings that wait for their data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import beside
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import mann_kendall
from smdwidgets.finding import Finding

__all__ = ["efficiency"]

#: Fewest values, the share of the run that is a warm-up, the speed at the end relative to that at first, and the
#: statistic of its trend.
LEAST_POINTS, WARM_UP, SLOWER, FALLING = 30, 0.05, 0.625, -4.0
#: Share of the values at the end that lie below as many of the first ones.
NEARLY_ALL = 0.8
#: Fewest steps whose durations are known, and the share of the time for which a training waits.
LEAST_STEPS, WAITS = 20, 0.6
_PER_TIME = frozenset({"sec", "secs", "second", "seconds", "s"})
_COUNTED = frozenset({"samples", "sample", "tokens", "token", "tok", "toks", "examples", "images", "img", "imgs", "it"})
#: Words of what makes each sample larger.
_SIZE = frozenset({"len", "length", "seqlen", "context", "resolution", "res", "batch", "curriculum"})
#: Words of the duration of a step, and those of the part of it in which data are loaded.
_OF_STEP = frozenset({"time", "iter", "step", "batch", "total", "train"})
_OF_DATA = frozenset({"data", "dataloader", "loader", "loading", "load", "fetch"})


def efficiency(data: RunData) -> Iterator[Finding]:
    """Yield speeds that fall for most of the run, and steps that mostly wait."""
    if data.of(Kind.REWARD):
        return  # the speed of an environment depends on what the policy does
    yield from _slows_down(data)
    yield from _waits(data)


def _slows_down(data: RunData) -> Iterator[Finding]:
    speeds = [one for one in data.of(Kind.HOUSEKEEPING) if _is_speed(one) and len(one) >= LEAST_POINTS]
    if not speeds or not all(map(_falls, speeds)) or _size_changes(data):
        return
    speed = speeds[0]
    part = len(speed) // 3
    before, after = float(np.median(speed.values[:part])), float(np.median(speed.values[-part:]))
    above = np.flatnonzero(speed.values >= (before + after) / 2)
    facts = {"series": speed.quoted, "before": before, "after": after, "share": 1 - after / before}
    yield beside("slows_down", "warning", (speed,), facts, int(speed.steps[above[-1]]))


def _is_speed(series: Series) -> bool:
    words = frozenset(series.words)
    is_rate = bool(words & _PER_TIME and words & _COUNTED) or "throughput" in words
    return is_rate and not series.role.is_held_out


def _falls(speed: Series) -> bool:
    """Whether nearly all values of the last third are below those of the first one."""
    values = speed.values[max(1, int(WARM_UP * len(speed))) :]
    part = len(values) // 3
    first, last = values[:part], values[-part:]
    if first.min() <= 0 or np.median(last) > SLOWER * np.median(first):
        return False
    is_apart = np.quantile(last, NEARLY_ALL) < np.quantile(first, 1 - NEARLY_ALL)
    return bool(is_apart) and float(mann_kendall(values[None])[0]) <= FALLING


def _size_changes(data: RunData) -> bool:
    """Whether the size of samples or batches is logged, and grows."""
    return any(
        len(one) > 1 and one.values[-1] > one.values[0] and not _SIZE.isdisjoint(one.words) and not _is_speed(one)
        for one in data.of(Kind.HOUSEKEEPING, Kind.UNKNOWN)
    )


def _waits(data: RunData) -> Iterator[Finding]:
    times = [one for one in data.of(Kind.HOUSEKEEPING) if len(one) >= LEAST_STEPS and not one.role.is_held_out]
    for part in times:
        words = frozenset(part.words)
        if words.isdisjoint(_OF_DATA) or "time" not in words:
            continue
        for whole in times:
            of = frozenset(whole.words)
            is_whole = "time" in of and of <= _OF_STEP | (words - _OF_DATA)  # both may be named after a group
            if not is_whole or not np.array_equal(whole.steps, part.steps):
                continue
            if part.values.min() < 0 or (part.values > whole.values).any() or whole.values.min() <= 0:
                continue  # other durations, or one since the beginning
            shares = part.values / whole.values
            share = float(np.median(shares[len(shares) // 4 :]))
            if np.ptp(whole.values) == 0 or (np.diff(whole.values) > 0).all() or share < WAITS:
                continue
            facts = {"series": part.quoted, "share": share, "of": whole.quoted}
            yield beside("waits_for_data", "note", (part, whole), facts)
            return
