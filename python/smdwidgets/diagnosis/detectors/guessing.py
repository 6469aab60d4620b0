"""Losses and accuracies that are those of guessing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import (
    FEWEST,
    as_share,
    evaluations,
    is_accuracy,
    is_area,
    is_share_of_errors,
)
from smdwidgets.diagnosis.detectors._show import from_to, unlearned
from smdwidgets.diagnosis.detectors.constant_accuracy import classes_of_one
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import Trend
from smdwidgets.finding import Finding

#: Fewest values of a loss that show something.
LEAST_POINTS = 20
#: Fall of a loss of held-out data, relative to the first one of the training, that is none.
LEAST_HELD_OUT = 0.05
#: Limits relative to the guessing loss, which is a little lower where classes are not balanced.
GUESSING = (0.965, 1.015)
#: Standard deviation of the values, relative to their level, that guessing does not exceed: each sample costs about the
#: same.
EVEN = 0.04
#: Distance of an untrained network's loss from that of guessing, relative to it.
UNTRAINED = 0.1
#: Fewest evaluations that show it, and the first losses of a training.
LEAST_EVALUATIONS, FIRST = 4, 3
#: An accuracy relative to the probability of the right class, by the loss, that guessing does not exceed or go below.
#: A model that has learned is right far more often than it gives that class the whole probability.
AS_GUESSED = (0.4, 1.6)
#: An accuracy that varies and is above this is none of guessing.
LEARNED_WELL = 0.8
#: By how much an accuracy is above its first value, and a loss below it, relative to it, of a model that gets better.
RIGHT_MORE, LESS = 0.05, 0.02
#: Share of the evaluations that must be so, and the range of an accuracy of guessing among few classes.
MOSTLY, STEADY = 0.8, 0.08
#: Fewest values of a loss that is that of guessing exactly: how near, relative to it, and how even it is after the
#: first one, and beside accuracies that never change; accuracies relative to that of guessing beside it.
LEAST_EXACT, EXACTLY, EVENLY, NEARLY_EVENLY, AS_CHANCE = 5, 0.004, 0.005, 0.03, (0.74, 1.3)
#: How even more values are.
OF_MORE_VALUES = 0.01
#: Words of a loss over the pairs of a batch, and the distance from that of guessing, relative to it.
_OF_PAIRS = frozenset({"contrastive", "clip", "infonce", "nce", "ntxent"})
OF_PAIRS = 0.02
#: Fewest rows of a batch whose number a loss may show.
LEAST_BATCH = 8
#: Distance of accuracies of evaluations, and of losses, from those of guessing, relative to them; the same of the only
#: evaluation.
BY_ACCURACY, BY_LOSS, ONLY_ACCURACY, ONLY_LOSS = 0.03, 0.025, 0.01, 0.005
#: How far above that of guessing a loss may be, relative to it; one of evaluations at a rate that is too high.
ABOVE, ABOVE_BY_NOISE = 0.035, 0.06
#: The first of these of few samples, beside losses that are those of guessing as exactly as that of the only one.
BY_FEW_SAMPLES = 0.3
#: Fewest values of a loss that is never below that of guessing, by how much it may be; accuracies beside it relative to
#: that of guessing, among two classes and among more, and the share of them that must be so.
LEAST_ABOVE, HARDLY_BELOW, OF_TWO, OF_MORE, MOST_GUESS = 8, 0.99, (0.92, 1.08), (0.75, 1.25), 0.8
#: The same of a number of classes that only the accuracies of evaluations tell, and successive losses of batches.
BELOW_BY_SHARE, SUCCESSIVE = 0.95, 5
#: Accuracies of evaluations relative to that of guessing, beside a training that guesses.
HARDLY_MORE = 1.8
#: The end of such a loss relative to that of guessing, where only accuracies tell the number of classes.
NEAR_GUESS = 1.1
#: Squared error of an output of 0.5 for targets of 0 and 1: how near the end of a loss is to it, its first value
#: relative to it, and the share of its steps that go down.
HALF_SQUARED, AT_HALF, FROM_ABOVE, MOSTLY_DOWN = 0.25, 0.003, 1.1, 0.95
#: Most classes among which guessing is recognized by its loss and accuracy.
MOST_CLASSES = 1000


def guessed(data: RunData) -> Iterator[Finding]:
    """Yield a loss or answers that are those of guessing, by the accuracies beside."""
    yield from islice(_exactly_guessed(data), 1)
    yield from _equal_answers(data)
    yield from _half_of_squares(data)


def _exactly_guessed(data: RunData) -> Iterator[Finding]:
    """Yield a loss that is exactly that of guessing, as its accuracies are.

    Few values are enough.
    """
    yield from _guessed_by_all(data)
    yield from _never_below(data)
    # What the model answers at first does not matter.
    shares = [one[_later(len(one)) :] for one in _accuracies(data, FEWEST)]
    are_constant = all(float(np.ptp(one)) == 0 for one in shares)
    for series in data.training_losses():
        # The loss of large first outputs falls to that of guessing.
        later = series.values[_later(len(series)) :]
        if len(series) < LEAST_EXACT or not shares or not np.isfinite(later).all():
            continue
        level = float(np.median(later))
        classes = round(math.exp(level)) if 0 < level < math.log(MOST_CLASSES) else 0
        even = NEARLY_EVENLY if are_constant else EVENLY if len(series) < LEAST_POINTS / 2 else OF_MORE_VALUES
        if classes < 2 or abs(level - math.log(classes)) > EXACTLY * level or float(np.ptp(later)) > even * level:
            continue
        if _are_near(shares, 1 / classes, AS_CHANCE):
            detail = f"{series.quoted} {series.values[0]:.4g} → {series.values[-1]:.4g} over {len(series):,} values"
            yield _as_guessed(series, classes, detail, "fall")
            return


def _later(count: int) -> int:
    """Return at which of so many values the first ones are over.

    A loss that contains a penalty of the weights comes to that of guessing late.
    """
    return 1 if count < LEAST_POINTS else 2 * count // 3


def _guessed_by_all(data: RunData) -> Iterator[Finding]:
    """Yield a loss of guessing that evaluations confirm.

    Two of them are enough if both their loss and their accuracy are those of guessing.
    """
    for one in evaluations(data):
        share, losses = one.share, one.loss.values
        alone = len(share) < 2 or len(losses) < 2
        level = float(np.median(losses)) if len(losses) else 0.0
        of_loss = round(math.exp(level)) if 0 < level < math.log(MOST_CLASSES) else 0
        exact = of_loss > 2 and not alone and _are_guessed(losses, of_loss)
        of_share = round(1 / float(np.median(share))) if len(share) and share.min() * MOST_CLASSES > 0.5 else 0
        classes = of_loss if exact else of_share
        near = ONLY_ACCURACY if alone else BY_FEW_SAMPLES if exact else BY_ACCURACY
        if not len(losses) or not 2 <= classes <= MOST_CLASSES or (np.abs(share * classes - 1) > near).any():
            continue
        guess = math.log(classes)
        if alone and (np.abs(losses / guess - 1) > ONLY_LOSS).any():
            continue
        for series in data.training_losses():
            late = series.values[len(series) // 2 :]
            levels = np.append(losses, np.median(late)) / guess
            above = ABOVE_BY_NOISE if exact else ABOVE
            if len(series) >= LEAST_POINTS and 1 - BY_LOSS <= levels.min() <= levels.max() <= 1 + above:
                detail = f"{from_to(series)}, {from_to(one.accuracy)}"
                yield _as_guessed(series, classes, detail, "fall below that of guessing")
                return


def _are_guessed(losses: Floats, classes: int) -> bool:
    """Whether losses are those of guessing among classes, or a little above."""
    levels = losses / math.log(classes)
    above = ABOVE_BY_NOISE if len(losses) >= LEAST_EXACT else ONLY_LOSS
    return bool(1 - ONLY_LOSS <= levels.min() <= levels.max() <= 1 + above)


def _never_below(data: RunData) -> Iterator[Finding]:
    """Yield a loss that is never below that of guessing.

    Nearly all accuracies are those of guessing, or answers are all one class.
    """
    of_one = classes_of_one(data)
    classes = of_one or _guessed_classes(_accuracies(data)) or _guessed_while_training(data)
    losses = [one for one in data.held_out(Kind.LOSS) if one.stem == ("loss",) and len(one)]
    hardly = HARDLY_BELOW
    if not classes and losses:
        # A rate that is too high keeps the losses of single batches near guessing, and their accuracies anywhere.
        classes, hardly = _guessed_in_evaluations(data), BELOW_BY_SHARE
    if not classes or any(one.values.min() < hardly * math.log(classes) for one in losses):
        return
    for series in data.training_losses():
        if len(series) < LEAST_ABOVE or "loss" not in series.stem:
            continue
        guess, late = math.log(classes), float(np.median(series.values[len(series) // 2 :]))
        lowest = _lowest(series.values) if hardly < HARDLY_BELOW else float(series.values.min())
        if lowest >= hardly * guess and (of_one or late <= NEAR_GUESS * guess):
            detail = f"{from_to(series)} over {len(series):,} values"
            yield _as_guessed(series, classes, detail, "fall below that of guessing")
            return


def _guessed_classes(shares: list[Floats]) -> int:
    """Return the number of classes among which accuracies are those of guessing, or 0."""
    if not shares or min(map(len, shares)) < LEAST_ABOVE:
        return 0
    middle = float(np.median(np.concatenate(shares)))
    classes = round(1 / middle) if middle > 1 / MOST_CLASSES else 0
    low, high = OF_TWO if classes == 2 else OF_MORE
    guess = all(((low <= one * classes) & (one * classes <= high)).mean() >= MOST_GUESS for one in shares)
    return classes if classes >= 2 and guess else 0


def _guessed_while_training(data: RunData) -> int:
    """Return the number of classes among which the training guesses, or 0.

    Evaluations may be right a little more often, as of a model that learns next to nothing.
    """
    trained = [one for one in data.of(Kind.METRIC) if is_accuracy(one) and not one.role.is_held_out]
    classes = _guessed_classes([as_share(one) for one in trained if len(one)])
    others = [as_share(one) for one in data.held_out(Kind.METRIC) if is_accuracy(one)]
    return classes if classes > 2 and others and all(one.max() <= HARDLY_MORE / classes for one in others) else 0


def _guessed_in_evaluations(data: RunData) -> int:
    """Return the number of classes among which every evaluation guesses, or 0."""
    shares = [as_share(one) for one in data.held_out(Kind.METRIC) if is_accuracy(one) and len(one)]
    classes = _guessed_classes(shares)
    low, high = OF_MORE
    even = all(low <= float(one.min()) * classes <= float(one.max()) * classes <= high for one in shares)
    return classes if classes > 2 and even else 0


def _lowest(values: Floats) -> float:
    """Return the lowest level of the losses of single batches."""
    if len(values) < LEAST_POINTS:
        return float(values.min())
    return float(np.median(np.lib.stride_tricks.sliding_window_view(values, SUCCESSIVE), axis=1).min())


def _equal_answers(data: RunData) -> Iterator[Finding]:
    """Yield areas under the curve of exactly 0.5, those of equal answers."""
    areas = [one for one in data.of(Kind.METRIC) if is_area(one) and len(one) >= LEAST_EXACT]
    losses = [one for one in data.training_losses() if len(one) >= LEAST_EXACT]
    if not areas or not losses or any((one.values != 0.5).any() for one in areas):
        return
    facts = {
        "detail": f"{losses[0].quoted} {losses[0].values[0]:.4g} → {losses[0].values[-1]:.4g}",
        "guessing": f"{areas[0].quoted} is exactly 0.5 at each of {len(areas[0]):,} evaluations: the answers are all the same. Trees may "
        "find no split, as with a limit of their leaves that is too large. ",
        "what": "training loss",
        "verb": "fall",
    }
    yield unlearned(losses[0], facts)


def _half_of_squares(data: RunData) -> Iterator[Finding]:
    """Yield a squared error that comes to 0.25 and stops there.

    An output of 0.5 has it, whatever the targets 0 and 1 are. Nothing else is measured.
    """
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_POINTS or data.of(Kind.METRIC, Kind.REWARD) or data.held_out(Kind.LOSS):
        return
    values = loss.values
    late = values[-max(3, len(values) // 10) :]
    comes_down = values[0] > FROM_ABOVE * HALF_SQUARED and float(np.mean(np.diff(values) <= 0)) >= MOSTLY_DOWN
    is_there = bool((np.abs(late / HALF_SQUARED - 1) <= AT_HALF).all()) and values.min() >= (1 - AT_HALF) * HALF_SQUARED
    if not comes_down or not is_there:
        return
    facts = {
        "detail": f"{loss.quoted} {values[0]:.4g} → {values[-1]:.4g} over {len(values):,} values",
        "guessing": "An output of 0.5 for every row has a squared error of 0.25 if the targets are 0 and 1. ",
        "what": "training loss",
        "verb": "fall below that of a constant",
    }
    yield unlearned(loss, facts)


def _as_guessed(series: Series, classes: int, detail: str, verb: str) -> Finding:
    """Return the finding for a loss and accuracies that are those of guessing."""
    guessing = f"Guessing one of {classes} classes gives {math.log(classes):.4g}, and is right as often. "
    facts = {"detail": detail, "guessing": guessing, "what": "training loss", "verb": verb}
    return unlearned(series, facts)


def never_below_guessing(data: RunData, series: Series) -> bool:
    """Whether a loss never fell below that of guessing, wherever it began.

    It is that of guessing among the classes of the saved outputs.
    """
    saved, trend = saved_classes(data), series.trend
    if trend is None or len(series) < LEAST_POINTS or len(saved) != 1:
        return False
    low, high = GUESSING
    chance = math.log(saved[0])
    level = min(trend.best, float(np.median(trend.blocks[-max(2, len(trend.blocks) // 2) :])))
    return low * chance <= level <= high * chance and trend.end <= (1 + 2 * EVEN) * chance


def is_near_guessing(data: RunData, series: Series) -> bool:
    """Whether a loss stays near that of guessing, as an untrained network's.

    The classes are those of the saved outputs.
    """
    saved = saved_classes(data)
    if len(saved) != 1 or not len(series):
        return False
    chance = math.log(saved[0])
    return abs(float(np.median(series.values)) - chance) < UNTRAINED * chance


def accuracy_of_guessing(data: RunData, series: Series) -> bool:
    """Whether held-out data are classified only as well as guessing would.

    The loss of guessing is the negative logarithm of its accuracy.
    """
    low, high = AS_GUESSED
    if is_share_of_errors(series):
        return False
    for loss, accuracy, share in evaluations(data):
        _, at, of = np.intersect1d(loss.steps, accuracy.steps, return_indices=True)
        if len(at) < LEAST_EVALUATIONS:
            continue
        guessed = share[of] / np.exp(-loss.values[at])
        # What was learned may be lost again, as by a model that has begun to learn by heart. A model that is nearly
        # always right from the first evaluation on was trained before.
        first = float(np.median(series.values[:FIRST]))
        is_level = float(loss.values[at].min()) >= (1 - LEAST_HELD_OUT) * abs(first)
        if (share[of].max() > LEARNED_WELL and np.ptp(share[of]) > 0) or _gets_better(loss.values[at], share[of]):
            continue
        if is_level and ((low <= guessed) & (guessed <= high)).mean() >= MOSTLY:
            return True
    return False


def _gets_better(losses: Floats, share: Floats) -> bool:
    """Whether a model gets better after its first evaluation.

    All others are right more often, and one of them has less loss. Of two classes, what a model knows that has
    learned little is near guessing.
    """
    return float(share[1:].min() - share[0]) >= RIGHT_MORE and float(losses.min()) <= (1 - LESS) * float(losses[0])


def every_accuracy_guesses(data: RunData, trend: Trend) -> bool:
    """Whether all accuracies are those of guessing beside a loss that is level."""
    shares = _accuracies(data)
    if not shares or trend.median <= 0:
        return False
    chance = math.exp(-trend.median)
    if any(one.max() > LEARNED_WELL > np.ptp(one) > 0 for one in shares):
        return False
    # Of few classes, every accuracy is near that of guessing; one that is learned moves.
    is_vacuous = AS_GUESSED[1] * chance >= 1 and any(float(np.ptp(one)) > STEADY for one in shares)
    return not is_vacuous and _are_near(shares, chance, AS_GUESSED)


def _accuracies(data: RunData, least: int = LEAST_EVALUATIONS) -> list[Floats]:
    """Return all accuracies with enough values, as shares of 1."""
    return [as_share(one) for one in data.of(Kind.METRIC) if is_accuracy(one) and len(one) >= least]


def _are_near(shares: list[Floats], chance: float, limits: tuple[float, float]) -> bool:
    """Whether all accuracies are within limits of that of guessing, relative to it."""
    low, high = (limit * chance for limit in limits)
    return all(low <= float(share.min()) and float(share.max()) <= high for share in shares)


def guesses_pairs(data: RunData, series: Series) -> bool:
    """Whether a contrastive loss ends at that of guessing among the pairs of a batch."""
    sizes = [one for one in data.series if one.words[-2:] == ("batch", "size") and len(one)]
    if len(series) < LEAST_POINTS:
        return False
    if data.is_of_transformers and _guesses_in_batch(data, series):
        return True
    if not sizes or not _OF_PAIRS.intersection(series.words):
        return False
    late = series.values[len(series) // 2 :]
    guess = math.log(max(float(sizes[0].values[-1]), 2.0))
    return bool((np.abs(late - guess) <= OF_PAIRS * guess).all())


def _guesses_in_batch(data: RunData, series: Series) -> bool:
    """Whether a loss begins as that of guessing in a batch, and hardly falls.

    That of evaluations does not fall. The loss of pairs in batches of 32, as in sentence-transformers, is that of
    guessing among 32.
    """
    size = data.settings.get("train_batch_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < LEAST_BATCH or data.of(Kind.METRIC):
        return False
    guess = math.log(size)
    first, late = float(np.median(series.values[:3])), float(np.median(series.values[-len(series) // 4 :]))
    losses = [one.values for one in data.held_out(Kind.LOSS) if len(one) >= 3]
    stay = bool(losses) and all(float(one[-1]) > (1 - OF_PAIRS) * float(one[0]) for one in losses)
    return stay and abs(first / guess - 1) < OF_PAIRS and late > (1 - 3 * OF_PAIRS) * guess


def held_out_guesses(data: RunData) -> bool:
    """Whether a long loss of held-out data never fell below that of guessing."""
    saved = saved_classes(data)
    losses = [one for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_POINTS]
    return len(saved) == 1 and any(one.values.min() >= math.log(saved[0]) for one in losses)


def saved_classes(data: RunData) -> tuple[int, ...]:
    """Return the numbers of classes of the saved outputs."""
    saved = {int(np.nanmax(one["classes"], initial=0)) for one in data.tensors.select("output", having="classes")}
    return tuple(sorted(saved - {0, 1}))
