"""A training loss that follows the order of the data in each epoch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["order"]

#: Fewest whole epochs and values of each; fewest and most places of an epoch that are compared.
EPOCHS, VALUES, PLACES, MOST_PLACES = 2, 10, 12, 50
#: Fewest evaluations that may be the ends of epochs.
EVALUATIONS = 4
#: Correlation of the courses of two epochs, alone, among others, or among as many as follow, and the rise of the
#: logarithm of the loss in each.
ALIKE, ALIKE_AMONG, ALIKE_AMONG_MANY, MANY, RISES = 0.75, 0.55, 0.4, 6, 0.4


def order(data: RunData) -> Iterator[Finding]:
    """Yield a loss that rises and falls at the same places of each epoch."""
    epochs = data.epochs
    for loss in data.training_losses():
        along = _by_evaluations(data, loss) if epochs is None else _by_epochs(loss, epochs)
        courses = None if along is None else _courses(*along)
        if courses is not None and _repeat(courses):
            rise = float(np.exp(np.median([_rise(one) for one in courses])))
            facts = {"series": loss.quoted, "rise": rise, "epochs": len(courses), "numbers": from_to(loss)}
            yield beside("unshuffled", "problem", (loss,), facts)
            return


def _by_epochs(loss: Series, epochs: Series) -> tuple[Floats, Floats]:
    """Return the values of a loss, and the number of epochs until each."""
    steps, at, of = np.intersect1d(loss.steps, epochs.steps, return_indices=True)
    return loss.values[at], _along_epochs(steps, epochs.values[of])


def _by_evaluations(data: RunData, loss: Series) -> tuple[Floats, Floats] | None:
    """Return the same where each epoch ends with an evaluation.

    None without evaluations at regular distances.
    """
    for other in [*data.held_out(Kind.METRIC), *data.held_out(Kind.LOSS)]:
        distances = np.diff(other.steps)
        if len(other) >= EVALUATIONS and distances[0] > 1 and (distances == distances[0]).all():
            return loss.values, (loss.steps - other.steps[0]) / distances[0] + 1
    return None


def _courses(losses: Floats, when: Floats) -> Floats | None:
    """Return the logarithm of the loss at the same places of each whole epoch.

    None if too few values are known.
    """
    whole = int(when.max()) if len(when) else 0
    if whole < EPOCHS or losses.min() <= 0 or (np.diff(when) <= 0).any():
        return None
    inside = [(when > epoch) & (when <= epoch + 1) for epoch in range(whole)]
    values = min(int(one.sum()) for one in inside)
    if values < VALUES:
        return None
    # Sorted classes follow each other fast: with fewer places than values, their borders blur.
    places = (np.arange(count := min(max(values, PLACES), MOST_PLACES)) + 1) / count
    return np.array([np.interp(epoch + places, when[one], np.log(losses[one])) for epoch, one in enumerate(inside)])


def _along_epochs(steps: Steps, epochs: Floats) -> Floats:
    """Return the number of epochs until each step.

    Logs may have only the number of the epoch that goes on.

    >>> _along_epochs(np.array([4, 9, 14, 19]), np.array([0.0, 0.0, 1.0, 1.0]))
    array([0.5, 1. , 1.5, 2. ])
    """
    numbers, first, count = np.unique(epochs, return_index=True, return_counts=True)
    if count.max(initial=0) < 2 or (numbers % 1).any() or (np.diff(numbers) != 1).any() or len(numbers) < 2:
        return epochs
    length = int(np.median(np.diff(steps[first])))
    begins = np.repeat(steps[first], count)
    distance = int(np.median(np.diff(steps)))
    return np.asarray(epochs - numbers[0] + (steps - begins + distance) / length, float)


def _repeat(courses: Floats) -> bool:
    """Whether the loss rises and falls alike in all epochs.

    What is learned within an epoch, or a mean that begins again with each, only falls.
    """
    alike = np.asarray(np.corrcoef(courses))[np.triu_indices(len(courses), 1)]
    least = ALIKE if len(alike) == 1 else ALIKE_AMONG if len(courses) < MANY else ALIKE_AMONG_MANY
    return bool(np.median(alike) >= least and min(map(_rise, courses)) >= RISES)


def _rise(course: Floats) -> float:
    """Return the largest rise from one place of an epoch to a later one.

    >>> _rise(np.array([3.0, 1.0, 2.0]))
    1.0
    """
    return float((course - np.minimum.accumulate(course)).max())
