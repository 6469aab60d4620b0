"""Curves and steps of series, as evidence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.blocks import block_length
from smdwidgets.diagnosis.inputs import Series
from smdwidgets.finding import Confidence, Curve, Evidence, Finding, Level

#: Points of a small plot.
_POINTS = 96


def step_of_block(series: Series, block: int) -> int:
    """Return the first step of a block of the series' trend."""
    length = series.trend.length if series.trend is not None else block_length(len(series))
    return int(series.steps[min(block * length, len(series) - 1)])


def evidence(series: Series, text: str, begin: int | None = None, end: int | None = None) -> Evidence:
    """Return a fact about a series with its curve, thinned to some dozens of points.

    Extremes are kept: each stretch contributes its smallest and largest value.
    """
    at = _extremes(series.values)
    curve = Curve(series.label, tuple(series.steps[at].tolist()), tuple(series.values[at].tolist()), begin, end)
    return Evidence(text, series.name, curve=curve)


def course(series: Series, begin: int | None = None, end: int | None = None) -> Evidence:
    """Return the first and the last value of a series, with its curve."""
    return evidence(series, f"{series.label} {series.values[0]:.4g} → {series.values[-1]:.4g}", begin, end)


def beside(
    kind: str, level: Level, series: Sequence[Series], facts: Mapping[str, object], since: int | None = None
) -> Finding:
    """Return a finding about the first of some series, with the course of each.

    Its confidence is medium. It lasts from a step on, or from the first one, to the end of that series.
    """
    first, last = int(series[0].steps[0]) if since is None else since, int(series[0].steps[-1])
    shown = tuple(course(one, first, last) for one in series)
    return Finding.of(kind, level, "medium", first, last, tuple(one.name for one in series), facts, shown)


def unlearned(series: Series, facts: Mapping[str, object], confidence: Confidence = "medium") -> Finding:
    """Return the finding for a loss or reward that does not get better.

    The facts hold its course as `detail`.
    """
    first, last = int(series.steps[0]), int(series.steps[-1])
    shown = evidence(series, str(facts["detail"]).replace("`", ""), first, last)
    facts = {"series": series.quoted, **facts}
    return Finding.of("not_learning", "problem", confidence, first, last, (series.name,), facts, (shown,))


#: What to try for rewards. Labels and losses do not concern them.
ADVICE_OF_REWARDS = (
    "Compare the reward with that of random actions, or of the model before the training; look at some episodes or answers with "
    "their rewards: groups of equal rewards teach nothing; then check the learning rate, and whether the policy still explores."
)


def unrewarded(series: Series, facts: Mapping[str, object], confidence: Confidence = "medium") -> Finding:
    """Return the finding for a reward that does not rise, with its own advice."""
    return replace(unlearned(series, facts, confidence), try_=ADVICE_OF_REWARDS)


def from_to(series: Series) -> str:
    """Return the name of a series with its first and last value, for a sentence."""
    return f"{series.quoted} {series.values[0]:.3g} → {series.values[-1]:.3g}"


def guessing(classes: float) -> str:
    """Return the loss of guessing among classes, for a sentence.

    >>> guessing(10)
    'guessing 10 classes gives 2.3'
    """
    return f"guessing {round(classes)} classes gives {math.log(classes):.3g}"


def _extremes(values: Floats) -> Steps:
    """Return the indices of the smallest and largest value of each stretch.

    The first and the last value are always included.
    """
    count = len(values)
    if count <= _POINTS:
        return np.arange(count)
    length = -(-count // (_POINTS // 2))
    whole = count // length
    stretches = values[: whole * length].reshape(whole, length)
    begins = np.arange(whole) * length
    return np.unique([*begins + stretches.argmin(axis=1), *begins + stretches.argmax(axis=1), 0, count - 1])
