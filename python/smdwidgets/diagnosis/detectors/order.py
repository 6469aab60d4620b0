"""A training loss that follows the order of the data in each epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.detectors._evaluations import as_share, evaluations, is_accuracy
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
#: Correlation of neighbouring places of an epoch from which on they follow each other, and the rise of the logarithm of
#: the loss that single batches in a fixed order do not reach.
NEIGHBOURS, OF_SINGLE_BATCHES = 0.3, math.log(4)
#: Part of the first epoch at whose end the loss is far above its first value, and by what factor.
LATE_IN_EPOCH, ABOVE_FIRST = 3, math.log(1.5)
#: Fewest values in which teeth are looked for, fewest teeth and values of one, and logs within which it rises.
LEAST_OF_TEETH, TEETH, OF_TOOTH, FEW_TO_TOP = 60, 8, 7, 3
#: Logarithm of the factor by which a tooth rises, share of the values that lie in teeth, share of the differences
#: within them that are falls, and how far their lengths may differ.
TOOTH, MOST_IN_TEETH, MOST_FALLING, SIMILAR = 0.3, 0.7, 0.75, 3.5
#: Fewest epochs; accuracy of the first one relative to what its loss lets expect, and that of the evaluation after it
#: relative to that.
LEAST_EPOCHS, WORSE, BETTER = 5, 0.75, 3.0


def order(data: RunData) -> Iterator[Finding]:
    """Yield a loss that rises and falls at the same places of each epoch."""
    epochs = data.epochs
    for loss in data.training_losses():
        along = _by_evaluations(data, loss) if epochs is None else _by_epochs(loss, epochs)
        courses = None if along is None else _courses(*along)
        if courses is not None and _repeat(courses):
            rise = float(np.exp(np.median([_rise(one) for one in courses])))
            facts = {
                "what": f"{loss.quoted} rises and falls at the same places of each epoch, by a factor of {rise:.2g}",
                "numbers": f"{len(courses)} epochs; {from_to(loss)}",
            }
            yield beside("unshuffled", "problem", (loss,), facts)
            return
    yield from next((findings for judge in (_in_teeth, _worse_than_guessing) if (findings := list(judge(data)))), [])


def _in_teeth(data: RunData) -> Iterator[Finding]:
    """Yield a loss that jumps again and again, and falls back in between.

    Noise of batches returns at once. A model that forgets has to learn again.
    """
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_OF_TEETH or data.of(Kind.REWARD) or loss.values.min() <= 0:
        return
    rates = [one.values for one in data.of(Kind.LEARNING_RATE) if len(one) > 1]
    if len(data.stages) > 1 or any((np.diff(one) > 0.5 * one.max()).sum() > 1 for one in rates):
        return  # a rate or an optimizer that begins again makes teeth, too
    teeth = _teeth(np.log(loss.values))
    if len(teeth) < TEETH:
        return
    lengths = np.array([len(one) for one in teeth])
    falling = np.concatenate([np.diff(one) <= 0 for one in teeth])
    falls = np.array([one[0] - one[-1] for one in teeth])
    low, high = np.quantile(lengths, [0.2, 0.8])
    is_whole = lengths.sum() >= MOST_IN_TEETH * len(loss)
    if is_whole and falling.mean() >= MOST_FALLING and np.median(falls) >= TOOTH and high <= SIMILAR * low:
        rise = float(np.exp(np.median(falls)))
        facts = {
            "what": f"{loss.quoted} jumps up {len(teeth)} times, by a factor of about {rise:.2g}, and falls in between",
            "numbers": f"{np.median(lengths):.0f} values between two jumps; {from_to(loss)}",
        }
        yield beside("unshuffled", "problem", (loss,), facts)


def _teeth(values: Floats) -> list[Floats]:
    """Return the stretches of a series between two jumps.

    >>> [len(one) for one in _teeth(np.tile(np.linspace(3, 2, 8), 3))]
    [8, 8, 8]
    """
    rises = np.diff(values, prepend=values[0] - TOOTH)
    at: list[int] = []
    begin = 0
    while begin < len(values):
        end = begin
        while rises[begin] > 0 and end + 1 < len(values) and rises[end + 1] > 0 and end - begin < FEW_TO_TOP:
            end += 1
        low = values[begin - 1] if begin else -np.inf
        if rises[begin] > 0 and values[end] - low >= TOOTH:
            at.append(end)
        begin = end + 1
    ends = [*at, len(values)]
    return [values[one:other] for one, other in pairwise(ends) if other - one >= OF_TOOTH]


def _worse_than_guessing(data: RunData) -> Iterator[Finding]:
    """Yield an epoch in which the model is worse than guessing, by an evaluation.

    After batches of one class, the next one is always wrong. A model is right more often than the probability that its
    loss gives to the right class, whatever it has learned.
    """
    for training in data.of(Kind.METRIC):
        loss = data.longest_loss
        if training.role.is_held_out or not is_accuracy(training) or loss is None or not len(loss):
            continue
        for one in evaluations(data):
            few = training.stem != one.accuracy.stem or min(len(training), len(one.share), len(one.loss)) < LEAST_EPOCHS
            if few or not np.array_equal(training.steps, one.accuracy.steps) or len(loss) != len(training):
                continue
            first, other = float(as_share(training)[0]), float(one.share[0])
            guess = math.exp(-float(loss.values[0]))
            if first >= WORSE * guess or other < BETTER * first or one.loss.values[0] >= loss.values[0] or guess < 1e-3:
                continue
            facts = {
                "what": f"In the first epoch {training.quoted} is {first:.3g}, worse than guessing, and {one.accuracy.quoted} {other:.3g} after it",
                "numbers": f"{from_to(loss)}, {from_to(training)}, {from_to(one.accuracy)}",
            }
            yield beside("unshuffled", "problem", (loss, training), facts)
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
    if len(courses) >= MANY and np.median(alike) >= ALIKE and _unlearns(courses[0]):
        return float(np.median([_rise(one) for one in courses])) >= RISES
    if _is_of_single_batches(courses):
        return False
    least = ALIKE if len(alike) == 1 else ALIKE_AMONG if len(courses) < MANY else ALIKE_AMONG_MANY
    return bool(np.median(alike) >= least and min(map(_rise, courses)) >= RISES)


def _unlearns(course: Floats) -> bool:
    """Whether a loss is far above its first value for most of the first epoch.

    A model learns the first classes of sorted data at once, and is wrong about each class that follows.

    >>> _unlearns(np.log([1.3, 2.1, 3.0, 3.4, 3.6, 3.4])), _unlearns(np.log([2.3, 2.4, 1.8, 1.9, 1.2, 1.1]))
    (True, False)
    """
    late = course[-max(1, len(course) // LATE_IN_EPOCH) :]
    return bool(min(np.median(course), np.median(late)) >= course[0] + ABOVE_FIRST)


def _is_of_single_batches(courses: Floats) -> bool:
    """Whether neighbouring places are as different as any others.

    Batches that were drawn at random once, and come in the same order again, have losses of the same ranks in each
    epoch. Sorted data have stretches that are alike.

    >>> stretches = np.log([[1, 1, 1, 2, 2, 2, 1, 1, 1, 2, 2, 2.0]] * 2)
    >>> _is_of_single_batches(stretches), _is_of_single_batches(stretches[:, [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]])
    (False, True)
    """
    mean = courses.mean(0)
    places = np.arange(len(mean))
    mean = mean - np.polyval(np.polyfit(places, mean, 1), places)
    size = float((mean**2).sum())
    neighbours = float((mean[1:] * mean[:-1]).sum()) / size if size else 0.0
    return neighbours < NEIGHBOURS and float(np.median([_rise(one) for one in courses])) < OF_SINGLE_BATCHES


def _rise(course: Floats) -> float:
    """Return the largest rise from one place of an epoch to a later one.

    >>> _rise(np.array([3.0, 1.0, 2.0]))
    1.0
    """
    return float((course - np.minimum.accumulate(course)).max())
