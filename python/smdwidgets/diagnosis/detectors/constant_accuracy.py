"""Evaluations that are right equally often, whatever the training changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

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


def constant_accuracy(data: RunData) -> Iterator[Finding]:
    """Yield accuracies that are the same at all evaluations while their loss changes.

    The model then gives all samples the same class.
    """
    for loss, accuracy, share in evaluations(data):
        if min(len(loss), len(accuracy)) < LEAST_EVALUATIONS or np.ptp(accuracy.values) > 0 or share[0] >= ALMOST_ALL:
            continue
        if np.ptp(loss.values) > LEAST_CHANGE * abs(float(loss.values[0])):
            yield _finding(accuracy, loss, float(share[0]))
            return


def _finding(accuracy: Series, loss: Series, share: float) -> Finding:
    first, last = int(accuracy.steps[0]), int(accuracy.steps[-1])
    facts = {
        "share": share,
        "title": f"{accuracy.quoted} is {share:.4g} at each of {len(accuracy):,} evaluations, while their loss changes: the model "
        "predicts one class",
        "subject": f"{loss.quoted} {loss.values[0]:.4g} → {loss.values[-1]:.4g}",
    }
    shown = evidence(accuracy, f"{accuracy.label} {share:.4g} at all evaluations", first, last)
    return Finding.of("one_class", "problem", "medium", first, last, (accuracy.name,), facts, (shown,))
