"""Losses that reveal by their value what was passed to them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, is_accuracy
from smdwidgets.diagnosis.detectors._show import beside
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["loss_floor"]

#: Fewest values; distance of the first loss from that of guessing, and of the last ones from the least loss of
#: probabilities, relative to them.
LEAST_POINTS, FIRST, LAST = 20, 0.03, 0.025
#: An accuracy that such a loss contradicts, and the noise of a loss that has come to its floor.
GOOD, NOISE = 0.7, 0.02
#: Range of the first values, and fall within the last third, relative to the level of the last ones, of a loss that
#: begins slowly and rests.
SLOWLY, AT_REST = 0.15, 0.015
#: Numbers of classes whose floor is judged.
CLASSES = range(3, 1001)
#: Most classes without an accuracy. With more, the floor is about 1 below the first loss, where other losses rest, too.
MOST_ALONE = 100
#: First loss of a language model that is sure of its tokens and never right: at least, and relative to its entropy; the
#: accuracy below which it is never right, and values that are the first ones.
SURE_AND_WRONG, BY_ENTROPY, NEVER_RIGHT, FIRST_VALUES = 8.0, 5.0, 0.01, 2
#: Fewest values of a loss that follows its accuracy, and the least late accuracy. The loss of a softmax that is sure is
#: the floor, and 1 more for each wrong answer: the distance of the median from that, below and
#: above, and of each value.
FEW, VERY_GOOD, BELOW, ABOVE, EACH = 8, 0.95, 0.002, 0.008, 0.015
#: The same of a softmax that is not sure yet: the least late accuracy, the least of all, and the distance above.
GOOD_ENOUGH, ALL_GOOD, NOT_SURE = 0.9, 0.75, 0.06
#: Most classes whose floors differ by more than that distance, and the first loss between the floor and guessing.
MOST_APART, BEGINS = 30, 0.25
#: A divergence that is below 0 by more than rounding or an estimate explains.
NEGATIVE = -0.5
_DIVERGENCE = frozenset({"kl", "kld", "kd", "distill", "distillation"})


def loss_floor(data: RunData) -> Iterator[Finding]:
    """Yield losses at the floor of a second softmax, and negative divergences."""
    yield from _confident(data)
    for series in data.training_losses():
        if len(series) >= LEAST_POINTS and _is_at_floor(data, series):
            yield beside("softmax_before_loss", "problem", (series,), {"what": "Probably a softmax"})
            break
    else:
        yield from _follows_accuracy(data)
    if data.of(Kind.REWARD):
        return  # estimates of the divergence of a policy may be negative
    for series in data.of(Kind.LOSS, Kind.UNDIRECTED):
        words = series.words
        is_divergence = "loss" in words and not _DIVERGENCE.isdisjoint(words)
        if is_divergence and len(series) >= LEAST_POINTS and float(np.quantile(series.values, 0.9)) < NEGATIVE:
            yield beside("kl_not_log", "problem", (series,), {})
            return


def _confident(data: RunData) -> Iterator[Finding]:
    """Yield a model that begins sure of its answers, and never right.

    A trained model gives tokens that are new to it a small probability, but is right now and then.
    """
    entropy = next((one for one in data.series if one.words == ("entropy",) and len(one)), None)
    right = next((one for one in data.of(Kind.METRIC) if is_accuracy(one) and not one.role.is_held_out), None)
    if entropy is None or right is None or data.of(Kind.REWARD):
        return
    for series in data.training_losses():
        if len(series) < LEAST_POINTS:
            continue
        first, sure = float(series.values[0]), float(entropy.values[:FIRST_VALUES].min())
        is_sure = 0 < BY_ENTROPY * sure < first and first > SURE_AND_WRONG
        if not is_sure or entropy.steps[0] != series.steps[0] or as_share(right)[0] > NEVER_RIGHT:
            continue
        facts = {
            "what": "The model begins sure of its answers and never right",
            "numbers": f"{series.quoted} begins at {first:.3g} with an entropy of {sure:.2g} and {right.quoted} "
            f"{as_share(right)[0]:.2%}, and ends at {series.values[-1]:.3g}",
            "why": "Probably the labels are at other positions than the outputs, as when they are shifted twice, or are numbered in "
            "another way than in the training before.",
        }
        yield beside("labels_unrelated", "problem", (series, right), facts)
        return


def floor_of(classes: int) -> float:
    """Return the least cross-entropy of a softmax of probabilities.

    >>> round(floor_of(10), 3)
    1.461
    """
    return math.log(math.e + classes - 1) - 1


def _follows_accuracy(data: RunData) -> Iterator[Finding]:
    """Yield losses that are the floor of a second softmax plus wrong answers."""
    losses = [*data.training_losses(), *data.held_out(Kind.LOSS)]
    right = [one for one in data.of(Kind.METRIC) if is_accuracy(one)]
    pairs = [
        (loss, as_share(one))
        for loss in losses
        for one in right
        if one.role is loss.role and len(loss) >= FEW and np.array_equal(one.steps, loss.steps)
    ]
    training = next((loss for loss, _ in pairs if not loss.role.is_held_out), None)
    if training is None and pairs:  # only evaluations log what is right
        training = data.partner(pairs[0][0])
    if training is None or not len(training):
        return
    for classes in range(CLASSES[0], MOST_APART + 1):
        follow = _begins(training, classes) and all(_follows(loss.values, share, classes) for loss, share in pairs)
        if follow or _comes_near(training, pairs, classes):
            series = tuple({id(loss): loss for loss, _ in pairs}.values())
            yield beside("softmax_before_loss", "problem", series, {"what": "Probably a softmax"})
            return


def _follows(loss: Floats, share: Floats, classes: int) -> bool:
    floor, late = floor_of(classes), 2 * len(loss) // 3
    rest = (loss - floor - (1 - share))[late:]
    in_range = floor - EACH <= float(loss.min()) and float(loss.max()) <= floor + 1
    is_floor = -BELOW <= float(np.median(rest)) <= ABOVE and float(np.abs(rest).max()) <= EACH
    return in_range and is_floor and float(share[late:].min()) >= VERY_GOOD


def _comes_near(training: Series, pairs: list[tuple[Series, Floats]], classes: int) -> bool:
    """Whether losses stay above the floor although nearly all answers are right.

    They come near it. The first one is that of guessing.
    """
    floor, guess, late = floor_of(classes), math.log(classes), 2 * len(training) // 3
    if abs(float(training.values[0]) / guess - 1) > FIRST:
        return False
    of_training = [float(share[late:].min()) for loss, share in pairs if loss is training]
    if not of_training and float(training.values.min()) < floor:
        return False
    of_training = of_training or [float(share[2 * len(share) // 3 :].min()) for _, share in pairs]
    if max(of_training, default=0.0) < GOOD_ENOUGH:
        return False
    for loss, share in pairs:
        late = 2 * len(loss) // 3
        rest = float(np.median((loss.values - floor - (1 - share))[late:]))
        if loss.values.min() < floor or share[late:].min() < ALL_GOOD or not -BELOW <= rest <= NOT_SURE:
            return False
    return True


def _begins(training: Series, classes: int) -> bool:
    """Whether a loss begins between its floor and guessing, or a little above."""
    floor, guess, first = floor_of(classes), math.log(classes), float(training.values[0])
    return floor + BEGINS * (guess - floor) <= first <= (1 + FIRST) * guess


def _rests(values: Floats, level: float) -> bool:
    """Whether a loss begins slowly, and has come to rest.

    Where it falls at once, its first values do not tell the number of classes. The loss of a language model that falls
    on passes by every level.
    """
    late = values[2 * len(values) // 3 :]
    part = max(1, len(late) // 3)
    falls_on = float(np.median(late[:part]) - np.median(late[-part:]))
    return float(np.ptp(values[:3])) <= SLOWLY * level and falls_on <= AT_REST * level


def _is_at_floor(data: RunData, series: Series) -> bool:
    first, late = float(np.median(series.values[:3])), series.values[2 * len(series) // 3 :]
    level = float(np.median(late))
    good = [float(np.median(as_share(one)[-3:])) for one in data.of(Kind.METRIC) if is_accuracy(one)]
    is_sure = min(good) >= GOOD if good else float(np.std(late)) < NOISE * level and _rests(series.values, level)
    most = CLASSES[-1] if good else MOST_ALONE
    if not is_sure or not math.log(CLASSES[0]) <= first <= math.log(most):
        return False
    # No loss of the same model is below the floor.
    below = min([float(one.values.min()) for one in data.held_out(Kind.LOSS) if len(one)], default=level)
    # The first loss is that of guessing, or a little less.
    classes = round(math.exp(first))
    for number in range(classes, math.ceil(math.exp(first / (1 - FIRST))) + 1):
        floor = floor_of(number)
        # The softmax gives a right answer at least 0, and a wrong one at most 1.
        if float(series.values.max()) > (1 + FIRST) * (floor + 1):
            continue
        if min(float(series.values.min()), below) >= 0.998 * floor and level <= (1 + LAST) * floor:
            return True
    return False
