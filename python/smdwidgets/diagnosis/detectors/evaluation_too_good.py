"""Evaluations that are better than the training allows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._evaluations import (
    FEW,
    FEWEST,
    MANY,
    as_share,
    evaluations,
    few_samples,
    is_accuracy,
    is_area,
    is_share_of_errors,
    logged_pairs,
    pair,
)
from smdwidgets.diagnosis.detectors._falls import ends
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding
from smdwidgets.naming.scalars import Role

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
#: Probability that a model with the loss of the training makes no mistake in an evaluation of few samples.
BY_LUCK = 0.01
#: Words of series that only trainings of language models have.
_OF_LANGUAGE = frozenset({"ppl", "perplexity", "mfu", "bpb", "wps", "tokens", "tok", "lm"})
#: End of a loss relative to its first value that has fallen, and of one of other data beside it, relative to the first.
LEARNED, FAR_ABOVE = 0.7, 3.0


def evaluation_too_good(data: RunData) -> Iterator[Finding]:
    """Yield evaluations that are better than the training allows."""
    yield from _same_as_training(data)
    if len(data.tensors):
        return  # a hook finds losses of evaluations itself, which may be those of few samples
    for loss, training in logged_pairs(data):
        yield from _too_good(data, loss, training)
        yield from _foreseen(data, loss, training)
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


def _too_good(data: RunData, loss: Series, training: Series) -> Iterator[Finding]:
    """Judge evaluations without a mistake of a model that errs on its training data."""
    both = pair(loss, training)
    if both is None:
        return
    half = len(both.training) // 2
    trained, evaluated = both.training[half:], both.held_out[half:]
    level = float(np.median(trained))
    is_perfect = any(
        one.loss is loss
        and (one.share[len(one.share) // 2 :] >= WITHOUT_MISTAKE).all()
        and math.exp(-level * few_samples(one.share)) < BY_LUCK
        for one in evaluations(data)
    )
    if not is_perfect or (evaluated >= TOO_GOOD * trained).any() or level < TRAINING_ERRS:
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


def _sets_differ(data: RunData) -> Iterator[Finding]:
    """Judge data on which a model gets worse while its evaluations get better."""
    for other in data.other_data:
        for held_out in data.held_out(Kind.LOSS):
            if other.stem[-len(held_out.stem) :] != held_out.stem or min(len(other), len(held_out)) < MANY:
                continue
            (first, last), (begin, end) = ends(other.values), ends(held_out.values)
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
