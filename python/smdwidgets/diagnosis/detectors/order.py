"""A training loss that follows the order of the data in each epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import words_of

__all__ = ["order"]

#: Fewest whole epochs and values of each; places of an epoch that are compared.
EPOCHS, VALUES, PLACES = 2, 10, 12
#: Correlation of the courses of two epochs, alone or among others, and the rise of the logarithm of the loss in each.
ALIKE, ALIKE_AMONG, RISES = 0.75, 0.55, 0.4


def order(data: RunData) -> Iterator[Finding]:
    """Yield a loss that rises and falls at the same places of each epoch."""
    epochs = next((one for one in data.of(Kind.HOUSEKEEPING) if words_of(one.name)[-1:] == ("epoch",)), None)
    if epochs is None:
        return
    for loss in data.training_losses():
        courses = _courses(loss, epochs)
        if courses is not None and _repeat(courses):
            rise = float(np.exp(np.median([_rise(one) for one in courses])))
            facts = {"series": loss.quoted, "rise": rise, "epochs": len(courses), "numbers": from_to(loss)}
            yield beside("unshuffled", "problem", (loss,), facts)
            return


def _courses(loss: Series, epochs: Series) -> Floats | None:
    """Return the logarithm of the loss at the same places of each whole epoch.

    None if too few values are known.
    """
    steps, at, of = np.intersect1d(loss.steps, epochs.steps, return_indices=True)
    losses, when = loss.values[at], epochs.values[of]
    whole = int(when.max()) if len(steps) else 0
    if whole < EPOCHS or losses.min() <= 0 or (np.diff(when) <= 0).any():
        return None
    rows = []
    for epoch in range(whole):
        inside = (when > epoch) & (when <= epoch + 1)
        if inside.sum() < VALUES:
            return None
        places = epoch + (np.arange(PLACES) + 0.5) / PLACES
        rows.append(np.interp(places, when[inside], np.log(losses[inside])))
    return np.array(rows)


def _repeat(courses: Floats) -> bool:
    """Whether the loss rises and falls alike in all epochs.

    What is learned within an epoch, or a mean that begins again with each, only falls.
    """
    alike = np.asarray(np.corrcoef(courses))[np.triu_indices(len(courses), 1)]
    least = ALIKE if len(alike) == 1 else ALIKE_AMONG
    return bool(np.median(alike) >= least and min(map(_rise, courses)) >= RISES)


def _rise(course: Floats) -> float:
    """Return the largest rise from one place of an epoch to a later one.

    >>> _rise(np.array([3.0, 1.0, 2.0]))
    1.0
    """
    return float((course - np.minimum.accumulate(course)).max())
