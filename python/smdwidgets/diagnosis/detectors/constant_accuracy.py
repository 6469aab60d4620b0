"""Evaluations that are right equally often, whatever the training changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._accuracy import evaluations
from smdwidgets.diagnosis.detectors._show import evidence
from smdwidgets.diagnosis.inputs import RunData, Series
from smdwidgets.finding import Finding

#: Evaluations that show it.
LEAST_EVALUATIONS = 5
#: Change of the loss of the same evaluations, relative to its level, from which on weights move.
LEAST_CHANGE = 0.02
#: An accuracy from which on a model that classifies everything well is as constant.
ALMOST_ALL = 0.97
#: Rounding of an accuracy in a log.
SAME = 2e-4


def constant_accuracy(data: RunData) -> Iterator[Finding]:
    """Yield accuracies that are the same at all evaluations while their loss changes.

    The model then gives all samples the same class.
    """
    for loss, accuracy, share in evaluations(data):
        since = since_one_class(share)
        if min(len(loss), len(share) - since) < LEAST_EVALUATIONS or share[-1] >= ALMOST_ALL:
            continue
        if np.ptp(loss.values) > LEAST_CHANGE * abs(float(loss.values[0])):
            yield _finding(accuracy, loss, share, since)
            return


def since_one_class(share: Floats) -> int:
    """Return since which evaluation an accuracy is that of one class.

    That is 0 if it is always the same, and else where it is that of either of two classes up to the end. What has been
    learned may be right equally often at the end, so one number counts only for the whole run.

    >>> [since_one_class(np.array(one)) for one in ([0.9, 0.48, 0.52, 0.52], [0.1, 0.1], [0.8, 0.9, 0.9])]
    [1, 0, 3]
    """
    last = float(share[-1])
    is_other = np.abs(share - (1 - last)) <= SAME
    misses = np.flatnonzero((share != last) & ~is_other)
    since = int(misses[-1]) + 1 if len(misses) else 0
    return since if not since or (is_other[since:] & (share[since:] != last)).any() else len(share)


def _finding(accuracy: Series, loss: Series, share: Floats, since: int) -> Finding:
    first, last = int(accuracy.steps[since]), int(accuracy.steps[-1])
    values = " or ".join(f"{one:.4g}" for one in np.unique(np.round(share[since:], 6))[::-1])
    count = f"{len(share) - since:,} evaluations"
    where = f"{count} in succession" if since else f"each of {count}"
    facts = {
        "title": f"{accuracy.quoted} is {values} at {where}, while their loss changes: the model predicts one class",
        "subject": f"{loss.quoted} {loss.values[0]:.4g} → {loss.values[-1]:.4g}",
    }
    shown = evidence(accuracy, f"{accuracy.label} {values}", first, last)
    return Finding.of("one_class", "problem", "medium", first, last, (accuracy.name,), facts, (shown,))
