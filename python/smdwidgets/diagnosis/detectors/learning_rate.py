"""A learning rate that is 0, or that jumps up."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise
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
#: A jump that is smaller but raises the loss: its factor, the values of the loss on either side, and their rise.
SMALL_JUMP, BESIDE, LOSS_RISES = 1.5, 6, 0.1
#: Values before the jump whose rate must fall, so that it is neither a warm-up nor a cycle.
DECAYS = 5


def learning_rate(data: RunData) -> Iterator[Finding]:
    """Yield rates of 0, and jumps that may explain what follows."""
    for series in data.of(Kind.LEARNING_RATE):
        if len(series) >= LEAST_POINTS:
            yield from _zero(series)
            jumps = list(_jump(series))
            yield from jumps or _small_jump(data, series)


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


def _small_jump(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a rate that decays and jumps back once, if the loss jumps, too.

    So does a schedule that begins again.
    """
    values, steps = series.values, series.steps
    with np.errstate(all="ignore"):
        jumps = np.flatnonzero(values[1:] >= SMALL_JUMP * values[:-1]) + 1
    jumps = jumps[(values[jumps - 1] > 0) & (steps[jumps] - steps[0] > WARM_UP * (steps[-1] - steps[0]))]
    if len(jumps) != 1 or jumps[0] < DECAYS:
        return
    at = int(jumps[0])
    before = values[at - DECAYS : at]
    loss = max(data.training_losses(), key=len, default=None)
    if not (np.diff(before) <= 0).all() or before[0] == before[-1] or loss is None:
        return
    onset, last = int(steps[at]), int(steps[-1])
    here = int(np.searchsorted(loss.steps, onset))
    earlier, later = loss.values[max(0, here - BESIDE) : here], loss.values[here : here + BESIDE]
    if min(len(earlier), len(later)) < BESIDE:
        return
    level, risen = float(np.median(earlier)), float(np.median(later))
    if risen - level <= max(LOSS_RISES * abs(level), 3 * local_noise(earlier)):
        return
    facts = {
        "series": series.quoted,
        "before": float(values[at - 1]),
        "after": float(values[at]),
        "until": "",
        "back": f"; {loss.quoted} {level:.3g} → {risen:.3g}. After a restart, often the state of schedule and optimizer is lost",
    }
    shown = (
        evidence(series, f"{series.label} {values[at - 1]:.3g} → {values[at]:.3g}", onset, last),
        evidence(loss, f"{loss.label} {level:.3g} → {risen:.3g}", onset, last),
    )
    yield Finding.of("rate_rise", "problem", "medium", onset, last, (series.name, loss.name), facts, shown)
    title = f"{loss.quoted} rises at step {onset:,}, where the learning rate jumps"
    risen_facts = {"series": loss.quoted, "title": title, "level": level, "top": risen}
    yield Finding.of("spike", "warning", "medium", onset, last, (loss.name,), risen_facts, shown[1:])


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
