"""A training loss that hardly falls, or whose updates are all clipped."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, is_accuracy
from smdwidgets.diagnosis.detectors._show import beside, course, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.finding import Finding

__all__ = ["slow"]

#: Fewest values; share of the first loss by which it falls at most and at least.
LEAST_POINTS, MOST_FALL, LEAST_FALL = 10, 0.15, 0.02
#: The same of a loss beside that of held-out data, which has as many values; the distance of both by the fall.
MOST_OF_BOTH, OF_BOTH, TOGETHER = 0.5, 30, 0.2
#: Distance from a straight line, relative to the fall, and the fall of the second half relative to that of the first.
STRAIGHT, AS_FAST = 0.12, 0.6
#: Fewest values of a loss that hardly falls in a straight line, and the share of it by which it falls at most; another
#: loss relative to its first value that has fallen.
LEAST_OF_LINE, CRAWLS, SMALL = 12, 0.05, 0.9
#: An accuracy at the end, and at the start relative to that of guessing by the loss, of a model that began untrained.
POOR, UNTRAINED = 0.5, (0.3, 2.5)
#: Loss of guessing among some thousands of classes.
MOST_GUESS = 9.0
#: Rise of an accuracy that shows that something is learned.
RISES = 1.2


#: Cross-entropy of the tokens of an unusable language model, and of one that guesses among the largest vocabularies;
#: its least fall, the fall of the second half relative to that of the first one, and the part of the largest rate that
#: is left at the end.
UNUSABLE, MOST_OF_TOKENS, FELL, FELL_ON, LEFT = 5.0, 13.0, 0.05, 0.2, 0.15
#: A rate with which language models learn, as those of some hundred million weights are trained: a training that ends
#: before they have learned is short, not slow.
NOT_LOW = 2.5e-4
#: Share of clipped updates in percent that is all of them, and the least learning rate of an optimizer that clipping
#: slows down; those that divide by the size of the gradients have smaller ones.
ALL_CLIPPED, PLAIN_RATE = 99.0, 0.1
#: Fewest evaluations that fall one by one, and the statistic of the trend of the training loss beside them; as many
#: evaluations as show alone that a loss falls with each update by what its rate allows, and the least peak of such a
#: rate.
LEAST_OF_SLOW, FALLS_STEADILY, ALONG_RATE, PLAIN_PEAK = 5, -4.0, 8, 0.05
#: Norm of every gradient by the logged limit of the clipping, of an optimizer that hardly moves; share of the first
#: loss that is left then, and the fewest logs.
CUT_TO, STILL_LEFT, LEAST_OF_CUT = 100.0, 0.8, 20
#: Share of the run after which a loss that is learned has fallen on, and that fall relative to its level.
SOON, FALLS_ON = 0.15, 0.05


def slow(data: RunData) -> Iterator[Finding]:
    """Yield losses that creep down, and losses whose updates are all clipped.

    The accuracy of the first ones is poor.
    """
    yield from _clipped(data)
    yield from _clipped_to_nothing(data)
    yield from _both(data)
    yield from _ends_too_soon(data)
    yield from _crawls(data)
    accuracies = [one for one in data.of(Kind.METRIC) if is_accuracy(one) and len(one) >= LEAST_POINTS]
    accuracies = [one for one in accuracies if one.role.is_held_out] or accuracies
    for loss in data.training_losses():
        if len(loss) < LEAST_POINTS or loss.trend is None or loss.values[0] > MOST_GUESS or not _creeps(loss):
            continue
        for accuracy in accuracies:
            share = as_share(accuracy)
            begins = share[0] / math.exp(-float(loss.values[0]))
            if UNTRAINED[0] <= begins <= UNTRAINED[1] and RISES * share[0] <= share[-1] < POOR:
                yield _finding(loss, accuracy)
                return


def _both(data: RunData) -> Iterator[Finding]:
    """Judge a loss that falls in a straight line to the end.

    That of held-out data does so, too.
    """
    if data.of(Kind.METRIC):  # a metric shows whether a model is untrained
        return
    for loss in data.training_losses():
        other = next((one for one in data.held_out(Kind.LOSS) if one.stem[-1:] == loss.stem[-1:]), None)
        if other is None or min(len(loss), len(other)) < OF_BOTH or not np.array_equal(loss.steps, other.steps):
            continue
        fall = float(loss.values[0] - loss.values[-1])
        if fall <= 0 or float(np.abs(loss.values - other.values).max()) > TOGETHER * fall:
            continue
        if _creeps(loss, MOST_OF_BOTH) and _creeps(other, MOST_OF_BOTH):
            yield _finding(loss, other)
            return


def _crawls(data: RunData) -> Iterator[Finding]:
    """Judge a loss that hardly falls, in a line without a bend.

    One that is learned falls fast at first.
    """
    if any(one.trend is not None and one.values[-1] < SMALL * one.values[0] for one in data.of(Kind.LOSS)):
        return
    yield from _crawls_with_large_rate(data)
    for loss in data.training_losses():
        fall = float(loss.values[0] - loss.values[-1]) if len(loss) >= LEAST_OF_LINE else 0.0
        if 0 < fall < CRAWLS * loss.values[0] and _creeps(loss, CRAWLS, 0.0, STRAIGHT / 2):
            facts = {
                "what": f"{loss.quoted} has fallen by {fall / float(loss.values[0]):.1%}, in a straight line",
                "detail": from_to(loss),
                "or_stopped": "",
            }
            yield beside("rate_too_low", "problem", (loss,), facts)
            return


def _crawls_with_large_rate(data: RunData) -> Iterator[Finding]:
    """Judge evaluations that fall little, in a line, with a rate that is large.

    The losses of batches are too noisy to show the line. Where the rate decays, it is one along the sum of the rates.
    """
    loss = data.longest_loss
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one)]
    if loss is None or loss.trend is None or not rates or rates[0].values.max() < PLAIN_PEAK:
        return
    for other in data.held_out(Kind.LOSS):
        if len(other) < LEAST_OF_SLOW or other.stem != loss.stem or loss.trend.end <= SMALL * loss.trend.start:
            continue
        along = np.interp(other.steps, rates[0].steps, np.cumsum(rates[0].values))
        is_steady = loss.trend.z <= FALLS_STEADILY and np.median(rates[0].values) >= PLAIN_RATE
        is_line = (
            _creeps(other, CRAWLS, 0.0)
            if is_steady
            else len(other) >= ALONG_RATE and along[-1] > along[0] and _creeps(other, CRAWLS, 0.0, STRAIGHT, along)
        )
        if is_line and (np.diff(other.values) < 0).all():
            norms = [one for one in data.of(Kind.GRADIENT_NORM) if len(one)]
            facts = {
                "what": f"{other.quoted} has fallen by {1 - float(other.values[-1] / other.values[0]):.1%}, "
                f"{'in a straight line' if is_steady else 'in step with the learning rate'}, "
                f"although that is {float(np.median(rates[0].values)):.2g}",
                "detail": ", ".join(map(from_to, (loss, other, *norms[:1]))),
                "or_stopped": ", or the limit of the clipping is far below the norm of the gradients",
            }
            yield beside("rate_too_low", "problem", (loss, other), facts)
            return


def _ends_too_soon(data: RunData) -> Iterator[Finding]:
    """Judge a language model whose rate has fallen to nothing before it has learned."""
    loss = data.longest_loss
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one) >= 2]
    if loss is None or len(loss) < LEAST_POINTS or not data.is_of_transformers or not rates:
        return
    part = max(2, len(loss) // 5)
    first, last = float(np.median(loss.values[:part])), float(np.median(loss.values[-part:]))
    middle = float(np.median(loss.values[len(loss) // 2 - part // 2 :][:part]))
    is_low = rates[0].values[-1] <= LEFT * rates[0].values.max()
    right = [as_share(one) for one in data.of(Kind.METRIC) if is_accuracy(one)]
    if rates[0].values.max() >= NOT_LOW or any(one[-1] <= one[0] for one in right):
        return
    if not is_low or not UNUSABLE <= last < (1 - FELL) * first or loss.values.max() > MOST_OF_TOKENS:
        return
    if middle - last < FELL_ON * (first - middle):
        return
    yield _finding(
        loss,
        rates[0],
        f"The loss still falls when the rate has come to its end, and guesses among {math.exp(last):,.0f} tokens",
    )


def _clipped(data: RunData) -> Iterator[Finding]:
    """Judge a loss that stays where the first updates left it.

    All of them are clipped.
    """
    loss = data.longest_loss
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one)]
    shares = [one for one in data.series if one.words[-1:] == ("clip",) and len(one) >= LEAST_POINTS]
    if loss is None or len(loss) < 2 * LEAST_POINTS or not rates or np.median(rates[0].values) < PLAIN_RATE:
        return
    for share in shares:
        part = max(1, int(SOON * len(loss)))
        soon, late = float(np.median(loss.values[part : 2 * part])), float(np.median(loss.values[-part:]))
        if share.values.max() > 100 or share.values.min() < ALL_CLIPPED or abs(soon - late) > FALLS_ON * soon:
            continue
        first, last = int(share.steps[0]), int(share.steps[-1])
        facts = {
            "what": "Every update is clipped, and the loss stays where the first ones left it",
            "detail": f"{share.quoted} {share.values.min():.3g} to {share.values.max():.3g} %, {from_to(loss)}",
            "or_stopped": " for gradients that are clipped so far, or the limit of the clipping is far below their norm",
        }
        shown = (course(loss, first, last), course(share, first, last))
        yield Finding.of("rate_too_low", "problem", "medium", first, last, (share.name, loss.name), facts, shown)
        return


def _clipped_to_nothing(data: RunData) -> Iterator[Finding]:
    """Judge a loss that hardly falls beside norms far above their logged limit."""
    loss = data.longest_loss
    norms = [one for one in data.of(Kind.GRADIENT_NORM) if len(one) >= LEAST_OF_CUT]
    limits = [one for one in norms if np.ptp(one.values) <= 1e-6 * abs(float(one.values[0]))]
    if loss is None or len(loss) < LEAST_OF_CUT or not limits or data.of(Kind.REWARD):
        return
    part = max(3, len(loss) // 10)
    if float(np.median(loss.values[-part:])) < STILL_LEFT * float(np.median(loss.values[:part])) or loss.values[0] <= 0:
        return
    limit = limits[0]
    for norm in norms:
        if 0 < CUT_TO * float(limit.values[0]) <= float(norm.values.min()):
            facts = {
                "what": f"Every gradient is clipped to less than a hundredth: {norm.quoted} is "
                f"{norm.values.min():.3g} or more, {limit.quoted} {limit.values[0]:.3g}, and the loss hardly falls",
                "detail": from_to(loss),
                "or_stopped": ", or the limit of the clipping is far below the norm of the gradients",
            }
            yield beside("rate_too_low", "problem", (loss, norm, limit), facts)
            return


def _creeps(
    loss: Series,
    most: float = MOST_FALL,
    least: float = LEAST_FALL,
    straight: float = STRAIGHT,
    along: Floats | None = None,
) -> bool:
    """Whether a loss falls little, in a line over the steps or along another quantity."""
    values, over = loss.values, loss.steps if along is None else along
    first, last = float(values[0]), float(values[-1])
    fall = first - last
    if first <= 0 or not least * first <= fall <= most * first:
        return False
    progress = (over - over[0]) / (over[-1] - over[0])
    slope, level = np.polyfit(progress, values, 1)
    apart = float(np.abs(values - (slope * progress + level)).max())
    middle = float(np.interp(0.5, progress, values))
    return apart <= straight * fall and middle - last >= AS_FAST * (first - middle)


def _finding(
    loss: Series, other: Series, what: str = "The loss falls in a straight line to the end, and little"
) -> Finding:
    first, last = int(loss.steps[0]), int(loss.steps[-1])
    facts = {
        "what": what,
        "detail": f"{from_to(loss)}, {from_to(other)}",
        "or_stopped": "",
    }
    shown = (course(loss, first, last),)
    return Finding.of("rate_too_low", "problem", "medium", first, last, (loss.name, other.name), facts, shown)
