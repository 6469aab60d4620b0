"""A learning rate that is 0, or that jumps up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

LEAST_POINTS = 10
#: Share of the run at whose end a rate of 0 is reported.
ZERO = 0.2
#: Share of the largest rate that is as good as 0.
NOTHING = 1e-5
#: Factor within a few points that is a jump, not a warm-up.
JUMP = 5.0
#: Rises within the first part of the run are a warm-up.
WARM_UP = 0.1
WITHIN = 3


def learning_rate(data: RunData) -> Iterator[Finding]:
    """Yield rates of 0, and jumps that may explain what follows."""
    for series in data.of(Kind.LEARNING_RATE):
        if len(series) >= LEAST_POINTS:
            yield from _zero(series)
            yield from _jump(series)


def _zero(series: Series) -> Iterator[Finding]:
    largest = float(series.values.max(initial=0))
    if not series.values[-1] <= NOTHING * largest:
        return
    trained = np.flatnonzero(series.values > NOTHING * largest)
    first = int(trained[-1]) + 1 if len(trained) else 0
    steps = series.steps
    if steps[-1] - steps[first] < ZERO * (steps[-1] - steps[0]):
        return
    onset, last = int(steps[first]), int(steps[-1])
    when = f"since step {onset:,}" if first else "at every step"
    if series.values[-1]:
        when = f"compared with its largest value of {largest:.3g} ({series.values[-1]:.2g}) {when}"
    facts = {"series": series.quoted, "when": when, "count": len(series) - first}
    yield Finding.of(
        "rate_zero",
        "warning" if first else "problem",
        "medium" if first else "proof",
        onset,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} is 0 {when}", onset, last),),
    )


def _jump(series: Series) -> Iterator[Finding]:
    values = series.values
    before, after = values[:-WITHIN], values[WITHIN:]
    jumps = np.flatnonzero((after >= JUMP * before) & (before > 0)) + WITHIN
    span = int(series.steps[-1] - series.steps[0])
    jumps = jumps[series.steps[jumps] - series.steps[0] > WARM_UP * span]
    if not len(jumps):
        return
    at = int(jumps[0])
    # The first of the few points that are already high.
    low = values[at - WITHIN]
    at = next(one for one in range(at - WITHIN + 1, at + 1) if values[one] >= JUMP * low or one == at)
    high = float(values[at])
    # It is back where it is nearer to what it was before, by ratio.
    back = at + np.flatnonzero(values[at:] ** 2 < low * high)
    onset, last = int(series.steps[at]), int(series.steps[back[0] - 1] if len(back) else series.steps[-1])
    facts = {
        "series": series.quoted,
        "before": float(low),
        "after": high,
        "until": f" and is back at step {series.steps[back[0]]:,}" if len(back) else "",
        "back": f" → {values[back[0]]:.3g}" if len(back) else "",
    }
    yield Finding.of(
        "rate_rise",
        "problem",
        "medium",
        onset,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} {low:.3g} → {values[at]:.3g}", onset, last),),
    )
