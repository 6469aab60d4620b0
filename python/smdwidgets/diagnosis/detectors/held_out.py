"""Evaluations that contradict the training: beside its loss, or among themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._accuracy import (
    Evaluations,
    as_share,
    evaluations,
    is_accuracy,
    is_area,
    is_share_of_errors,
)
from smdwidgets.diagnosis.detectors._show import beside, course, evidence, from_to, guessing
from smdwidgets.diagnosis.detectors.constant_accuracy import LEAST_EVALUATIONS, ranks_well, since_one_class
from smdwidgets.diagnosis.detectors.overfit import partner
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.step_axes import steps_along
from smdwidgets.diagnosis.trends import local_noise, mann_kendall
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

__all__ = ["held_out"]

#: Fewest evaluations that show something; fewest that show how much they vary.
FEW, MANY = 5, 12
#: Fall of a loss relative to its first value that a metric of the same model must show.
LEARNED = 0.7
#: An accuracy relative to that of guessing which is no better, and its distance from guessing by that of no mistake.
#: The least loss of held-out data relative to the first one, and the fall of the training loss beside it.
GUESSED, OF_MISTAKES, NO_BETTER, TRAINS = 1.8, 0.25, 0.95, 0.04
#: An accuracy relative to that of guessing, and to its first value, of a model that has learned something, beside a
#: first loss that is that of guessing.
ABOVE_GUESS, ROSE, AS_UNTRAINED = 1.4, 1.3, 1.2
#: The first of these beside a training that learns fast, whose evaluations would be far better.
ABOVE_GUESS_OF_FAST = 2.0
#: Accuracy of other held-out data that shows that evaluations are right.
LEAST_GOOD = 0.65
#: Range of a loss of evaluations, relative to its first value, of weights that hardly change.
HARDLY_MOVES = 0.02
#: Losses of guessing: of 2 classes, a little less where they are not balanced, and of some hundreds.
LEAST_GUESS, MOST_GUESS = 0.5, 5.5
#: Accuracies of training and evaluation, where no loss of evaluations was logged.
TRAINED, POOR = 0.8, 0.25
#: Share of the evaluations within which a training loss halves if inputs belong to their labels.
SOON = 0.25
#: Ratio of two losses of one name, its spread as a logarithm, and the steps that both must have.
TWO_SCALES, STEADY, SHARED = 8.0, 0.15, 4
#: Evaluations whose loss never falls, and their loss by the first one of the training, which is that of an untrained
#: model.
FEWEST, FAR_ABOVE, FALLEN = 3, 3.0, 0.8
#: The same since a step at which the training loss has hardly fallen, to the end, and evaluations that show it.
SOON_ABOVE, HARDLY_TRAINED, STAY_ABOVE, SHOWN = 2.5, 0.65, 2.0, 6
#: First loss of a training that goes on with a trained model, and the rise of such evaluations, relative to the first.
TRAINED_BEFORE, GOES_ON = 0.2, 1.5
#: First loss of a language model, those of guessing among some hundreds of tokens and among all, and a loss that text
#: does not allow, also by that of the training.
OF_WORDS, OF_TOKENS, MOST_OF_TOKENS, FORESEEN, AS_TRAINED = 2.0, 5.0, 13.0, 0.1, 1.3
#: An area under the curve, or a share of right answers, without a mistake, and words of such shares.
PERFECT_AREA = 0.9995
OF_SHARES = frozenset({"f1", "precision", "recall"})
#: First step of evaluations by their distance that is that of the first one of a training.
SOON_EVALUATED = 2.0
#: Loss of the first samples of a training, and one of others with which a model is almost certain.
UNSURE, CERTAIN, CERTAIN_OF_OTHERS = 0.3, 0.005, 0.001
#: A loss of held-out data relative to that of the training that is too good, and an accuracy without a mistake.
TOO_GOOD, WITHOUT_MISTAKE, TRAINING_ERRS = 0.2, 0.999, 0.05
#: Spread of the logarithm of a loss from one evaluation to the next, and the level of the last ones by the best.
SWINGS, ABOVE_BEST = 0.35, 1.5
#: An area under the curve that is worse than chance, beyond its noise.
BELOW_CHANCE = 0.45
#: Words of what may fall in a training that works: rewards of the chosen answers, and distances.
MAY_FALL = frozenset({"chosen", "rejected", "margin", "margins", "dist", "distance"})
#: Fall of a metric relative to its best, and relative to what it had gained.
FALLS, OF_GAIN = 0.25, 0.8
#: A share of overlap or of right answers that is nothing, at so many evaluations, beside a loss that falls to a part.
NOTHING, LEAST_OF_NOTHING, HALVES = 0.01, 8, 0.5
_OF_OVERLAP = frozenset({"dice", "iou", "miou", "jaccard", "f1", "acc", "accuracy"})
#: Distance of an error from its worst value, relative to it.
NEARLY_WORST = 0.01
#: The same of a rate of errors in the median of the last half, and the least one of any evaluation by the worst.
OF_ERRORS, FEWER_ERRORS = 0.03, 0.85
#: Share of the values at which one falls that does not fall by half.
STEADILY = 0.6
#: Share of the least loss that wrong answers allow, above which a loss may be another one; the training loss beside it.
IMPOSSIBLE, FAR_BELOW = 0.3, 5.0
#: Words of series that only trainings of language models have.
_OF_LANGUAGE = frozenset({"ppl", "perplexity", "mfu", "bpb", "wps", "tokens", "tok", "lm"})
#: Words of metrics of generated texts; the loss of a token that is foreseen, and a metric of badly generated ones.
OF_TEXTS, SURE_OF_TOKENS, BADLY = frozenset({"bleu", "rouge", "chrf"}), 0.1, 0.75
#: Length of generated texts relative to that of the references.
TOO_LONG = 3.0
#: Words of rates of wrong words, letters or sounds.
_OF_ERRORS = frozenset({"wer", "cer", "per"})
#: Words of shares of episodes that reach what they should.
_SUCCESS = frozenset(
    {"custom", "success", "succeeded", "solved", "delivered", "completed", "goal", "goals", "reached", "won"}
)
#: A metric of the validation relative to that of the test that is far above it, at how many of the evaluations.
ABOVE_TEST, NEARLY_ALL = 1.5, 0.9
#: Metrics that another threshold exchanges for each other.
_ONE_SIDED = frozenset({"precision", "recall", "sensitivity", "specificity"})


class _Pair(NamedTuple):
    """Values of a training loss and of the held-out loss, at the same steps."""

    training: Floats
    held_out: Floats


def held_out(data: RunData) -> Iterator[Finding]:
    """Yield what evaluations contradict."""
    yield from _at_guessing(data)
    yield from _poor_accuracy(data)
    yield from _stuck(data)
    yield from _falls(data)
    yield from _best_is_worst(data)
    yield from _generated(data)
    yield from _far_too_long(data)
    yield from _same_as_training(data)
    yield from _far_above_test(data)
    yield from _worse_than_chance(data)
    if len(data.tensors):
        return  # a hook finds losses of evaluations itself, which may be those of few samples, or of another form
    for loss in data.held_out(Kind.LOSS):
        training = partner(data, loss)
        if training is not None:
            yield from _far_above(loss, training)
            yield from _soon_above(loss, training)
            yield from _two_scales(data, loss)
            yield from _too_good(data, loss, training)
            yield from _foreseen(data, loss, training)
        yield from _swings(data, loss)
    yield from _impossible(data)
    yield from _perfect(data)
    yield from _sets_differ(data)
    yield from _soon_certain(data)
    yield from _certain(data)


def _same_as_training(data: RunData) -> Iterator[Finding]:
    """Judge evaluations that equal those of the training in every digit."""
    for held_out in [*data.held_out(Kind.LOSS), *data.held_out(Kind.METRIC)]:
        for training in data.training_by_words.get((held_out.kind, held_out.stem), []):
            same = len(held_out) >= MANY and np.array_equal(held_out.steps, training.steps)
            if not same or not np.array_equal(held_out.values, training.values) or not np.ptp(held_out.values):
                continue
            facts = {
                "what": f"The evaluation {held_out.quoted} equals {training.quoted} in every digit",
                "numbers": f"{from_to(held_out)}, {len(held_out):,} values",
                "why": "The data of the training are evaluated, or one series is logged under two names: nothing shows how "
                "good the model is on other data.",
            }
            yield beside("evaluation_too_good", "warning", (held_out, training), facts)
            return


# --------------------------------------------------------------------------------------------------------- guessing


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
        soon = training.values[: max(2, round(SOON * len(training)))]
        learns = float(soon.min()) < 0.5 * untrained
        least = (ABOVE_GUESS_OF_FAST if learns else ABOVE_GUESS) * chance
        if losses[0] <= AS_UNTRAINED * untrained and best > max(least, ROSE * float(one.share[0])):
            continue
        if ranks_well(data, one.accuracy) is not None:
            continue
        most = min(GUESSED * chance, chance + OF_MISTAKES * (1 - chance))
        if (one.share <= most).all() and losses.min() >= NO_BETTER * untrained:
            yield _of_guessing(one, training, chance, learns)
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
    first, last = _ends(training.values)
    untrained = float(training.values[:3].max())
    if not 0 < last < (1 - FALLS) * first or float(loss.values.min()) < FAR_ABOVE * untrained:
        return
    if float(loss.values.min()) < FALLEN * float(loss.values[0]):
        return
    if untrained < TRAINED_BEFORE and _ends(loss.values)[1] > GOES_ON * float(loss.values[0]):
        return  # a model that was trained before the log begins, and overfits
    facts = {
        "what": "The loss of evaluations is far above that of the untrained model from the first one on, although the training "
        "loss falls",
        "numbers": f"{from_to(loss)}, {from_to(training)}",
        "why": "Probably the data of evaluations are prepared in another way than those of the training, or their labels are "
        "numbered in another way. Overfitting begins later.",
    }
    yield beside("evaluation_differs", "problem", (loss, training), facts)


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
    first, last = _ends(loss.values)
    return loss if first > 0 and last < (1 - TRAINS) * first else None


def _ends(values: Floats) -> tuple[float, float]:
    """Return the levels of the first and of the last values."""
    part = max(1, len(values) // 10)
    return float(np.median(values[:part])), float(np.median(values[-max(part, min(3, len(values) // 2)) :]))


def _of_guessing(one: Evaluations, training: Series, chance: float, learns: bool) -> Finding:
    first, last = int(one.loss.steps[0]), int(one.loss.steps[-1])
    guess = -math.log(chance)
    # Samples that are learned by heart raise the loss of others, and slowly.
    unmoved = float(np.ptp(one.loss.values)) <= HARDLY_MOVES * abs(float(one.loss.values[0]))
    stays = unmoved and float(training.values[-1]) < 0.5 * guess
    differs = stays or learns or float(one.loss.values[0]) > FAR_ABOVE * guess
    fast = ": the training learns fast" if learns else ""
    apart = "Probably the data of evaluations are prepared in another way than those of the training"
    others = "The evaluated model hardly changes: probably other weights are evaluated than those that are trained"
    unrelated = "Probably labels do not belong to their inputs, and the model learns single samples by heart"
    facts = {
        "what": "Evaluations are never better than guessing, although the training loss falls",
        "numbers": f"{one.accuracy.quoted} up to {one.share.max():.3g}, {from_to(one.loss)}, {from_to(training)}"
        f"; {guessing(1 / chance)}",
        "why": f"{others}." if stays else f"{apart}{fast}." if differs else f"{unrelated}.",
    }
    shown = (
        evidence(one.accuracy, f"{one.accuracy.label} up to {one.share.max():.3g}", first, last),
        evidence(training, f"{training.label} {training.values[0]:.3g} → {training.values[-1]:.3g}", first, last),
    )
    names = one.accuracy.name, one.loss.name, training.name
    kind = "evaluation_differs" if differs else "labels_unrelated"
    return Finding.of(kind, "problem", "medium", first, last, names, facts, shown)


# ----------------------------------------------------------------------------------------------------- stuck metrics


def _stuck(data: RunData) -> Iterator[Finding]:
    """Judge metrics that have their worst value at all evaluations while losses fall."""
    losses = [one for one in data.of(Kind.LOSS) if len(one) >= FEW and not _is_stuck(one)]
    learned = [one for one in losses if (ends := _ends(one.values))[0] > 0 and ends[1] <= LEARNED * ends[0]]
    stuck = [one for one in data.of(Kind.METRIC, Kind.LOSS) if _is_stuck(one) and one.role is not Role.TRAINING]
    if not stuck and any(one.values[-1] < HALVES * one.values[0] for one in learned):
        stuck = [one for one in data.of(Kind.METRIC) if one.role is not Role.TRAINING and _is_nothing(one)]
    if not learned or not stuck:
        return
    loss = min(learned, key=lambda one: (not one.role.is_held_out, one.name))
    first, last = int(stuck[0].steps[0]), int(stuck[0].steps[-1])
    facts = {
        "series": stuck[0].quoted,
        "value": float(stuck[0].values[0]),
        "when": f"at each of {len(stuck[0]):,} evaluations",
        "loss": from_to(loss),
        "why": "Probably the metric is computed from predictions or targets of another form than it needs.",
    }
    shown = tuple(course(one, first, last) for one in (stuck[0], loss))
    names = *(one.name for one in stuck), loss.name
    yield Finding.of("metric_stuck", "problem", "medium", first, last, names, facts, shown)


def _is_stuck(series: Series) -> bool:
    """Whether a metric has its worst value at all of its steps.

    That is an accuracy of 0, or an error of 1.
    """
    values = series.values
    worst = (0.0,) if series.kind is Kind.METRIC else (1.0, 100.0)
    is_metric = series.kind is Kind.METRIC or "loss" not in series.stem
    if not is_metric or len(values) < FEW:
        return False
    if _is_rate_of_errors(series):
        worst_one = 100.0 if float(np.median(values)) > 2 else 1.0
        late = values[len(values) // 2 :]
        if float(np.median(late)) >= (1 - OF_ERRORS) * worst_one and values.min() >= FEWER_ERRORS * worst_one:
            return True
    # The rate of word errors may be a little above 1.
    near = 0.0 if series.kind is Kind.METRIC else NEARLY_WORST
    return any(float(np.abs(values - one).max()) <= near * one for one in worst)


def _is_nothing(metric: Series) -> bool:
    """Whether a share of overlap or of right answers is next to 0 at all steps."""
    values = metric.values
    is_share = not _OF_OVERLAP.isdisjoint(metric.stem) and len(values) >= LEAST_OF_NOTHING
    return is_share and 0 <= values.min() <= values.max() <= NOTHING


def _is_rate_of_errors(series: Series) -> bool:
    """Whether a series is a rate of wrong words, letters or sounds."""
    words = series.stem
    return not _OF_ERRORS.isdisjoint(words) or words[-2:] == ("error", "rate")


def _generated(data: RunData) -> Iterator[Finding]:
    """Judge texts that are generated badly although each of their tokens is foreseen."""
    for metric in data.held_out(Kind.METRIC):
        if OF_TEXTS.isdisjoint(metric.stem) or len(metric) < FEWEST:
            continue
        shares = as_share(metric)
        for loss in data.held_out(Kind.LOSS):
            _, at, of = np.intersect1d(loss.steps, metric.steps, return_indices=True)
            is_sure = len(at) >= FEWEST and loss.role is metric.role and (loss.values[at][-2:] < SURE_OF_TOKENS).all()
            if not is_sure or (shares[of][-2:] > BADLY).any() or not loss.values[at][0] > 4 * SURE_OF_TOKENS:
                continue
            facts = {"series": metric.quoted, "value": float(metric.values[-1]), "loss": from_to(loss)}
            facts["when"] = f"after {len(metric):,} evaluations"
            facts["why"] = (
                "Each token is foreseen if the right ones come before it, so generating differs from training: look at how texts end, "
                "where generating begins, and at padding."
            )
            yield beside("metric_stuck", "problem", (metric, loss), facts)
            return


def _far_too_long(data: RunData) -> Iterator[Finding]:
    """Judge generated texts that are far longer than those they are compared with."""
    lengths = {one.stem: one for one in data.series if one.role.is_held_out and len(one) >= FEWEST}
    texts, others = lengths.get(("sys", "len")), lengths.get(("ref", "len"))
    scores = [one for one in data.held_out(Kind.METRIC) if len(one) >= FEWEST]
    if texts is None or others is None or not scores or not np.array_equal(texts.steps, others.steps):
        return
    if others.values.min() <= 0 or (texts.values < TOO_LONG * others.values).any():
        return
    ratio = float(np.median(texts.values / others.values))
    facts = {
        "series": scores[0].quoted,
        "value": float(scores[0].values[-1]),
        "when": f"after {len(scores[0]):,} evaluations",
        "loss": f"{texts.quoted} is {ratio:.3g} times {others.quoted}",
        "why": "Generated texts do not end: look at the token that ends a text in the labels, and at padding that is decoded, too.",
    }
    yield beside("metric_stuck", "problem", (scores[0], texts), facts)


def _best_is_worst(data: RunData) -> Iterator[Finding]:
    """Judge a checkpoint that was kept as the best one."""
    best, at = data.settings.get("best_metric"), data.settings.get("best_global_step")
    if isinstance(best, bool) or not isinstance(best, int | float):
        return
    for series in data.held_out(Kind.LOSS) + data.held_out(Kind.METRIC):
        values = series.values
        if len(values) < FEWEST:
            continue
        worst = values.max() if series.kind is Kind.LOSS else values.min()
        others = values[values != worst]
        is_kept = math.isclose(best, worst, rel_tol=1e-6) and (at is None or series.steps[values == worst][0] == at)
        if not is_kept or len(others) < FEWEST - 1:
            continue
        if abs(worst - np.median(others)) < max(3 * local_noise(values), 0.1 * abs(worst)):
            continue
        word = "smallest" if series.kind is Kind.METRIC else "largest"
        kept = int(series.steps[values == worst][0])
        facts = {
            "what": f"The checkpoint of step {kept:,} was kept as the best one, where {series.quoted} was {word}: {worst:.3g}, and "
            f"{values[-1]:.3g} at the end",
            "metric": series.name,
        }
        yield beside("metric_direction", "problem", (series,), facts, kept)
        return


# --------------------------------------------------------------------------------------------------- falling metrics


def _falls(data: RunData) -> Iterator[Finding]:
    """Judge metrics that fall for good while what is trained on improves."""
    for metric in [*data.of(Kind.METRIC), *_of_success(data)]:
        values = metric.values
        if len(values) < FEW + 3 or metric.role is Role.TRAINING or _is_one_class(metric):
            continue
        if MAY_FALL.intersection(metric.words) or _is_nothing(metric):
            continue
        best_at = int(values.argmax())
        first, best = float(values[0]), float(values[best_at])
        tail = values[-max(3, len(values) // 5) :]
        end = float(np.median(tail))
        drop = best - end
        is_clear = drop > max(FALLS * abs(best), OF_GAIN * (best - first), 6 * local_noise(values))
        if not is_clear or tail.max() > best - drop / 2 or best_at > 0.6 * len(values):
            continue
        if drop <= 2 * FALLS * abs(best) and (np.diff(values[best_at:]) < 0).mean() < STEADILY:
            continue
        other = _improves_meanwhile(data, metric, int(metric.steps[best_at]))
        if other is None or _is_exchanged(data, metric, best_at):
            continue
        onset = int(metric.steps[min(best_at + 1, len(values) - 1)])
        facts = {
            "series": metric.quoted,
            "best": best,
            "end": end,
            "keep": int(metric.steps[best_at]),
            "beside": from_to(other),
        }
        yield beside("metric_falls", "problem", (metric, other), facts, onset)
        return


def _of_success(data: RunData) -> list[Series]:
    """Return shares of episodes that a script counts beside the reward."""
    return [
        one
        for one in (data.of(Kind.UNKNOWN) if data.of(Kind.REWARD) else ())
        if not _SUCCESS.isdisjoint(one.words) and len(one) and 0 <= one.values.min() <= one.values.max() <= 1
    ]


def _is_one_class(metric: Series) -> bool:
    """Whether an accuracy ends as that of one class or the other.

    Another finding says so.
    """
    return is_accuracy(metric) and since_one_class(metric.values) <= len(metric) - LEAST_EVALUATIONS


def _is_exchanged(data: RunData, metric: Series, best_at: int) -> bool:
    """Whether another metric of the same data rises while one falls.

    A threshold exchanges precision for recall.
    """
    if _ONE_SIDED.isdisjoint(metric.stem):
        return False
    since = int(metric.steps[best_at])
    others = (
        one.values[one.steps >= since] for one in data.of(Kind.METRIC) if one.role is metric.role and one is not metric
    )
    return any(len(after) >= FEW and after[-1] > after[0] for after in others)


def _improves_meanwhile(data: RunData, metric: Series, since: int) -> Series | None:
    """Return what the training improves after a metric was best.

    That is its loss, or another reward or metric.
    """
    for other in (*data.training_losses(), *data.of(Kind.REWARD), *data.of(Kind.METRIC)):
        if other is metric or other.role.is_held_out or (other.kind is not Kind.LOSS and metric.role.is_held_out):
            continue
        after = other.values[other.steps >= since]
        if len(after) < FEW:
            continue
        first, last = _ends(after)
        gain = first - last if other.kind is Kind.LOSS else last - first
        # A loss that is as low as it can be has nothing to gain.
        if gain > max(0.0, 2 * local_noise(after)) or (other.kind is Kind.LOSS and last <= first < other.values[0]):
            return other
    return None


# ----------------------------------------------------------------------------------------------------- pairs of losses


def _pair(loss: Series, training: Series) -> _Pair | None:
    """Return the values of both at all evaluations but the first one."""
    if len(loss) < SHARED or len(training) < SHARED or loss.steps[0] == loss.steps[-1]:
        return None
    steps = steps_along(loss, training)
    inside = steps[1:]
    inside = inside[(inside >= training.steps[0]) & (inside <= training.steps[-1])]
    if len(inside) < SHARED:
        return None
    at = np.searchsorted(steps, inside)
    return _Pair(np.interp(inside, training.steps, training.values), loss.values[at])


def _two_scales(data: RunData, loss: Series) -> Iterator[Finding]:
    """Judge losses of which one is a multiple of the other."""
    # Those of single batches vary more than their means over epochs, which may be there, too.
    for training in data.training_by_words.get((loss.kind, loss.stem), []):
        pair = _pair(loss, training)
        if pair is None or pair.training.min() <= 0 or pair.held_out.min() <= 0:
            continue
        logs = np.log(pair.training / pair.held_out)
        ratio = math.exp(float(np.median(logs)))
        moves = loss.values.min() > 0 and np.ptp(np.log(loss.values)) > 2 * STEADY
        if max(ratio, 1 / ratio) >= TWO_SCALES and float(np.std(logs)) <= STEADY and moves:
            yield _of_scales(loss, training, ratio)
            return


def _impossible(data: RunData) -> Iterator[Finding]:
    """Judge losses of evaluations that are smaller than their accuracy allows.

    The right class of a wrong answer has less than half of the probability, so that its loss is at least ln 2.
    """
    for one in evaluations(data):
        training = partner(data, one.loss)
        _, at, of = np.intersect1d(one.loss.steps, one.accuracy.steps, return_indices=True)
        if training is None or len(at) < FEW or "loss" not in one.loss.stem:
            continue
        losses, least = one.loss.values[at], math.log(2) * (1 - one.share[of])
        trained = float(np.median(training.values))
        if (losses >= IMPOSSIBLE * least).any() or losses.min() <= 0 or trained < FAR_BELOW * float(np.median(losses)):
            continue
        facts = {
            "what": f"{one.loss.quoted} is smaller than its accuracy allows",
            "numbers": f"{losses[0]:.3g} where {1 - one.share[of[0]]:.0%} of the answers are wrong, each of which costs at least ln 2; "
            f"{training.quoted} {training.values[0]:.3g}",
        }
        yield beside("losses_on_two_scales", "warning", (one.loss, training), facts)
        return


def _of_scales(loss: Series, training: Series, ratio: float) -> Finding:
    first, last = int(loss.steps[0]), int(loss.steps[-1])
    low, high = (loss, training) if ratio > 1 else (training, loss)
    facts = {"what": f"{high.quoted} is {max(ratio, 1 / ratio):.3g} times {low.quoted} at all evaluations"}
    facts |= {"numbers": from_to(loss)}
    shown = (course(training, first, last), course(loss, first, last))
    names = high.name, low.name
    return Finding.of("losses_on_two_scales", "warning", "medium", first, last, names, facts, shown)


def _too_good(data: RunData, loss: Series, training: Series) -> Iterator[Finding]:
    """Judge evaluations without a mistake of a model that errs on its training data."""
    pair = _pair(loss, training)
    if pair is None:
        return
    half = len(pair.training) // 2
    trained, evaluated = pair.training[half:], pair.held_out[half:]
    is_perfect = any(
        one.loss is loss and (one.share[len(one.share) // 2 :] >= WITHOUT_MISTAKE).all() for one in evaluations(data)
    )
    if not is_perfect or (evaluated >= TOO_GOOD * trained).any() or float(np.median(trained)) < TRAINING_ERRS:
        return
    facts = {
        "what": "Evaluations are without a mistake, although the training loss is high",
        "numbers": f"{loss.quoted} {evaluated[-1]:.3g}; {training.quoted} {trained[-1]:.3g}",
        "why": "Often samples of the evaluation are among those of the training. Strong augmentation or dropout while training "
        "looks the same.",
    }
    yield beside("evaluation_too_good", "warning", (loss, training), facts)


def _foreseen(data: RunData, loss: Series, training: Series) -> Iterator[Finding]:
    """Judge a language model that predicts held-out text almost with certainty."""
    if len(loss) < FEW or len(training) < FEW:
        return
    words = any(_OF_LANGUAGE.intersection(one.words) for one in data.series) and float(loss.values[0]) >= OF_WORDS
    # Without a metric, Transformers train models of tokens to such losses.
    guesses = data.is_of_transformers and not data.held_out(Kind.METRIC)
    if not words and not (guesses and OF_TOKENS < float(training.values[:3].max()) < MOST_OF_TOKENS):
        return
    end = float(np.median(loss.values[-3:]))
    learned = float(np.median(training.values[-max(3, len(training) // 10) :]))
    if not 0 < end <= min(FORESEEN, max(AS_TRAINED * learned, FORESEEN / 3)):
        return
    facts = {
        "what": "Held-out text is predicted almost with certainty",
        "numbers": f"{from_to(loss)}, which gives each token a probability of {math.exp(-end):.0%}",
        "why": "Text is not that predictable. Probably the model sees what it is to predict: a mask is missing, or inputs and "
        "targets are not shifted. Texts that follow a rule, such as sums, look the same.",
    }
    yield beside("evaluation_too_good", "warning", (loss, training), facts)


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


def _sets_differ(data: RunData) -> Iterator[Finding]:
    """Judge data on which a model gets worse while its evaluations get better."""
    for other in data.other_data:
        for held_out in data.held_out(Kind.LOSS):
            if other.stem[-len(held_out.stem) :] != held_out.stem or min(len(other), len(held_out)) < MANY:
                continue
            (first, last), (begin, end) = _ends(other.values), _ends(held_out.values)
            if not 0 < end < LEARNED * begin or last < max(first, FAR_ABOVE * end):
                continue
            facts = {
                "what": f"{held_out.quoted} falls with the training loss, but {other.quoted} rises",
                "numbers": f"{from_to(held_out)}, {from_to(other)}",
                "why": "Often a feature contains the answer in the data of training and evaluation only, such as one that is filled in "
                "after the outcome, or both share samples. Else the other data are of another kind.",
            }
            yield beside("evaluation_too_good", "warning", (held_out, other), facts)
            return


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
        if (ratios > ABOVE_TEST).mean() < NEARLY_ALL or ratios[-1] < ABOVE_TEST:
            continue
        facts = {
            "what": f"{metric.quoted} is {np.median(ratios):.2g} times {tests[0].quoted}",
            "numbers": f"{from_to(metric)}, {from_to(tests[0])}",
            "why": "Probably validation data are among those of the training, or the two are prepared in another way.",
        }
        yield beside("evaluation_differs", "problem", (metric, tests[0]), facts)
        return


def _perfect(data: RunData) -> Iterator[Finding]:
    """Judge evaluations that are perfect from the first one on.

    All areas under the curve are, or all metrics that are shares of right answers.
    """
    metrics = [one for one in data.of(Kind.METRIC) if len(one) >= FEW and one.role is not Role.TRAINING]
    # Where some are of held-out data, the others are those of the training.
    metrics = [one for one in metrics if one.role.is_held_out] or metrics
    areas = [*filter(is_area, metrics)]
    shares = [one for one in metrics if is_accuracy(one) or not OF_SHARES.isdisjoint(one.stem)]
    perfect = next((one for one in areas if one.values.min() >= PERFECT_AREA), None)
    if perfect is None and shares and all(as_share(one).min() >= PERFECT_AREA for one in shares):
        perfect = shares[0]
    errors = [one for one in data.held_out(Kind.LOSS) if is_share_of_errors(one) and len(one) >= FEW]
    perfect = perfect if perfect is not None else next((one for one in errors if not one.values.any()), None)
    # A log that begins later does not show how it was at first.
    if perfect is None or perfect.steps[0] > SOON_EVALUATED * np.median(np.diff(perfect.steps)):
        return
    facts = {
        "what": "Evaluations are without a mistake from the first one on",
        "numbers": f"{from_to(perfect)} over {len(perfect):,} evaluations",
        "why": "Often an input contains the answer, such as a feature that is filled in after the outcome, or samples of the "
        "evaluation are among those of the training. Or the task is too easy to compare models.",
    }
    yield beside("evaluation_too_good", "warning", (perfect,), facts)


def _soon_certain(data: RunData) -> Iterator[Finding]:
    """Judge a training loss that is nearly 0 in the first epoch: each sample is new."""
    epochs = data.epochs
    loss = data.longest_loss
    if epochs is None or loss is None or data.of(Kind.REWARD) or not (epochs.values % 1).any():
        return
    steps, at, of = np.intersect1d(loss.steps, epochs.steps, return_indices=True)
    first = loss.values[at][epochs.values[of] < 1]
    if len(first) < MANY or not first[:3].max() > UNSURE:
        return
    late = first[len(first) // 2 :]
    if not (late >= 0).all() or float(np.quantile(late, 0.9)) > CERTAIN:
        return
    soon = int(steps[np.flatnonzero(first < CERTAIN)[0]])
    facts = {
        "what": "New samples are predicted almost with certainty within the first epoch",
        "numbers": f"{loss.quoted} {first[0]:.3g} → {late[-1]:.2g} in the first epoch, below {CERTAIN:g} since step {soon:,}",
        "why": "The model had not seen these samples before. Probably the inputs contain what is to be predicted, most of the "
        "targets are padding that counts, or the task is trivial.",
    }
    yield beside("evaluation_too_good", "warning", (loss,), facts, soon)


def _certain(data: RunData) -> Iterator[Finding]:
    """Judge a fine-tuned model that is certain of held-out samples.

    The losses of Transformers are those of classes and tokens. Other programs log distances, which may be small.
    """
    if not data.is_of_transformers or data.of(Kind.REWARD):
        return
    training = data.longest_loss
    for loss in data.held_out(Kind.LOSS):
        if training is None or loss.stem != ("loss",) or not len(loss) or len(training) < FEWEST:
            continue
        if training.values[:3].max() > UNSURE and 0 <= loss.values[-1] < CERTAIN_OF_OTHERS:
            facts = {
                "what": "Held-out samples are predicted almost with certainty",
                "numbers": f"{loss.quoted} {loss.values[-1]:.2g} at step {loss.steps[-1]:,}, {from_to(training)}",
                "why": "Probably samples of the evaluation are among those of the training, the inputs contain what is to be predicted, "
                "or the task is trivial.",
            }
            yield beside("evaluation_too_good", "warning", (loss, training), facts)
            return


def _swings(data: RunData, loss: Series) -> Iterator[Finding]:
    """Judge losses of held-out data that swing to the end, and do not settle."""
    if len(loss) < MANY or loss.values.min() <= 0:
        return
    logs = np.log(loss.values)
    late = logs[int(0.4 * len(logs)) :]
    # A loss that jumps once, as where a second stage of the training begins, does not swing.
    changes = np.diff(late)
    spread = float(np.std(np.delete(changes, np.abs(changes).argmax()))) / math.sqrt(2)
    level = math.exp(float(np.median(late)))
    if spread < SWINGS or abs(float(mann_kendall(late[None])[0])) > 2 or level < ABOVE_BEST * float(loss.values.min()):
        return
    training = data.longest_loss
    if training is not None and len(training) >= MANY:
        middle, end = _ends(training.values[len(training) // 2 :])
        if end < 0.8 * middle:  # it still learns
            return
    low, high = np.exp(np.quantile(late, [0.1, 0.9])).tolist()
    facts = {"series": loss.quoted, "low": low, "high": high, "count": len(loss)}
    yield beside("swings", "problem", (loss,), facts)
