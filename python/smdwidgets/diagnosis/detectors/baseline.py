"""Forecasts that are no better than repeating what is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

__all__ = ["baseline"]

#: Fewest evaluations, and the share of them at the end that is judged.
LEAST_POINTS, LATE = 8, 2 / 3
#: Distance from the baseline, relative to it: of the median, and of each evaluation.
EQUAL, CLOSE = 0.02, 0.06
#: Fall of a training loss of a model that has learned something.
LEARNS = 0.5
#: Words of forecasts that need no model, and of a share by which a model is better.
_BASELINES = frozenset({"persistence", "naive", "baseline", "climatology"})
_SKILL = frozenset({"skill", "skillscore"})


def baseline(data: RunData) -> Iterator[Finding]:
    """Yield errors that equal those of a baseline beside a training loss that falls."""
    if data.of(Kind.REWARD):
        return  # the baseline of a policy is no forecast
    training = next((one for one in data.training_losses() if _has_learned(one)), None)
    if training is None:
        return
    for error, other in _pairs(data):
        if _is_nothing(error.values / other.values - 1):
            numbers = f"{from_to(error)}, {from_to(other)}"
            yield _finding(error, training, f"{error.quoted} equals {other.quoted}", numbers)
            return
    for skill in data.series:
        if not _SKILL.isdisjoint(skill.words) and len(skill) >= LEAST_POINTS and _is_nothing(skill.values):
            yield _finding(skill, training, f"{skill.quoted} stays at 0", from_to(skill))
            return


def _has_learned(loss: Series) -> bool:
    return len(loss) >= LEAST_POINTS and 0 < float(loss.values[-1]) < LEARNS * float(loss.values[0])


def _pairs(data: RunData) -> Iterator[tuple[Series, Series]]:
    """Yield the errors of evaluations with that of a baseline.

    The other words of the baseline are in their names, too.
    """
    errors = [one for one in data.of(Kind.LOSS) if len(one) >= LEAST_POINTS and one.role is not Role.TRAINING]
    words = {id(one): frozenset(one.words) for one in errors}
    for other in errors:
        measure = words[id(other)] - _BASELINES
        if measure == words[id(other)] or not measure or other.values.min() <= 0:
            continue
        for error in errors:
            is_of_model = measure <= words[id(error)] and words[id(error)].isdisjoint(_BASELINES)
            if is_of_model and np.array_equal(error.steps, other.steps):
                yield error, other


def _is_nothing(gain: Floats) -> bool:
    """Whether a model never does better, and as well at the end."""
    late = np.abs(gain[-max(LEAST_POINTS // 2, round(LATE * len(gain))) :])
    return float(np.median(late)) <= EQUAL and float(late.max()) <= CLOSE


def _finding(series: Series, training: Series, what: str, numbers: str) -> Finding:
    facts = {"what": f"{what}, although the training loss falls", "numbers": f"{numbers}; {from_to(training)}"}
    return beside("as_baseline", "warning", (series, training), facts)
