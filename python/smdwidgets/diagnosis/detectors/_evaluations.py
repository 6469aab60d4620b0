"""Evaluations: their accuracies and losses, and the training beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.step_axes import steps_along

__all__ = [
    "FEW",
    "FEWEST",
    "MANY",
    "Evaluations",
    "Pair",
    "as_share",
    "evaluations",
    "few_samples",
    "is_accuracy",
    "is_area",
    "is_share_of_errors",
    "is_share_of_pairs",
    "logged_pairs",
    "pair",
]

#: Fewest evaluations that show a clear fact, that show something, and that show how much they vary.
FEWEST, FEW, MANY = 3, 5, 12
#: Fewest steps at which both losses of a pair are known.
SHARED = 4
#: Samples of an evaluation that are few, and the rounding of a share.
MOST_OF_FEW, ROUNDED = 100, 6e-5

#: Words of a share of samples whose first guess is right.
_WORDS = frozenset({"acc", "accuracy", "acc1", "top1", "prec1"})
#: Words of shares of samples whose right class is the first guess, or among the first five.
_TOP = frozenset({"top1", "top5", "acc1", "acc5", "prec1", "prec5"})
#: Words of an area under the curve.
_OF_AREAS = frozenset({"auc", "auroc"})
#: What scikit-learn calls the accuracy of a network.
_OF_SCIKIT_LEARN = "validation score"
#: Names of a share of samples whose first guess is wrong, as XGBoost has them.
_OF_ERRORS = frozenset({("error",), ("merror",)})


class Evaluations(NamedTuple):
    """A loss and an accuracy of the same held-out data.

    Attributes:
        loss: the loss.
        accuracy: the accuracy, in the unit of the run.
        share: the values of the accuracy as shares of 1.
    """

    loss: Series
    accuracy: Series
    share: Floats


class Pair(NamedTuple):
    """Values of a training loss and of the held-out loss, at the same steps."""

    training: Floats
    held_out: Floats


def is_accuracy(series: Series) -> bool:
    """Whether a series is an accuracy with values."""
    return bool(len(series) and (_WORDS.intersection(series.stem) or series.name.lower() == _OF_SCIKIT_LEARN))


def is_area(series: Series) -> bool:
    """Whether a series is an area under the curve."""
    return not _OF_AREAS.isdisjoint(series.stem)


def is_share_of_pairs(series: Series) -> bool:
    """Whether a series is the share of pairs of answers that are ordered right."""
    return series.words[-1:] in (("accuracies",), ("accuracy",)) and "rewards" in series.words


def as_share(accuracy: Series) -> Floats:
    """Return an accuracy as shares of 1."""
    return accuracy.values / 100 if accuracy.values.max() > 1 else accuracy.values


def few_samples(share: Floats) -> float:
    """Return how many samples were evaluated, if an accuracy shows that they are few.

    All of its values are then multiples of one fraction. One that is always the same does not tell.

    >>> [few_samples(np.array(share)) for share in ([0.3333, 0.6, 0.8667], [0.3333, 0.6125, 0.87], [1.0, 1.0])]
    [15, inf, inf]
    """
    if len(share) and np.ptp(share):
        for samples in range(2, MOST_OF_FEW + 1):
            counts = share * samples
            if float(np.abs(counts - np.round(counts)).max()) <= ROUNDED * samples:
                return samples
    return math.inf


def evaluations(data: RunData) -> Iterator[Evaluations]:
    """Yield the accuracies of held-out data with each loss of these data."""
    errors = [one for one in data.held_out(Kind.LOSS) if is_share_of_errors(one)]
    losses = [one for one in data.held_out(Kind.LOSS) if one not in errors]
    # The loss of pairs of answers does not depend on how many of their tokens are right.
    of_pairs = any(is_share_of_pairs(one) for one in data.series)
    accuracies = [
        one for one in data.held_out(Kind.METRIC) if is_accuracy(one) and not (of_pairs and "token" in one.words)
    ]
    # Accuracies that are always below 1 % look like shares, but those beside them do not.
    first_guesses = [one for one in data.held_out(Kind.METRIC) if len(one) and not _TOP.isdisjoint(one.stem)]
    percent = first_guesses if any(one.values.max() > 1 for one in first_guesses) else []
    shares = [(one, one.values / 100 if one in percent else as_share(one)) for one in accuracies]
    for accuracy, share in [*shares, *((one, 1 - one.values) for one in errors)]:
        yield from (Evaluations(loss, accuracy, share) for loss in losses if loss.role is accuracy.role)


def is_share_of_errors(series: Series) -> bool:
    """Whether a series is the share of samples whose first guess is wrong."""
    return bool(len(series)) and series.stem in _OF_ERRORS and 0 <= series.values.min() <= series.values.max() <= 1


def logged_pairs(data: RunData) -> Iterator[tuple[Series, Series]]:
    """Yield the losses of evaluations that were logged, beside that of the training.

    A hook finds losses of evaluations itself, which may be those of few samples, or of another form.
    """
    for loss in data.held_out(Kind.LOSS) if not len(data.tensors) else ():
        training = data.partner(loss)
        if training is not None:
            yield loss, training


def pair(loss: Series, training: Series, least: int = SHARED) -> Pair | None:
    """Return the values of both at all evaluations but the first one."""
    if len(loss) < least or len(training) < least or loss.steps[0] == loss.steps[-1]:
        return None
    steps = steps_along(loss, training)
    inside = steps[1:]
    inside = inside[(inside >= training.steps[0]) & (inside <= training.steps[-1])]
    if len(inside) < least:
        return None
    at = np.searchsorted(steps, inside)
    return Pair(np.interp(inside, training.steps, training.values), loss.values[at])
