"""Evaluations that are never better than guessing, or far worse."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import (
    FEW,
    FEWEST,
    Evaluations,
    as_share,
    evaluations,
    is_accuracy,
    is_area,
    is_share_of_pairs,
    logged_pairs,
)
from smdwidgets.diagnosis.detectors._falls import ends
from smdwidgets.diagnosis.detectors._show import beside, evidence, from_to, guessing, unlearned
from smdwidgets.diagnosis.detectors.constant_accuracy import classes_of_one, ranks_well, since_one_class
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.step_axes import steps_along
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

#: An accuracy relative to that of guessing which is no better, and its distance from guessing by that of no mistake.
#: The least loss of held-out data relative to the first one, and the fall of the training loss beside it.
GUESSED, OF_MISTAKES, NO_BETTER, TRAINS = 1.8, 0.25, 0.95, 0.04
#: The best of all accuracies by the largest one that is no better than guessing: one alone may be chance.
BY_CHANCE = 1.15
#: An accuracy relative to that of guessing, and to its first value, of a model that has learned something, beside a
#: first loss that is that of guessing.
ABOVE_GUESS, ROSE, AS_UNTRAINED = 1.4, 1.3, 1.2
#: The first of these beside a training that learns fast, whose evaluations would be far better.
ABOVE_GUESS_OF_FAST = 2.0
#: Epochs after which rows are learned by heart, and an accuracy of the last half that is a little better than guessing.
FEW_EPOCHS, A_LITTLE_BETTER = 2.0, 1.2
#: First loss relative to that of guessing of large first outputs.
LARGE_FIRST = 2.0
#: The same of the first loss of a training that only comes down to guessing, and the level to which any other does.
ABOVE_FIRST, NEVER_BELOW = 1.5, 0.97
#: An accuracy relative to that of guessing, and to its first one, which is worse, and the rise of the loss beside it.
WORSE, RISES = 0.75, 1.2
#: Accuracy of other held-out data that shows that evaluations are right.
LEAST_GOOD = 0.65
#: Range of a loss of evaluations, relative to its first value, of weights that hardly change.
HARDLY_MOVES = 0.02
#: Words of evaluations of averaged weights, whose other words are those of the last weights.
_OF_AVERAGES = frozenset({"ema", "swa", "averaged", "avg", "polyak", "shadow"})
#: Losses of guessing: of 2 classes, a little less where they are not balanced, and of some hundreds.
LEAST_GUESS, MOST_GUESS = 0.5, 5.5
#: Accuracies of training and evaluation, where no loss of evaluations was logged.
TRAINED, POOR = 0.8, 0.25
#: Share of the evaluations within which a training loss halves if inputs belong to their labels.
SOON = 0.25
#: The same since a step at which the training loss has hardly fallen, to the end, and evaluations that show it.
SOON_ABOVE, HARDLY_TRAINED, STAY_ABOVE, SHOWN = 2.5, 0.65, 2.0, 6
#: The same of evaluations in the first epoch, relative to the training loss at that time.
NEW_ROWS = 2.5
#: Losses of evaluations relative to the first ones of the training that are wild, fewest of them, the training loss
#: beside them, the first of them relative to the largest, and the last ones of an evaluation that has become right.
WILD, WILD_EVALUATIONS, LEARNED, FROM_FIRST, LATE_RIGHT = 1.5, 3, 0.5, 0.5, 0.35
#: Fall of the share of mistakes beside such a loss, and the part of it that the loss falls, as logarithms.
MISTAKES_FALL, LOSS_FALLS = 0.5, 0.5
#: First loss of a training that goes on with a trained model, and the rise of such evaluations, relative to the first.
TRAINED_BEFORE, GOES_ON = 0.2, 1.5
#: An area under the curve that is worse than chance, beyond its noise.
BELOW_CHANCE = 0.45
#: Share of pairs that are ordered right where all are ordered the wrong way round.
WRONG_WAY = 0.25
#: Areas of evaluations that are those of chance, fewest of them, and the area of a training that has learned all.
AREAS_OF_CHANCE, LEAST_AREAS, ALL_LEARNED = (0.4, 0.6), 10, 0.95
#: A metric of the validation relative to that of the test that is far above it, at how many of the evaluations.
ABOVE_TEST, NEARLY_ALL = 1.5, 0.9
#: Words of errors of numbers, whose size for an untrained model is not known; the last one of the training by its first
#: one where all is learned by heart, and errors of evaluations by that first one that are no other data.
_ERRORS, LEARNED_ALL, FAR_FROM_FIRST = frozenset({"l1", "l2", "mae", "mape", "mse", "rmse"}), 0.01, 10.0
#: Least loss of evaluations by the first one of the training, which is that of an untrained model, and by their own
#: first one, and the fall of the training loss beside it.
FAR_ABOVE, FALLEN, FALLS = 3.0, 0.8, 0.25
#: Least loss of guessing among some classes; the least loss of evaluations that are hardly sure, by it, and the last
#: loss of a training that is sure, by its first one.
SEVERAL_CLASSES, HARDLY_SURE, SURE = 1.5, 0.7, 0.25
#: The loss of evaluations by that of a model which is as sure as it is right.
UNSURE = 1.3
#: Fewest evaluations whose metrics are next to nothing, how large those are, and the last training loss and the least
#: loss of evaluations beside them, relative to their first ones.
LEAST_EVALUATIONS, NEXT_TO_NOTHING, BY_HEART, NEVER_FALLS = 10, 0.05, 0.1, 0.75
#: Fewest evaluations of a loss that is never better than its first value, by what share at most; their first value and
#: the last one of the training relative to its first one, and that after the first fifth.
LEAST_LOSSES, GAIN, ALIKE, LEARNED_SINGLE, FIFTH, SLOWLY = 20, 0.03, 0.25, 0.9, 0.2, 0.92

#: What most probably is wrong where a training learns single samples only.
_UNRELATED = "Probably labels do not belong to their inputs, and the model learns single samples by heart."


def evaluation_differs(data: RunData) -> Iterator[Finding]:
    """Yield evaluations that are never better than guessing, or far worse."""
    yield from _at_guessing(data)
    yield from _poor_accuracy(data)
    yield from _always_same(data)
    yield from _average_stays(data)
    yield from _far_above_test(data)
    yield from _worse_than_chance(data)
    yield from _swapped(data)
    yield from _area_of_guessing(data)
    yield from _hardly_sure(data)
    yield from list(_next_to_nothing(data)) or _never_better(data)
    for loss, training in logged_pairs(data):
        yield from list(_far_above(loss, training)) or _too_large_for_mistakes(data, loss, training)
        yield from _soon_above(loss, training)
        yield from _above_new_rows(data, loss, training)
        yield from _lags(loss, training)


def _at_guessing(data: RunData) -> Iterator[Finding]:
    """Judge accuracies of guessing beside a training loss that falls."""
    training = _falling(data)
    if training is None:
        return
    for one in evaluations(data):
        if min(len(one.loss), len(one.accuracy)) < FEW:
            continue
        losses = one.loss.values
        # The loss of an untrained model that is evaluated in another way may be far above that of guessing.
        untrained = min(float(losses[0]), float(training.values[0]))
        if not LEAST_GUESS < untrained < MOST_GUESS:
            continue
        chance = math.exp(-untrained)
        if any(other.share.max() > LEAST_GOOD for other in evaluations(data)):
            return  # evaluations of other data are right
        best = float(np.sort(one.share)[-2])  # one alone may be chance
        learns = float(_soon(data, training).min()) < 0.5 * untrained
        least = (ABOVE_GUESS_OF_FAST if learns else ABOVE_GUESS) * chance
        if losses[0] <= AS_UNTRAINED * untrained and best > max(least, ROSE * float(one.share[0])):
            continue
        if not learns and _has_learned(one, chance):
            continue
        if _falls_to_guessing(training, untrained) or _is_one_class(data, one):
            continue
        if ranks_well(data, one.accuracy) is not None:
            continue
        most = min(GUESSED * chance, chance + OF_MISTAKES * (1 - chance))
        is_guessed = best <= most and float(one.share.max()) <= BY_CHANCE * most
        if is_guessed and losses.min() >= NO_BETTER * untrained:
            late = float(np.median(training.values[len(training) // 2 :]))
            comes_down = training.values[0] > ABOVE_FIRST * untrained and late >= NO_BETTER * untrained
            if comes_down or _late_level(training) >= NEVER_BELOW * untrained:
                yield _never_below(one, training, chance)
            else:
                yield _of_guessing(one, training, chance, learns)
            return


def _late_level(training: Series) -> float:
    """Return the level at which a training loss ends.

    Losses of few samples are often small and seldom very large, so that their median is below their mean.
    """
    late = training.values[-max(2, len(training) // 5) :]
    return max(ends(training.values)[1], float(late.mean()))


def _soon(data: RunData, training: Series) -> Floats:
    """Return the first losses of a training, before many rows come again.

    Few rows that come again and again are learned by heart.
    """
    many = max(2, round(SOON * len(training)))
    if data.epochs is not None:
        epochs = np.interp(training.steps, data.epochs.steps, data.epochs.values)
        many = min(many, max(2, int((epochs <= FEW_EPOCHS).sum())))
    return training.values[:many]


def _falls_to_guessing(training: Series, untrained: float) -> bool:
    """Whether a loss of large first outputs falls to that of guessing only."""
    first, last = ends(training.values)
    return max(first, float(training.values[0])) > LARGE_FIRST * untrained and last >= (1 - TRAINS) * untrained


def _has_learned(one: Evaluations, chance: float) -> bool:
    """Whether the accuracies of the last half are a little better than guessing."""
    late = float(np.median(one.share[len(one.share) // 2 :]))
    return late > A_LITTLE_BETTER * max(chance, float(one.share[0]))


def _is_one_class(data: RunData, one: Evaluations) -> bool:
    """Whether all answers of an evaluation are one class, which is another finding."""
    moves = float(np.ptp(one.loss.values)) > HARDLY_MOVES * abs(float(one.loss.values[0]))
    return moves and (classes_of_one(data) > 0 or since_one_class(one.share) == 0)


def _always_same(data: RunData) -> Iterator[Finding]:
    """Judge an accuracy that is always the same beside a good one of the training.

    The model tells the classes of the training apart, so that it does not give all samples the same one.
    """
    training = [
        one for one in data.of(Kind.METRIC) if not one.role.is_held_out and is_accuracy(one) and len(one) >= FEW
    ]
    for one in evaluations(data):
        same = [other for other in training if other.stem == one.accuracy.stem]
        if len(one.share) < FEW or np.ptp(one.share) > 0 or not same:
            continue
        late = float(np.median(as_share(same[0])[len(same[0]) // 2 :]))
        if late < TRAINED or float(one.share[0]) > POOR or one.loss.values[-1] < one.loss.values[0]:
            continue
        facts = {
            "what": f"{one.accuracy.quoted} is {one.share[0]:.3g} at each of {len(one.share):,} evaluations, although the training is good",
            "numbers": f"{from_to(one.loss)}, {same[0].quoted} {late:.3g}",
            "why": "Probably the evaluations have classes that the training has not, as when data that are sorted by class are split "
            "without shuffling, or their labels are numbered in another way.",
        }
        yield beside("evaluation_differs", "problem", (one.accuracy, one.loss), facts)
        return


def _average_stays(data: RunData) -> Iterator[Finding]:
    """Judge averaged weights that are evaluated as untrained ones to the end.

    The same evaluation of the last weights shows that they learn.
    """
    for loss in data.of(Kind.LOSS):
        words = tuple(word for word in loss.words if word not in _OF_AVERAGES)
        if len(loss) < FEW or words == loss.words or np.ptp(loss.values) > HARDLY_MOVES * abs(float(loss.values[0])):
            continue
        twin = next((one for one in data.of(Kind.LOSS) if one.words == words and len(one) >= FEW), None)
        if twin is None or not 0 < twin.values[-1] < LEARNED * loss.values[0]:
            continue
        facts = {
            "what": f"{loss.quoted} stays at {loss.values[-1]:.4g} to the end, although {twin.quoted} falls",
            "numbers": f"{from_to(loss)}, {from_to(twin)}",
            "why": "Probably the decay of the average is meant for a longer training, so that it still is the untrained model; or it is "
            "never updated.",
        }
        yield beside("evaluation_differs", "problem", (loss, twin), facts)
        return


def _poor_accuracy(data: RunData) -> Iterator[Finding]:
    """Judge accuracies without a loss, beside good ones of the training."""
    if data.held_out(Kind.LOSS):
        return
    training = [one for one in data.of(Kind.METRIC) if not one.role.is_held_out and is_accuracy(one)]
    rare = _rare(data, training)
    for held_out in [*data.held_out(Kind.METRIC), *rare]:
        same = [one for one in training if (one.stem == held_out.stem or rare) and one not in rare and len(one) >= FEW]
        if len(held_out) < FEW or not is_accuracy(held_out) or not same:
            continue
        share, trained = as_share(held_out), as_share(same[0])
        late = float(np.median(trained[len(trained) // 2 :]))
        if share.max() > POOR or late < TRAINED or share.max() > GUESSED * share.min():
            continue
        facts = {
            "what": "Evaluations are poor from the first one on, although the training is good",
            "numbers": f"{held_out.quoted} {share.min():.3g} to {share.max():.3g}, {same[0].quoted} {late:.3g}",
            "why": "Probably the data of evaluations are prepared in another way than those of the training.",
        }
        yield beside("evaluation_differs", "problem", (held_out, same[0]), facts)
        return


def _far_above(loss: Series, training: Series) -> Iterator[Finding]:
    """Judge losses of evaluations that are always worse than without training."""
    if len(loss) < FEWEST or len(training) < FEW:
        return
    first, last = ends(training.values)
    untrained = float(training.values[:3].max())
    if not 0 < last < (1 - FALLS) * first or float(loss.values.min()) < FAR_ABOVE * untrained:
        return
    if float(loss.values.min()) < FALLEN * float(loss.values[0]):
        return
    if (
        not _ERRORS.isdisjoint(loss.stem)
        and last < LEARNED_ALL * first
        and loss.values.min() < FAR_FROM_FIRST * untrained
    ):
        return  # errors that are first logged when much has been learned, of a model that learns all of it by heart
    if untrained < TRAINED_BEFORE and ends(loss.values)[1] > GOES_ON * float(loss.values[0]):
        return  # a model that was trained before the log begins, and overfits
    facts = {
        "what": "The loss of evaluations is far above that of the untrained model from the first one on, although the training "
        "loss falls",
        "numbers": f"{from_to(loss)}, {from_to(training)}",
        "why": "Probably the data of evaluations are prepared in another way than those of the training, or their labels are "
        "numbered in another way. Overfitting begins later.",
    }
    yield beside("evaluation_differs", "problem", (loss, training), facts)


def _too_large_for_mistakes(data: RunData, loss: Series, training: Series) -> Iterator[Finding]:
    """Judge losses of evaluations far above guessing while mistakes become rare.

    Inputs of another scale make outputs of another scale: what is still wrong is wrong beyond measure. Sums fall as the
    mistakes do.
    """
    if len(training) < FEW or training.values[0] <= 0:
        return
    first, last = ends(training.values)
    untrained = float(training.values[:3].max())
    for one in evaluations(data):
        _, at, of = np.intersect1d(loss.steps, one.accuracy.steps, return_indices=True)
        if one.loss is not loss or len(at) < FEW or last >= (1 - FALLS) * first:
            continue
        losses, wrong = loss.values[at], 1 - one.share[of]
        if losses.min() < FAR_ABOVE * untrained or not 0 < wrong[-1] <= MISTAKES_FALL * wrong[0]:
            continue
        if math.log(losses[0] / losses[-1]) > LOSS_FALLS * math.log(wrong[0] / wrong[-1]):
            continue
        facts = {
            "what": "The loss of evaluations is far above that of the untrained model from the first one on, although most answers are "
            "right",
            "numbers": f"{from_to(loss)}, {from_to(one.accuracy)}, {from_to(training)}",
            "why": "Probably the inputs of evaluations have another scale than those of the training, such as without its normalization.",
        }
        yield beside("evaluation_differs", "problem", (loss, one.accuracy), facts)
        return


def _soon_above(loss: Series, training: Series) -> Iterator[Finding]:
    """Judge losses of evaluations that rise as soon as anything is learned.

    They leave that of guessing. What is learned by heart raises them later.
    """
    if min(len(loss), len(training)) < SHOWN or training.values[0] <= 0:
        return
    untrained = max(float(training.values[0]), float(loss.values[0]))
    level = np.interp(steps_along(loss, training), training.steps, training.values)
    soon = np.flatnonzero(level > HARDLY_TRAINED * training.values[0])
    above = np.flatnonzero(loss.values > SOON_ABOVE * untrained)
    if len(soon) < 2 or not len(above) or above[0] > soon[-1] or level[-1] > HARDLY_TRAINED * training.values[0]:
        return
    after = loss.values[above[0] :]
    if len(after) < SHOWN or after.min() < STAY_ABOVE * untrained:
        return
    facts = {
        "what": f"The loss of evaluations is far above that of the untrained model since step {loss.steps[above[0]]:,}, where the "
        "training loss has hardly fallen",
        "numbers": f"{from_to(loss)}, {from_to(training)}",
        "why": "Probably the data of evaluations are prepared in another way than those of the training, such as without its scaling. "
        "Overfitting begins later.",
    }
    yield beside("evaluation_differs", "problem", (loss, training), facts)


def _lags(loss: Series, training: Series) -> Iterator[Finding]:
    """Judge losses of evaluations that begin far above guessing, and come down late.

    The training loss has fallen by then. What a model learns by heart raises its losses later, not from the first
    evaluation on.
    """
    if min(len(loss), len(training)) < SHOWN or training.values[0] <= 0 or loss.values[0] <= 0:
        return
    untrained = float(training.values[:3].max())
    level = np.interp(steps_along(loss, training), training.steps, training.values)
    wild = np.flatnonzero((loss.values > WILD * untrained) & (level < LEARNED * untrained))
    late = float(loss.values[-3:].min())
    if len(wild) < WILD_EVALUATIONS or wild[-1] > len(loss) * 2 // 3 or loss.values[0] < FROM_FIRST * loss.values.max():
        return
    if late > LATE_RIGHT * untrained:
        return
    facts = {
        "what": f"The loss of evaluations is above that of the untrained model at {len(wild)} evaluations, at which the training loss "
        "has fallen, and comes down later",
        "numbers": f"{from_to(loss)}, {from_to(training)}",
        "why": "Probably the evaluated model lags behind the trained one: running statistics of a batch normalization with a small "
        "momentum, or averaged weights.",
    }
    yield beside("evaluation_differs", "problem", (loss, training), facts)


def _above_new_rows(data: RunData, loss: Series, training: Series) -> Iterator[Finding]:
    """Judge losses of evaluations in the first epoch, whose rows are all new.

    The training has not seen its rows before either, so that both losses are alike.
    """
    if data.epochs is None or len(loss) < SHOWN or len(training) < SHOWN or training.values[0] <= 0:
        return
    level = np.interp(loss.steps, training.steps, training.values)
    epochs = np.interp(loss.steps, data.epochs.steps, data.epochs.values)
    if (
        (epochs <= 1).sum() < 2
        or (loss.values < NEW_ROWS * level).any()
        or level[0] > HARDLY_TRAINED * training.values[0]
    ):
        return
    # Rows in the order of their classes are learned class by class.
    late = training.values[training.steps >= loss.steps[0]]
    if late.max() > NEW_ROWS * level[0] or loss.values.min() < FALLEN * loss.values[0]:
        return
    facts = {
        "what": f"The loss of evaluations is at least {float((loss.values / level).min()):.2g} times that of the training, from the first "
        "epoch on, in which all rows are new to the model",
        "numbers": f"{from_to(loss)}, {from_to(training)}",
        "why": "Probably inputs or labels of evaluations are prepared in another way than those of the training. Overfitting begins "
        "later.",
    }
    yield beside("evaluation_differs", "problem", (loss, training), facts)


def _rare(data: RunData, accuracies: list[Series]) -> list[Series]:
    """Return the accuracies without a word for their data that only evaluations have.

    They have few values beside a loss and an accuracy of many.
    """
    many = max((len(one) for one in data.training_losses()), default=0)
    if data.held_out(Kind.METRIC) or not any(len(one) > many / 2 for one in accuracies):
        return []
    return [one for one in accuracies if one.role is Role.NONE and len(one) < many / 3]


def _falling(data: RunData) -> Series | None:
    """Return the training loss with the most values if it falls."""
    losses = [one for one in data.training_losses() if len(one) >= FEW]
    loss = max(losses, key=len, default=None)
    if loss is None:
        return None
    first, last = ends(loss.values)
    return loss if first > 0 and last < (1 - TRAINS) * first else None


def _never_below(one: Evaluations, training: Series, chance: float) -> Finding:
    """Return the finding of a training loss that falls to that of guessing only."""
    detail = f"{from_to(training)}, {from_to(one.accuracy)}"
    by_accuracy = f"By the accuracies, {guessing(1 / chance)}. "
    facts = {"detail": detail, "guessing": by_accuracy, "what": "training loss", "verb": "fall below that of guessing"}
    return unlearned(training, facts)


def _of_guessing(one: Evaluations, training: Series, chance: float, learns: bool) -> Finding:
    first, last = int(one.loss.steps[0]), int(one.loss.steps[-1])
    guess = -math.log(chance)
    # Samples that are learned by heart raise the loss of others, and slowly.
    unmoved = float(np.ptp(one.loss.values)) <= HARDLY_MOVES * abs(float(one.loss.values[0]))
    stays = unmoved and float(training.values[-1]) < 0.5 * guess
    late = float(np.median(one.share[len(one.share) // 2 :]))
    is_worse = late < WORSE * min(chance, one.share[0]) and one.loss.values[-1] > RISES * one.loss.values[0]
    differs = stays or learns or is_worse or float(one.loss.values[0]) > FAR_ABOVE * guess
    fast = ": the training learns fast" if learns else ""
    apart = "Probably the data of evaluations are prepared in another way than those of the training"
    others = "The evaluated model hardly changes: probably other weights are evaluated than those that are trained"
    facts = {
        "what": "Evaluations are never better than guessing, although the training loss falls",
        "numbers": f"{one.accuracy.quoted} up to {one.share.max():.3g}, {from_to(one.loss)}, {from_to(training)}"
        f"; {guessing(1 / chance)}",
        "why": f"{others}." if stays else f"{apart}{fast}." if differs else _UNRELATED,
    }
    shown = (
        evidence(one.accuracy, f"{one.accuracy.label} up to {one.share.max():.3g}", first, last),
        evidence(training, f"{training.label} {training.values[0]:.3g} → {training.values[-1]:.3g}", first, last),
    )
    names = one.accuracy.name, one.loss.name, training.name
    kind = "evaluation_differs" if differs else "labels_unrelated"
    return Finding.of(kind, "problem", "medium", first, last, names, facts, shown)


def _worse_than_chance(data: RunData) -> Iterator[Finding]:
    """Judge areas under the curve that are those of answers the wrong way round."""
    for area in data.held_out(Kind.METRIC):
        if len(area) < FEW or not is_area(area) or not 0 < area.values.max() < BELOW_CHANCE:
            continue
        facts = {
            "what": f"{area.quoted} is below 0.5 at every evaluation: answers at random would be better",
            "numbers": f"{from_to(area)}, at most {area.values.max():.3g} at {len(area):,} evaluations",
            "why": "Probably labels or scores of the evaluation are the wrong way round, or its data are of another kind.",
        }
        yield beside("evaluation_differs", "problem", (area,), facts)
        return


def _swapped(data: RunData) -> Iterator[Finding]:
    """Judge pairs of answers that evaluations order the wrong way round."""
    for share in data.held_out(Kind.METRIC):
        if not is_share_of_pairs(share) or len(share) < FEWEST:
            continue
        of_training = [one for one in data.of(Kind.METRIC) if one.stem == share.stem and not one.role.is_held_out]
        if not of_training or share.values.max() > WRONG_WAY or np.median(of_training[0].values) < 1 - WRONG_WAY:
            continue
        facts = {
            "what": f"{share.quoted} is far below 0.5 at every evaluation, although the training orders its pairs right",
            "numbers": f"{from_to(share)}, {from_to(of_training[0])}",
            "why": "Probably the preferred and the rejected answers of the evaluation are exchanged.",
        }
        yield beside("evaluation_differs", "problem", (share, of_training[0]), facts)
        return


def _area_of_guessing(data: RunData) -> Iterator[Finding]:
    """Judge areas under the curve of chance beside a training that learns all."""
    areas = [one for one in data.of(Kind.METRIC) if is_area(one) and len(one) >= LEAST_AREAS]
    trained = next((one for one in areas if one.role is Role.TRAINING and one.values[-1] >= ALL_LEARNED), None)
    if trained is None:
        return
    low, high = AREAS_OF_CHANCE
    for area in areas:
        if area.role.is_held_out and low <= area.values.min() <= area.values.max() <= high:
            what = f"{area.quoted} is never better than chance, although {trained.quoted} comes to {trained.values[-1]:.3g}"
            yield _unrelated(what, area, trained)
            return


def _unrelated(what: str, held_out: Series, training: Series, *others: Series) -> Finding:
    """Return that a training learns single samples only, as these series show."""
    facts = {"what": what, "numbers": f"{from_to(held_out)}, {from_to(training)}", "why": _UNRELATED}
    return beside("labels_unrelated", "problem", (*others, held_out, training), facts)


def _hardly_sure(data: RunData) -> Iterator[Finding]:
    """Judge evaluations that are mostly right, with a loss that is near guessing.

    What is learned by heart makes a model too sure of its mistakes, after a loss that was far lower.
    """
    training = _falling(data)
    if training is None:
        return
    for one in evaluations(data):
        losses = one.loss.values
        if min(len(losses), len(one.share)) < SHOWN:
            continue
        untrained = max(float(losses[0]), float(training.values[0]))
        share = float(np.median(one.share[len(one.share) // 2 :]))
        is_sure = ends(training.values)[1] < SURE * training.values[0]
        if not SEVERAL_CLASSES < untrained < MOST_GUESS or losses.min() < HARDLY_SURE * untrained or not is_sure:
            continue
        if not LEAST_GOOD <= share < 1:
            continue
        # What a model loses that is as sure as it is right, and does not prefer any of the wrong answers.
        fair = -share * math.log(share) - (1 - share) * (math.log(1 - share) - untrained)
        is_unsure = float(np.median(losses[len(losses) // 2 :])) >= UNSURE * fair
        if is_unsure and losses.max() <= (1 + HARDLY_MOVES) * untrained:
            facts = {
                "what": f"{one.loss.quoted} is never far below that of guessing, although {share:.0%} of the answers are right",
                "numbers": f"{from_to(one.loss)}, {from_to(one.accuracy)}, {from_to(training)}",
                "why": "Probably outputs of evaluations are smaller than those of the training, as with running statistics that "
                "are not those of the data, or dropout that stays active.",
            }
            yield beside("evaluation_differs", "problem", (one.loss, one.accuracy, training), facts)
            return


def _next_to_nothing(data: RunData) -> Iterator[Finding]:
    """Judge metrics that stay at 0 beside data that are learned by heart."""
    trained = [one for one in data.training_losses() if len(one) >= LEAST_EVALUATIONS and one.values[0] > 0]
    if not trained or any(one.values[-1] > BY_HEART * one.values[0] for one in trained):
        return
    metrics = [
        one
        for one in data.of(Kind.METRIC)
        if one.role is not Role.TRAINING and len(one) >= LEAST_EVALUATIONS and not is_share_of_pairs(one)
    ]
    losses = [one for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_EVALUATIONS and one.values[0] > 0]
    if not metrics or any(np.abs(one.values).max() > NEXT_TO_NOTHING for one in metrics):
        return
    if not losses or any(one.values.min() < NEVER_FALLS * one.values[0] for one in losses):
        return
    metric = metrics[0]
    what = f"{metric.quoted} is at most {metric.values.max():.2g}, although the training loss falls to nearly nothing"
    yield _unrelated(what, losses[0], trained[0], metric)


def _never_better(data: RunData) -> Iterator[Finding]:
    """Judge a loss of evaluations that no epoch makes better.

    The training loss beside it falls slowly at first: single rows are learned slowly, what holds for other rows is not.
    """
    for loss, training in logged_pairs(data):
        if len(loss) < LEAST_LOSSES or len(training) < len(loss) or min(loss.values.min(), training.values[0]) <= 0:
            continue
        at = int(FIFTH * len(training))
        first, soon, end = (float(np.median(part)) for part in np.split(training.values, (3, at, at + 3, -3))[::2])
        begin = float(loss.values[0])
        if loss.values.min() < (1 - GAIN) * begin or loss.values[-1] <= begin or abs(begin / first - 1) > ALIKE:
            continue
        if soon < SLOWLY * first or end > LEARNED_SINGLE * first or _any_metric_improves(data):
            continue
        what = f"{loss.quoted} is never better than at first, and the training loss falls slowly at first"
        yield _unrelated(what, loss, training)
        return


def _any_metric_improves(data: RunData) -> bool:
    """Whether a metric of held-out data is clearly better at its best than at first."""
    metrics = [one for one in data.held_out(Kind.METRIC) if len(one)]
    return any(one.values.max() > one.values[0] + GAIN * float(np.abs(one.values).max()) for one in metrics)


def _far_above_test(data: RunData) -> Iterator[Finding]:
    """Judge a metric that rises far above that of test data."""
    metrics = [one for one in data.held_out(Kind.METRIC) if len(one) >= FEW and one.values.min() > 0]
    for metric in metrics:
        tests = [one for one in metrics if one.role is Role.TEST and one.stem == metric.stem]
        if metric.role is not Role.VALIDATION or not tests:
            continue
        _, at, of = np.intersect1d(metric.steps, tests[0].steps, return_indices=True)
        if len(at) < FEW or not metric.values[at][-1] > metric.values[at][0]:
            continue
        ratios = metric.values[at] / tests[0].values[of]
        # Rows that are trained on, too, are learned by heart only late.
        late = ratios[-max(FEW, len(ratios) // 3) :]
        is_above = (ratios > ABOVE_TEST).mean() >= NEARLY_ALL or late.min() > ABOVE_TEST
        if not is_above or ratios[-1] < ABOVE_TEST:
            continue
        facts = {
            "what": f"{metric.quoted} is {np.median(ratios):.2g} times {tests[0].quoted}",
            "numbers": f"{from_to(metric)}, {from_to(tests[0])}",
            "why": "Probably validation data are among those of the training, or the two are prepared in another way.",
        }
        yield beside("evaluation_differs", "problem", (metric, tests[0]), facts)
        return
