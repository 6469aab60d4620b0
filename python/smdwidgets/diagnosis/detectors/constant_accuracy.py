"""Evaluations that are right equally often, whatever the training changes."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, evaluations, is_accuracy, is_area, is_share_of_errors
from smdwidgets.diagnosis.detectors._show import beside, evidence, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

#: Evaluations that show it.
LEAST_EVALUATIONS = 5
#: Change of the loss of the same evaluations, relative to its level, from which on weights move.
LEAST_CHANGE = 0.02
#: An accuracy from which on a model that classifies everything well is as constant.
ALMOST_ALL = 0.97
#: Rounding of an accuracy in a log.
SAME = 2e-4
#: Most classes of which one is recognized by the mean of their accuracies; rounding of this mean.
MOST_CLASSES, ROUNDED = 50, 6e-5
#: Rates of errors in what a model writes, and the fall of a loss in the second half of the run that still learns.
_RATES, STILL_LEARNS = frozenset({"wer", "cer", "uer", "per", "ter"}), 0.1
#: Fewest evaluations whose accuracy and F1 are those of one class, and how exactly, relative to it.
LEAST_EXACT, EXACTLY = 2, 5e-4
#: The same of two classes, whose F1 is 0 more easily.
LEAST_OF_TWO = 3
#: A loss relative to that of guessing which is no better.
HARDLY_BELOW = 0.975
#: Fewest evaluations that rank samples well but are wrong for half of them, and the least area under the curve.
LEAST_RANKED, RANKED, WRONG = 5, 0.65, 0.5
#: Names of an accuracy that is the mean of those of all classes, as sets of words.
_OF_CLASSES = (
    *({mean, right} for mean in ("m", "balanced", "bal") for right in ("acc", "accuracy")),
    {"macro", "recall"},
    {"mean", "class", "acc"},
    {"mean", "class", "accuracy"},
    {"mca"},
    {"uar"},
)


def constant_accuracy(data: RunData) -> Iterator[Finding]:
    """Yield accuracies that are the same at all evaluations while their loss changes.

    The model then gives all samples the same class.
    """
    for loss, accuracy, share in evaluations(data):
        since = since_one_class(share)
        # One class is right for some samples: with an accuracy of 0, the metric is wrong.
        if min(len(loss), len(share) - since) < LEAST_EVALUATIONS or not 0 < share[-1] < ALMOST_ALL:
            continue
        if np.ptp(loss.values) > LEAST_CHANGE * abs(float(loss.values[0])):
            yield _finding(accuracy, loss, share, since)
            return
    yield from next((findings for by in (_by_f1, _by_f1_of_two) if (findings := list(by(data)))), [])
    yield from _mean_of_classes(data)
    yield from _none_is_positive(data)
    yield from _ranks_only(data)
    yield from _every_word_wrong(data)


def _by_f1(data: RunData) -> Iterator[Finding]:
    """Yield an accuracy and an F1 that only the answers of one class give.

    Where the losses are not better than those of guessing, nothing was learned.
    """
    for accuracy, f1, classes in _of_one_class(data):
        guess = HARDLY_BELOW * math.log(classes)
        if any(one.values.min(initial=math.inf) < guess for one in data.of(Kind.LOSS) if one.stem == ("loss",)):
            yield _all_one(accuracy, f1, classes, len(f1))
            return


def _by_f1_of_two(data: RunData) -> Iterator[Finding]:
    """Yield an accuracy and an F1 that only one of two classes gives.

    F1 is 0 where no sample is called positive, and 2 p / (1 + p) at an accuracy of p where all are.
    """
    for accuracy, f1, share, score in _of_scores(data):
        none, every = share[score == 0], share[score > 0]
        by_all = 2 * every / (1 + every)
        if len(share) < LEAST_OF_TWO or not 0 < share.min() <= share.max() < ALMOST_ALL:
            continue
        if (np.abs(score[score > 0] - by_all) > EXACTLY * by_all).any():
            continue
        if np.ptp(np.concatenate([none, 1 - every])) <= SAME:
            yield _all_one(accuracy, f1, 2, len(share))
            return


def _all_one(accuracy: Series, f1: Series, classes: int, evaluations: int) -> Finding:
    facts = {
        "title": f"{accuracy.quoted} and {f1.quoted} are those of answers that are all one of {classes} classes, at each of "
        f"{evaluations:,} evaluations",
        "subject": f"{from_to(accuracy)}, {from_to(f1)}",
    }
    return beside("one_class", "problem", (accuracy, f1), facts)


def classes_of_one(data: RunData) -> int:
    """Return the number of classes of which one is always the answer, by F1.

    0: it is not known.
    """
    return next((classes for _, _, classes in _of_one_class(data)), 0)


def _of_one_class(data: RunData) -> Iterator[tuple[Series, Series, int]]:
    """Yield an accuracy, an F1 that only the answers of one class give, and k.

    Of k classes, that one has an F1 of 2 p / (1 + p) at an accuracy of p, and the others have none.
    """
    for accuracy, f1, share, score in _of_scores(data):
        classes = _classes_of_f1(share, score) if len(share) >= LEAST_EXACT else 0
        if classes:
            yield accuracy, f1, classes


def _of_scores(data: RunData) -> Iterator[tuple[Series, Series, Floats, Floats]]:
    """Yield an accuracy and an F1 of the same evaluations, with their values there."""
    metrics = data.held_out(Kind.METRIC)
    for accuracy in filter(is_accuracy, metrics):
        for f1 in metrics:
            if "f1" in f1.stem and f1.role is accuracy.role:
                _, at, of = np.intersect1d(accuracy.steps, f1.steps, return_indices=True)
                if len(at):
                    yield accuracy, f1, as_share(accuracy)[at], as_share(f1)[of]


def _classes_of_f1(share: Floats, f1: Floats) -> int:
    """Return the number of classes of which one is always the answer, or 0.

    >>> _classes_of_f1(np.array([0.164, 0.174]), np.array([0.0469645, 0.0494038]))
    6
    """
    if share.min() <= 0 or f1.min() <= 0:
        return 0
    ratios = 2 * share / ((1 + share) * f1)
    classes = round(float(ratios[0]))
    is_one = 2 <= classes <= MOST_CLASSES and (np.abs(ratios - classes) <= EXACTLY * classes).all()
    return classes if is_one else 0


def _none_is_positive(data: RunData) -> Iterator[Finding]:
    """Yield a recall of exactly 0 to the end while the loss falls.

    No sample is called positive.
    """
    for recall in data.held_out(Kind.METRIC):
        if "recall" not in recall.stem or len(recall) < LEAST_EVALUATIONS:
            continue
        seen = np.flatnonzero(recall.values)
        since = int(seen[-1]) + 1 if len(seen) else 0
        if since > len(recall) / 2 or len(recall) - since < LEAST_EVALUATIONS:
            continue
        losses = [one for one in data.of(Kind.LOSS) if len(one) >= LEAST_EVALUATIONS and one.values[-1] < one.values[0]]
        rest = [one for one in data.held_out(Kind.METRIC) if is_accuracy(one) and one.role is recall.role]
        if losses and rest and as_share(rest[0])[-1] > 0:
            facts = {
                "title": f"{recall.quoted} is 0 at each of the last {len(recall) - since:,} evaluations at an accuracy of "
                f"{as_share(rest[0])[-1]:.3g}: no sample is called positive",
                "subject": from_to(losses[0]),
            }
            yield beside("one_class", "problem", (recall, rest[0]), facts, int(recall.steps[since]))
            return


def ranks_well(data: RunData, error: Series) -> Series | None:
    """Return an area under the curve that shows that samples are ranked well, or None."""
    areas = filter(is_area, data.held_out(Kind.METRIC))
    good = (one for one in areas if len(one) >= LEAST_RANKED and float(np.median(one.values)) >= RANKED)
    return next((one for one in good if one.role is error.role), None)


def _ranks_only(data: RunData) -> Iterator[Finding]:
    """Yield a model that ranks samples well, and is wrong for most of them.

    Nearly all get the class that has the larger weight.
    """
    for error in data.held_out(Kind.LOSS):
        if is_share_of_errors(error) and len(error) >= LEAST_RANKED and error.values.min() >= WRONG:
            area = ranks_well(data, error)
            if area is not None:
                facts = {
                    "title": f"{area.quoted} is {area.values[-1]:.3g}, but {error.quoted} is {error.values[-1]:.3g}: samples are ranked "
                    "well, and nearly all get one class. Probably a weight of the classes, such as `scale_pos_weight`, is far off",
                    "subject": f"{from_to(area)}, {from_to(error)}",
                }
                yield beside("one_class", "problem", (error, area), facts)
                return


def _mean_of_classes(data: RunData) -> Iterator[Finding]:
    """Yield a mean accuracy of classes that is that of one of them throughout.

    All samples of that class are right then, and none of the others.
    """
    for series in data.series:
        words = frozenset(series.words)
        is_mean = any(name <= words for name in _OF_CLASSES) and series.role is not Role.TRAINING
        if not is_mean or len(series) < LEAST_EVALUATIONS or np.ptp(series.values) or series.values[0] <= 0:
            continue
        share = float(as_share(series)[0])
        classes = round(1 / share)
        if not 2 <= classes <= MOST_CLASSES or abs(share - 1 / classes) > ROUNDED:
            continue
        learned = [one for one in data.of(Kind.LOSS) if len(one) >= LEAST_EVALUATIONS and np.ptp(one.values)]
        if not learned:
            continue
        facts = {
            "title": f"{series.quoted} is {series.values[0]:.4g} at each of {len(series):,} evaluations, the mean of "
            f"{classes} classes of which only one is ever right: the model predicts one class",
            "subject": f"{learned[0].quoted} {learned[0].values[0]:.4g} → {learned[0].values[-1]:.4g}",
        }
        yield beside("one_class", "problem", (series,), facts)
        return


def _every_word_wrong(data: RunData) -> Iterator[Finding]:
    """Yield rates of errors of exactly 1 at all evaluations while the loss stays.

    Outputs with words have more or fewer errors. Many models write nothing at first.
    """
    losses = [one for one in data.training_losses() if len(one) >= LEAST_EVALUATIONS]
    if not losses or any(_still_falls(one) for one in [*losses, *data.held_out(Kind.LOSS)] if "loss" in one.stem):
        return
    for rate in data.of(Kind.LOSS, Kind.UNKNOWN):
        is_rate = not _RATES.isdisjoint(rate.words[-1:]) and rate.role is not Role.TRAINING
        if not is_rate or len(rate) < LEAST_EVALUATIONS or np.ptp(rate.values) or rate.values[0] not in (1, 100):
            continue
        facts = {
            "what": f"{rate.quoted} is exactly {rate.values[0]:.4g} at each of {len(rate):,} evaluations: the outputs are empty",
            "where": f"{losses[0].quoted} {losses[0].values[0]:.4g} → {losses[0].values[-1]:.4g}",
            "why": "The model has only learned that no word is the likeliest answer. Probably targets do not belong to their inputs, "
            "or the learning rate is too high or too low.",
        }
        yield beside("output_constant", "problem", (rate, losses[0]), facts)
        return


def _still_falls(loss: Series) -> bool:
    late = loss.values[len(loss) // 2 :]
    if len(late) < LEAST_EVALUATIONS - 2:
        return False
    part = max(1, len(late) // 4)
    first, last = float(np.median(late[:part])), float(np.median(late[-part:]))
    return last < (1 - STILL_LEARNS) * first


def since_one_class(share: Floats) -> int:
    """Return since which evaluation an accuracy is that of one class.

    That is 0 if it is always the same, and else where it is that of either of two classes up to the end. What has been
    learned may be right equally often at the end, so one number counts only for the whole run.

    >>> [since_one_class(np.array(one)) for one in ([0.9, 0.48, 0.52, 0.52], [0.1, 0.1], [0.8, 0.9, 0.9])]
    [1, 0, 3]
    """
    last = float(share[-1])
    is_other = np.abs(share - (1 - last)) <= SAME
    misses = np.flatnonzero((share != last) & ~is_other)
    since = int(misses[-1]) + 1 if len(misses) else 0
    return since if not since or (is_other[since:] & (share[since:] != last)).any() else len(share)


def _finding(accuracy: Series, loss: Series, share: Floats, since: int) -> Finding:
    first, last = int(accuracy.steps[since]), int(accuracy.steps[-1])
    values = " or ".join(f"{one:.4g}" for one in np.unique(np.round(share[since:], 6))[::-1])
    count = f"{len(share) - since:,} evaluations"
    where = f"{count} in succession" if since else f"each of {count}"
    facts = {
        "title": f"{accuracy.quoted} is {values} at {where}, while their loss changes: the model predicts one class",
        "subject": f"{loss.quoted} {loss.values[0]:.4g} → {loss.values[-1]:.4g}",
    }
    shown = evidence(accuracy, f"{accuracy.label} {values}", first, last)
    return Finding.of("one_class", "problem", "medium", first, last, (accuracy.name,), facts, (shown,))
