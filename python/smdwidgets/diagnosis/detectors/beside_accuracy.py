"""Losses that contradict the accuracies beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, evaluations, is_accuracy
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["beside_accuracy"]

#: Fewest evaluations, an accuracy of them that is no chance, and how often they are right relative to the training,
#: which neither mixed samples nor strong augmentation explain; evaluations that show it, and the least training loss at
#: the end, relative to its first value.
LEAST_EVALUATIONS, LEARNED, TIMES, OFTEN, STAYS = 5, 0.4, 3.0, 3, 0.4
#: Fewest losses that stay at that of guessing, a good accuracy beside them, the least loss relative to the first one,
#: how even it is, how near the first one is to that of guessing, and the classes.
LEAST_LOSSES, GOOD, NEAR_FIRST, EVEN, GUESSED, CLASSES = 5, 0.9, 0.93, 0.01, 0.012, range(3, 1001)
#: Fewest values of a loss that is one number, how far rounding in sums of other orders parts them, relative to it, and
#: that number relative to the loss of guessing.
LEAST_CONSTANT, ROUNDED, FAR_ABOVE = 8, 1e-6, 2.0


def beside_accuracy(data: RunData) -> Iterator[Finding]:
    """Yield losses that are far from what the accuracies beside them allow."""
    yield from _right_without_dropout(data)
    yield from _right_at_the_loss_of_guessing(data)
    yield from _surely_wrong(data)


def _right_without_dropout(data: RunData) -> Iterator[Finding]:
    """Judge a training that is hardly ever right beside evaluations that are.

    Dropout is the difference of both. Mixed samples hide at most half of the answers.
    """
    loss = data.longest_loss
    if loss is None or not len(loss) or loss.values[-1] < STAYS * loss.values[0]:
        return
    for training in _of_training(data):
        for one in evaluations(data):
            _, at, of = np.intersect1d(training.steps, one.accuracy.steps, return_indices=True)
            if len(at) < LEAST_EVALUATIONS or one.accuracy.stem != training.stem:  # the best five are right more often
                continue
            trained, evaluated = as_share(training)[at], one.share[of]
            if ((evaluated >= LEARNED) & (evaluated >= TIMES * trained)).sum() >= OFTEN:
                yield beside(
                    "strong_dropout",
                    "warning",
                    (training, one.accuracy, loss),
                    {"what": f"Probably a dropout ({from_to(training)}, {from_to(one.accuracy)})", "share": "most"},
                )
                return


def _right_at_the_loss_of_guessing(data: RunData) -> Iterator[Finding]:
    """Judge a loss that stays at guessing although nearly all answers are right."""
    good = [
        one
        for one in data.of(Kind.METRIC)
        if is_accuracy(one) and float(np.median(as_share(one)[-_part(one) :])) >= GOOD
    ]
    if not good or data.of(Kind.REWARD):
        return
    for loss in data.training_losses():
        if len(loss) < LEAST_LOSSES or "loss" not in loss.stem or loss.values[0] <= 0:
            continue
        first, late = float(loss.values[0]), loss.values[-_part(loss) :]
        others = [one.values[-1] for one in data.held_out(Kind.LOSS) if len(one) and one.stem == loss.stem]
        level = min([float(late.min()), *map(float, others)])
        classes = round(math.exp(first)) if first < math.log(CLASSES[-1]) else 0
        if classes not in CLASSES or abs(first / math.log(classes) - 1) > GUESSED:
            continue
        if level >= NEAR_FIRST * first and float(np.std(late)) <= EVEN * level:
            facts = {
                "series": loss.quoted,
                "accuracy": good[0].quoted,
                "share": float(as_share(good[0])[-1]),
                "numbers": f"{from_to(loss)}, {from_to(good[0])}",
            }
            yield beside("strong_smoothing", "warning", (loss, good[0]), facts)
            return


def _surely_wrong(data: RunData) -> Iterator[Finding]:
    """Judge a loss that is one number far above that of guessing, at one accuracy.

    The outputs are then so large that each sample gets the same class, and no gradient comes back.
    """
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_CONSTANT or data.of(Kind.REWARD):
        return
    later = loss.values[len(loss) // 3 :]
    shares = [as_share(one) for one in data.of(Kind.METRIC) if is_accuracy(one) and len(one) >= LEAST_CONSTANT]
    ends = [share[len(share) // 3 :] for share in shares]
    if (
        not ends
        or _range(later) > ROUNDED * abs(float(later[0]))
        or any(_range(one) > 0 or not 0 < one[0] < 0.6 for one in ends)
    ):
        return
    if later[0] < FAR_ABOVE * -math.log(float(max(one[0] for one in ends))):
        return
    detail = f"{from_to(loss)}, {len(later):,} equal values"
    facts = {
        "what": f"{loss.quoted} is {later[0]:.4g} to the end, far above that of guessing: the first updates were far too large",
        "detail": detail,
    }
    since = int(loss.steps[len(loss) // 3])
    yield beside("rate_too_high", "problem", (loss,), facts)
    stays = {"series": loss.quoted, "detail": detail, "guessing": "", "what": "training loss", "verb": "fall"}
    yield beside("not_learning", "problem", (loss,), stays, since)


def _of_training(data: RunData) -> list[Series]:
    return [one for one in data.of(Kind.METRIC) if is_accuracy(one) and not one.role.is_held_out]


def _range(values: Floats) -> float:
    return float(np.ptp(values))


def _part(series: Series) -> int:
    """Return the number of the last values that are the end of a series."""
    return max(2, len(series) // 3)
