"""Values that become NaN or infinite."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import Kind, RunData, Series, is_whole
from smdwidgets.finding import Finding, Level

#: Share of the values from the first lost one on that must be lost for a problem.
LOST_FOR_GOOD = 0.5
#: Values that must be lost where none was ever finite, of a training and of evaluations, which are few.
NEVER_FINITE, NEVER_EVALUATED = 3, 2

_KINDS = (Kind.LOSS, Kind.UNDIRECTED, Kind.GRADIENT_NORM, Kind.REWARD)


def not_finite(data: RunData) -> Iterator[Finding]:
    """Yield series that are lost for good, and losses that are lost at single steps."""
    # Metrics that are never computed are usual beside others.
    has_numbers = any(len(one) for one in data.of(Kind.LOSS, Kind.UNDIRECTED, Kind.METRIC, Kind.REWARD))
    kinds = _KINDS if has_numbers else (*_KINDS, Kind.METRIC)
    for series in data.series:
        if len(series.lost_steps) and series.kind in kinds:
            yield from _judge(data, series)


def _judge(data: RunData, series: Series) -> Iterator[Finding]:
    steps, lost = series.steps, series.lost_steps
    if not len(steps):
        # A part of a loss that is not computed is no fault of the training.
        losses = data.of(Kind.LOSS, Kind.UNDIRECTED)
        is_part = series in losses and any(is_whole(one) and len(one) for one in losses if one.role is series.role)
        if not is_part and len(lost) >= (NEVER_EVALUATED if series.role.is_held_out else NEVER_FINITE):
            yield _finding(series, lost, "problem")
        return
    lost = lost[lost > steps[0]]
    if not len(lost):
        return
    after = len(lost) + len(steps) - int(np.searchsorted(steps, lost[0]))
    if lost[-1] > steps[-1] and len(lost) >= LOST_FOR_GOOD * after:
        yield _finding(series, lost, "problem")
    elif series.kind is Kind.LOSS:
        yield _finding(series, lost, "warning")


def _finding(series: Series, lost: np.ndarray, level: Level) -> Finding:
    for_good = level == "problem"
    values = series.lost_values[np.searchsorted(series.lost_steps, lost[0]) :]
    what = "NaN" if np.isnan(values).all() else "infinite" if np.isinf(values).all() else "NaN or infinite"
    first, last = int(lost[0]), int(lost[-1])
    facts = {
        "series": series.quoted,
        "what": what,
        "when": f"since step {first:,}"
        if for_good
        else f"at step {first:,}"
        if len(lost) == 1
        else f"at {len(lost):,} steps",
        "share": f"{len(lost):,} of {len(series) + len(series.lost_steps):,} values",
    }
    text = f"{series.label}: {what} {facts['when']}"
    return Finding.of(
        "not_finite",
        level,
        "proof" if for_good else "medium",
        first,
        last,
        (series.name,),
        facts,
        (evidence(series, text, first, last),),
    )
