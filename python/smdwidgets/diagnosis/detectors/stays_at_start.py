"""Trainings in which all that is measured stays where it was at first."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, evaluations, is_accuracy
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import mann_kendall
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

__all__ = ["stays_at_start"]

#: Fewest logs of a model that does not move, and the ranges of its loss and of what else is measured, relative to them.
LEAST_LOGS, UNMOVED, UNMOVED_BESIDE = 20, 0.01, 0.02
#: Words of what a language model measures beside its loss.
_BESIDE = frozenset({"entropy", "accuracy"})
#: Fewest losses that are all those of a coin, by the logarithm of 2, and the accuracy beside them.
FEWEST, COIN, OF_COIN, COIN_EVALUATED = 5, (0.96, 1.03), 0.62, 0.93
#: Fewest evaluations of an accuracy that is next to nothing, how large it is, and what its losses gain.
LEAST_EVALUATIONS, NEXT_TO_NOTHING, GAINS, GAINS_TRAINED = 6, 0.05, 0.05, 0.08
#: Fewest values of an accuracy alone, how large it is, and the gain relative to the first one.
LEAST_ALONE, POOR, GAINS_ALONE = 20, 0.15, 1.2
#: Fewest updates of a critic, the explained variance of a constant, the steps of an episode whose states differ, and
#: its loss by that of the first updates.
LEAST_UPDATES, OF_CONSTANT, LEAST_EPISODE, STAYS = 25, 0.05, 10.0, 0.9
#: Fewest evaluations that are never better than the first one, beside a first loss of guessing among some classes;
#: their accuracy by that of guessing, and at most; their least loss by the first one, and that one by guessing; the
#: training loss by its first value, and how far its level moves.
NEVER_BETTER, FIRST_LOSS, TIMES_CHANCE, AT_MOST = 10, (1.0, 5.5), 3.0, 0.4
NO_GAIN, ABOVE_LOWEST, LEVEL_STAYS, LEVEL_MOVES = 0.98, 0.8, 0.75, 0.03
#: Fewest epochs of which none is better than the one after the first, and the statistic of a trend.
LEAST_EPOCHS, NO_TREND = 20, -2.0
#: Epochs of a detector, the precision and the mean of it that only boxes at random have, the loss of the classes at the
#: end by its first value, and the rate at the end by its largest one.
EPOCHS_OF_BOXES, AT_RANDOM, HARDLY_ANY, CLASSES_STAY, RATE_OVER = 30, 0.02, 0.1, 0.8, 0.1


def stays_at_start(data: RunData) -> Iterator[Finding]:
    """Yield the first of these trainings that the run is."""
    judges = (
        *(_unmoved, _evaluates_the_same, _as_a_coin, _next_to_nothing, _poor_alone, _since_first_evaluation),
        _nothing_after_the_first,
        _boxes_at_random,
    )
    yield from next((findings for judge in judges if (findings := list(judge(data)))), [])
    yield from _critic(data)


def _unmoved(data: RunData) -> Iterator[Finding]:
    """Judge a language model whose loss, entropy and accuracy stay the same."""
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_LOGS or not data.is_of_transformers or not _is_even(loss.values, UNMOVED):
        return
    others = [one for one in data.series if not _BESIDE.isdisjoint(one.words) and one.role is not Role.VALIDATION]
    others = [one for one in others if len(one) >= len(loss)]
    rates = [one for one in data.of(Kind.LEARNING_RATE) if one.values.max(initial=0) > 0]
    if others and rates and all(_is_even(one.values, UNMOVED_BESIDE) for one in others):
        numbers = ", ".join(from_to(one) for one in (loss, *others[:2]))
        yield _finding(
            loss,
            numbers,
            "The weights that are trained hardly change the outputs: perhaps they are not those of the model. ",
        )


def _evaluates_the_same(data: RunData) -> Iterator[Finding]:
    """Judge losses of evaluations that are the same in every digit."""
    if any(len(one) for one in data.training_losses()):
        return  # other detectors compare the two
    for loss in data.held_out(Kind.LOSS):
        if len(loss) >= FEWEST and float(np.ptp(loss.values)) == 0 and loss.values[0] != 0:
            detail = f"{loss.quoted} is {loss.values[0]:.6g} at each of {len(loss):,} evaluations"
            yield _finding(loss, detail, what="loss of evaluations", verb="change")
            return


def _since_first_evaluation(data: RunData) -> Iterator[Finding]:
    """Judge a training that learns nothing after its first evaluation."""
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_LOGS or data.of(Kind.REWARD):
        return
    guess = float(loss.values[0])
    middle, late = (float(np.median(part)) for part in np.array_split(loss.values, 3)[1:])
    stays = abs(late - middle) <= LEVEL_MOVES * middle and min(middle, late) >= LEVEL_STAYS * guess
    if not FIRST_LOSS[0] < guess < FIRST_LOSS[1] or not stays:
        return
    for one in evaluations(data):
        first = float(one.loss.values[0]) if len(one.loss) >= NEVER_BETTER else 0.0
        if first < ABOVE_LOWEST * guess or float(one.loss.values.min()) < NO_GAIN * first:
            continue
        if len(one.share) < NEVER_BETTER or float(one.share.max()) > min(TIMES_CHANCE * math.exp(-guess), AT_MOST):
            continue
        if float(np.median(one.share[len(one.share) // 2 :])) <= float(one.share[0]):
            numbers = f"{from_to(one.loss)}, {from_to(one.accuracy)}, {from_to(loss)}"
            yield _finding(loss, numbers, "No evaluation is better than the first one. ")
            return


def _nothing_after_the_first(data: RunData) -> Iterator[Finding]:
    """Judge a training that improves no more after its first epoch.

    Its metrics are next to 0. The first losses may be those of weights that the first updates have destroyed,
    so that they fall.
    """
    metrics = [one for one in data.of(Kind.METRIC) if len(one) >= LEAST_EPOCHS]
    losses = [one for one in data.training_losses() if len(one) >= LEAST_EPOCHS]
    others = [one for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_EPOCHS]
    if not metrics or not losses or not others or data.of(Kind.REWARD) or len(data.of(Kind.METRIC)) > len(metrics):
        return
    if any(one.values.max() > POOR or not 0 <= one.values.min() < one.values.max() for one in metrics):
        return
    if any(one.values.min() <= 0 or _gains(one.values, STAYS) for one in (*losses, *others)):
        return
    if any(_gains(-one.values, math.inf) for one in metrics):
        return
    numbers = ", ".join(from_to(one) for one in (losses[0], others[0], metrics[0]))
    yield _finding(losses[0], numbers, "Nothing improves after the first epoch. ", verb="fall after its first value")


def _boxes_at_random(data: RunData) -> Iterator[Finding]:
    """Judge a detector that has learned where boxes may be, but not what is in them.

    Its losses of boxes fall, and with very many boxes its recall is high. The schedule is over.
    """
    metrics = [one for one in data.of(Kind.METRIC) if len(one) >= EPOCHS_OF_BOXES]
    precisions = [one for one in metrics if "precision" in one.words]
    means = [one for one in metrics if any(word.startswith(("ap", "map")) for word in one.words)]
    losses = [one for one in data.training_losses() if "cls" in one.words and len(one) >= EPOCHS_OF_BOXES]
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one) >= EPOCHS_OF_BOXES]
    if not precisions or not means or not losses or not rates:
        return
    if precisions[0].values.max() > AT_RANDOM or max(one.values.max() for one in means) > HARDLY_ANY:
        return
    first, late = (float(np.median(part)) for part in (losses[0].values[:3], losses[0].values[-len(losses[0]) // 5 :]))
    if late < CLASSES_STAY * first or any(one.values[-1] > RATE_OVER * one.values.max() for one in rates):
        return
    numbers = ", ".join(from_to(one) for one in (losses[0], precisions[0], means[0]))
    why = "The schedule is over, and hardly any box is right. "
    yield _finding(losses[0], numbers, why, "loss of the classes", "fall by a fifth")


def _gains(values: Floats, share: float) -> bool:
    """Whether values that should fall do so, by their trend or to this share.

    The first tenth of them does not count.
    """
    later = values[max(1, len(values) // 10) :]
    first, last = (float(np.median(part)) for part in (later[: len(later) // 3], later[-len(later) // 3 :]))
    return last < share * first or (last < first and float(mann_kendall(later[None])[0]) < NO_TREND)


def _as_a_coin(data: RunData) -> Iterator[Finding]:
    """Judge losses of two classes that are those of a coin to the end."""
    low, high = (limit * math.log(2) for limit in COIN)
    for one in evaluations(data):
        if len(one.loss) < 2 or one.share.max() > OF_COIN or one.loss.values.min() < COIN_EVALUATED * math.log(2):
            continue
        for loss in data.training_losses():
            late = loss.values[len(loss) // 5 :]  # the first updates may have to undo what was trained before
            if len(late) >= FEWEST and low <= late.min() <= late.max() <= high:
                numbers = f"{from_to(loss)}, {from_to(one.loss)}, {from_to(one.accuracy)}"
                yield _finding(loss, numbers, "A coin gives 0.693. ")
                return


def _next_to_nothing(data: RunData) -> Iterator[Finding]:
    """Judge evaluations that are hardly ever right, and no better than the first."""
    loss = data.longest_loss
    if loss is None or len(loss) < 2 or loss.values[-1] < (1 - GAINS_TRAINED) * loss.values[0]:
        return
    for one in evaluations(data):
        trained = one.loss.steps > 0
        later = one.loss.values[trained]
        if len(later) < LEAST_EVALUATIONS or one.share.max() > NEXT_TO_NOTHING or later[0] <= 0:
            continue
        if later.min() > (1 - GAINS) * later[0]:
            numbers = (
                f"{from_to(loss)}, {from_to(one.loss)}, {one.accuracy.quoted} at most {one.accuracy.values.max():.3g}"
            )
            yield _finding(loss, numbers)
            return


def _poor_alone(data: RunData) -> Iterator[Finding]:
    """Judge a poor accuracy beside which no loss was logged."""
    if data.of(Kind.LOSS):
        return
    for accuracy in data.of(Kind.METRIC):
        if not is_accuracy(accuracy) or len(accuracy) < LEAST_ALONE:
            continue
        share = as_share(accuracy)
        if share[0] > 0 and share.max() <= min(POOR, GAINS_ALONE * share[0]):
            yield _finding(accuracy, from_to(accuracy), what="accuracy", verb="rise")
            return


def _critic(data: RunData) -> Iterator[Finding]:
    """Judge a critic that never explains more of the returns than a constant would.

    The loss of one that has learned nearly equal returns is small, and that of episodes of one step need not fall.
    """
    for series in data.series:
        if not {"explained", "variance"} <= {*series.words} or len(series) < LEAST_UPDATES:
            continue
        losses = [one for one in data.series if {"value", "loss"} <= {*one.words} and len(one) >= LEAST_UPDATES]
        lengths = [one for one in data.series if {"ep", "len"} <= {*one.words} and len(one)]
        later = series.values[len(series) // 10 :]
        if np.abs(later).max() > OF_CONSTANT or not losses or not lengths or lengths[0].values.min() < LEAST_EPISODE:
            continue
        third = len(losses[0]) // 3
        if float(np.median(losses[0].values[-third:])) < STAYS * float(np.median(losses[0].values[:third])):
            continue
        detail = f"{from_to(series)}, {np.abs(later).max():.2g} at most; {from_to(losses[0])}"
        why = (
            "A critic that does not learn has a rate of 0, another optimizer, or returns far larger than its outputs. "
        )
        yield _finding(series, detail, why, what="explained variance of the critic", verb="rise")
        return


def _is_even(values: Floats, share: float) -> bool:
    """Whether values have a range of this share of their level at most."""
    return float(np.ptp(values)) <= share * abs(float(np.median(values)))


def _finding(series: Series, detail: str, why: str = "", what: str = "training loss", verb: str = "fall") -> Finding:
    facts = {"series": series.quoted, "detail": detail, "guessing": why, "what": what, "verb": verb}
    return beside("not_learning", "problem", (series,), facts)
