"""Accuracies of evaluations, beside their losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.inputs import Kind, RunData, Series

__all__ = ["Evaluations", "as_share", "evaluations", "is_accuracy", "is_area", "is_share_of_errors"]

#: Words of a share of samples whose first guess is right.
_WORDS = frozenset({"acc", "accuracy", "acc1", "top1", "prec1"})
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


def is_accuracy(series: Series) -> bool:
    """Whether a series is an accuracy with values."""
    return bool(len(series) and (_WORDS.intersection(series.stem) or series.name.lower() == _OF_SCIKIT_LEARN))


def is_area(series: Series) -> bool:
    """Whether a series is an area under the curve."""
    return not _OF_AREAS.isdisjoint(series.stem)


def as_share(accuracy: Series) -> Floats:
    """Return an accuracy as shares of 1."""
    return accuracy.values / 100 if accuracy.values.max() > 1 else accuracy.values


def evaluations(data: RunData) -> Iterator[Evaluations]:
    """Yield the accuracies of held-out data with each loss of these data."""
    errors = [one for one in data.held_out(Kind.LOSS) if is_share_of_errors(one)]
    losses = [one for one in data.held_out(Kind.LOSS) if one not in errors]
    shares = [(one, as_share(one)) for one in data.held_out(Kind.METRIC) if is_accuracy(one)]
    for accuracy, share in [*shares, *((one, 1 - one.values) for one in errors)]:
        yield from (Evaluations(loss, accuracy, share) for loss in losses if loss.role is accuracy.role)


def is_share_of_errors(series: Series) -> bool:
    """Whether a series is the share of samples whose first guess is wrong."""
    return bool(len(series)) and series.stem in _OF_ERRORS and 0 <= series.values.min() <= series.values.max() <= 1
