"""Accuracies of evaluations, beside their losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.inputs import Kind, RunData, Series

__all__ = ["Evaluations", "as_share", "evaluations", "is_accuracy"]

#: Words of a share of samples whose first guess is right.
_WORDS = frozenset({"acc", "accuracy", "acc1", "top1", "prec1"})


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


def is_accuracy(series: Series) -> bool:
    """Whether a series is an accuracy with values."""
    return bool(len(series) and _WORDS.intersection(series.stem))


def as_share(accuracy: Series) -> Floats:
    """Return an accuracy as shares of 1."""
    return accuracy.values / 100 if accuracy.values.max() > 1 else accuracy.values


def evaluations(data: RunData) -> Iterator[Evaluations]:
    """Yield the accuracies of held-out data with each loss of these data."""
    losses = data.held_out(Kind.LOSS)
    for accuracy in data.held_out(Kind.METRIC):
        if not is_accuracy(accuracy):
            continue
        share = as_share(accuracy)
        yield from (Evaluations(loss, accuracy, share) for loss in losses if loss.role is accuracy.role)
