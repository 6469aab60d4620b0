"""A training loss that never improves."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._evaluations import is_accuracy, is_share_of_errors
from smdwidgets.diagnosis.detectors._falls import falls_elsewhere
from smdwidgets.diagnosis.detectors._show import beside, evidence, from_to, unlearned
from smdwidgets.diagnosis.detectors.guessing import (
    EVEN,
    GUESSING,
    accuracy_of_guessing,
    every_accuracy_guesses,
    guessed,
    guesses_pairs,
    held_out_guesses,
    never_below_guessing,
    saved_classes,
)
from smdwidgets.diagnosis.inputs import Kind, RunData, Series, is_whole
from smdwidgets.diagnosis.trends import Trend, local_noise, mann_kendall
from smdwidgets.finding import Finding

#: Fewest values that show something.
LEAST_POINTS = 20
#: A drop below this share of the first loss is no improvement.
LEAST_DROP = 0.03
#: The same of a loss of held-out data at its best.
LEAST_HELD_OUT = 0.05
#: A metric that improves by less than this share of its first value stays where it was, and an accuracy unless so many
#: of its mistakes are gone.
LEAST_METRIC, FEWER_ERRORS = 0.15, 0.25
#: Numbers of classes whose guessing loss, their logarithm, is recognized if the outputs were not saved. With all
#: numbers, a third of the level losses of fine-tuned models would look like guessing.
CLASSES = (2, 10, 100, 1000)
#: Range of a loss, relative to its level, of a model that learns nothing at all, and fewest values; of many values.
FLAT, LEAST_FLAT, FLAT_OF_MANY, MANY_FLAT = 1e-3, 10, 4e-3, 40
#: Trend statistic below which a loss falls, however little.
FALLING = -3
#: Fewest margins of preferences that show that something is learned.
LEAST_MARGINS = 10
#: A series that stays this close to its start is level, also with few points.
LEVEL = 0.005
#: Fall of a training loss, relative to its first value, that is hardly one beside evaluations that do not move.
HARDLY = 0.01
#: Change of a loss of held-out data, relative to its level, that moving weights exceed, and evaluations that show it.
UNMOVED, LEAST_EVALUATIONS = 0.005, 4
#: A learning rate with which models are fine-tuned, and the same change of one that gets better every time.
USUAL, HARDLY_BETTER = 1e-5, 2e-4
#: Fewest evaluations of a model that never comes near its targets, and the first squared error of large targets.
LEAST_OF_TARGETS, LARGE_SQUARES = 10, 1e4
#: A loss that only squares of large targets give, its change, relative to its first values, to the end, and a value
#: relative to the first one that it does not reach.
HUGE_SQUARES, HARDLY_NEARER, RISES_FAR = 1e7, 0.15, 3.0
#: A loss of large targets to its end, and another part of it, relative to it, that hardly counts.
SQUARES_TO_THE_END, NEXT_TO_NOTHING = 1e6, 1e-6
#: Share of the variance that a model explains which has learned something.
EXPLAINS = 0.05
#: Share of the run at its end that counts as its end.
LATE = 0.15
#: Growth of the norm of the gradient beside a loss that does not fall.
GROWS = 20.0
#: Numbers of classes whose loss of guessing is also recognized where a loss begins at it: the distance of the first
#: values and of the median, and the noise, relative to it. Words of trainings of language
#: models, whose losses are as large.
FEW, AT_GUESS, NEAR_GUESS, EVEN_GUESS = (3, 4, 5), 0.006, 0.02, 0.015
_OF_TOKENS = frozenset({"perplexity", "ppl", "tokens", "token", "entropy", "mfu", "bpb"})
#: A rate with which no loss stays where it was, unless the updates are clipped.
LARGE_RATE = 0.05
#: Share of the values of a loss whose sign is not that of the value before, from which it is around 0.
CHANGES_SIGN = 0.15
#: A training loss that falls below this share of its first value has fallen, whatever evaluations say.
FALLEN = 0.5
#: Statistic of the trend of margins that grow.
NO_TREND = 2.0


def not_learning(data: RunData) -> Iterator[Finding]:
    """Yield training losses that never improve, and constant losses."""
    named = False
    for finding in _of_losses(data):
        named |= finding.confidence != "low"
        yield finding
    if not named:
        yield from guessed(data)
    yield from _far_from_targets(data)


def _of_losses(data: RunData) -> Iterator[Finding]:
    improves = any(
        _improves(series, series.trend)
        for series in data.of(Kind.METRIC)
        if series.trend is not None and not _explains_nothing(series)
    )
    # A loss of a policy may be 0 at each step.
    is_nothing = (
        not data.of(Kind.REWARD) and not any(one.values.any() for one in data.training_losses()) and data.varies
    )
    for series in data.training_losses():
        trend = series.trend
        if trend is None or falls_elsewhere(data, series) or _is_around_zero(series):
            continue
        if is_share_of_errors(series) and trend.median == 0:
            continue  # without a mistake
        # An accuracy may rise to that of guessing.
        learns = improves and not every_accuracy_guesses(data, trend)
        constant = len(series) >= LEAST_POINTS and _is_constant(series, trend)
        if constant:
            yield _constant(series, trend)
        if not improves and is_nothing and "loss" in series.stem:
            yield _of_nothing(series)
            continue
        if not learns and not constant and never_below_guessing(data, series):
            # The loss of an untrained network may be far above guessing at first.
            late = trend.blocks[len(trend.blocks) // 2 :]
            begins_above = trend.start > trend.median * (1 + 2 * EVEN)
            z = float(mann_kendall(late[None])[0]) if begins_above else trend.z
            yield _of_loss(data, series, trend, _classes(data), z, guesses=held_out_guesses(data))
        elif not learns and (_is_level(trend, len(series)) or _stays(trend, len(series)) or is_at_mean(data)):
            held_out = not constant and (_held_out_stays(data) or _held_out_unmoved(data))
            guesses = not constant and (
                accuracy_of_guessing(data, series) or every_accuracy_guesses(data, trend) or guesses_pairs(data, series)
            )
            yield _of_loss(data, series, trend, _classes(data), trend.z, held_out, is_at_mean(data), guesses)
        elif not constant and guesses_pairs(data, series):
            yield _of_loss(data, series, trend, _classes(data), 0.0, guesses=True)
        elif not learns and not constant and trend.end > FALLEN * trend.start and accuracy_of_guessing(data, series):
            yield _of_loss(data, series, trend, _classes(data), trend.z, guesses=True)


def _constant(series: Series, trend: Trend) -> Finding:
    """Return the note about a loss that is one number."""
    first, last = int(series.steps[0]), int(series.steps[-1])
    shown = evidence(series, series.label, first, last)
    facts = {"series": series.quoted, "value": trend.median}
    return Finding.of("constant", "note", "low", first, last, (series.name,), facts, (shown,))


def _of_nothing(series: Series) -> Finding:
    """Return the finding for a loss that is 0 at every step."""
    facts = {
        "detail": f"{series.quoted} is 0 at each of {len(series):,} values",
        "guessing": "An untrained model has a loss: probably no batch or no target reaches it, or another number is logged. ",
        "what": "training loss",
        "verb": "fall",
    }
    return unlearned(series, facts)


def _is_around_zero(series: Series) -> bool:
    """Whether a loss changes its sign again and again, as that of a policy gradient.

    Its size does not say what is learned.
    """
    signs = np.sign(series.values[np.isfinite(series.values)])
    return len(signs) >= LEAST_POINTS and float(np.mean(signs[1:] != signs[:-1])) > CHANGES_SIGN


def _far_from_targets(data: RunData) -> Iterator[Finding]:
    """Yield a regression whose outputs do not come to the size of its targets."""
    yield from _never_near(data)
    yield from _drowned_by_squares(data)
    losses = [one for one in data.training_losses() if is_whole(one) or "mse" in one.stem]
    explained = [one for one in data.of(Kind.METRIC) if "r2" in one.stem and len(one) >= LEAST_OF_TARGETS]
    explained = [one for one in explained if one.role.is_held_out] or explained
    if not losses or not explained or losses[0].values[:1].max(initial=0) < LARGE_SQUARES:
        return
    share, loss = explained[0], losses[0]
    if share.values.max() >= 0:  # as good as the mean
        return
    what = f"{share.quoted} {share.values[0]:.3g} → {share.values[-1]:.3g} is below 0 to the end: the outputs are far from them"
    facts = {"target": math.sqrt(float(loss.values[0])), "what": what}
    yield beside("targets_not_scaled", "problem", (loss, share), facts)


def _never_near(data: RunData) -> Iterator[Finding]:
    """Yield a loss of many millions, the square of large targets, that hardly falls."""
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_OF_TARGETS or "loss" not in loss.stem or data.of(Kind.REWARD):
        return
    if any("r2" in one.stem for one in data.of(Kind.METRIC)) or float(loss.values.min()) < HUGE_SQUARES:
        return
    if loss.values.max() > RISES_FAR * loss.values[0]:  # it diverged
        return
    losses = [loss.values, *(one.values for one in data.held_out(Kind.LOSS) if len(one) >= 2 and one.stem == loss.stem)]
    part = max(1, len(loss) // 5)
    falls = [
        1 - float(np.median(one[-min(part, len(one)) :])) / float(np.median(one[: min(part, len(one))]))
        for one in losses
    ]
    if not -HARDLY_NEARER <= min(falls) <= max(falls) <= HARDLY_NEARER:
        return
    what = f"{loss.quoted} {loss.values[0]:.3g} → {loss.values[-1]:.3g} hardly falls: the outputs do not come near them"
    yield beside("targets_not_scaled", "problem", (loss,), {"target": math.sqrt(float(loss.values[0])), "what": what})


def _drowned_by_squares(data: RunData) -> Iterator[Finding]:
    """Yield a loss of large targets beside which its other parts do not count."""
    losses = [one for one in data.of(Kind.LOSS) if not one.role.is_held_out and "loss" in one.stem]
    loss = next((one for one in losses if is_whole(one) and len(one) >= LEAST_OF_TARGETS), None)
    if loss is None or data.of(Kind.REWARD):
        return
    if float(loss.values.min()) < SQUARES_TO_THE_END or loss.values.max() > RISES_FAR * loss.values[0]:
        return
    parts = [one for one in losses if one is not loss and len(one) == len(loss)]
    small = [one for one in parts if ((one.values > 0) & (one.values < NEXT_TO_NOTHING * loss.values)).all()]
    if not small or len(small) == len(parts):
        return
    what = f"{small[0].quoted} about {np.median(small[0].values):.2g}, which does not count beside {from_to(loss)}"
    yield beside(
        "targets_not_scaled", "problem", (loss, small[0]), {"target": math.sqrt(float(loss.values[0])), "what": what}
    )


def _is_constant(series: Series, trend: Trend) -> bool:
    # Few values first: this is asked of every series at every update.
    return trend.start == trend.end == trend.median and bool(
        (trend.blocks == trend.blocks[0]).all() and (series.values == series.values[0]).all()
    )


def _improves(series: Series, trend: Trend) -> bool:
    # A metric of training that follows what is learned by heart creeps up from that of guessing.
    least = LEAST_METRIC * abs(trend.start)
    if is_accuracy(series):
        whole = 100 if series.values.max() > 1 else 1
        least = min(least, FEWER_ERRORS * (whole - abs(trend.start)))
    return trend.z < -2 and trend.start - trend.end > max(3 * trend.noise, least)


def _is_level(trend: Trend, points: int) -> bool:
    size = abs(trend.start)
    if points < LEAST_POINTS and abs(trend.median - trend.start) > LEVEL * size:
        return False
    drop = trend.start - min(trend.best, trend.end)
    if drop > max(LEAST_DROP * size, 2 * trend.wide_noise):
        return False
    if trend.end < trend.start - LEAST_DROP * size - 2 * trend.wide_noise:
        return False
    return not (trend.z < -3 and drop > LEAST_DROP * size)


def is_at_mean(data: RunData) -> bool:
    """Whether a regression ends with the error of the mean of its targets."""
    begin, end = data.extent
    if any(_explains_nothing(one) for one in data.held_out(Kind.METRIC)):
        return True
    return any(one.id == "no_better_than_mean" and one.last >= end - LATE * (end - begin) for one in data.checks)


def _explains_nothing(series: Series) -> bool:
    """Whether the explained share of the variance is 0 to the end."""
    late = series.values[len(series) // 2 :]
    return "r2" in series.stem and len(series) >= LEAST_EVALUATIONS and bool((late <= EXPLAINS).all())


def _stays(trend: Trend, points: int) -> bool:
    """Whether a loss ends where it began, whatever its noise did between."""
    fall = trend.start - trend.end
    return points >= LEAST_POINTS and abs(fall) <= max(LEAST_DROP * abs(trend.start), trend.noise) and abs(trend.z) < 2


def _held_out_stays(data: RunData) -> bool:
    """Whether a loss of held-out data has a trend, and stays where it began."""
    trends = [one.trend for one in data.held_out(Kind.LOSS) if one.trend is not None]
    return bool(trends) and all(
        abs(one.start - one.end) <= LEAST_DROP * abs(one.start)
        and one.start - one.best <= LEAST_HELD_OUT * abs(one.start)
        for one in trends
    )


def _held_out_unmoved(data: RunData) -> bool:
    """Whether a few losses of held-out data are all the same.

    Those of weights that do not move are.
    """
    losses = [one for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_EVALUATIONS]
    exact = [one for one in data.held_out(Kind.LOSS) if len(one) == LEAST_EVALUATIONS - 1]
    losses += [one for one in exact if np.ptp(one.values) <= HARDLY_BETTER * abs(float(one.values[0]))]
    # A trained model may know the data: with a usual rate, its evaluations then move, and end a little better.
    rates = [float(one.values.max()) for one in data.of(Kind.LEARNING_RATE) if len(one)]
    if max(rates, default=0.0) >= USUAL and all(one.values[-1] < one.values[0] for one in losses):
        losses = [one for one in losses if np.ptp(one.values) <= HARDLY_BETTER * abs(float(one.values[0]))]
    return bool(losses) and all(float(np.ptp(one.values)) <= UNMOVED * abs(float(one.values[0])) for one in losses)


def _classes(data: RunData) -> tuple[int, ...]:
    """Return the number of classes of the saved outputs.

    If none were saved, return all usual numbers.
    """
    return saved_classes(data) or CLASSES


def _of_loss(
    data: RunData,
    series: Series,
    trend: Trend,
    known: tuple[int, ...],
    z: float,
    held_out: bool = False,
    at_mean: bool = False,
    guesses: bool = False,
) -> Finding:
    """Return the finding for a loss that does not fall, by its trend statistic.

    It is less sure if the loss is not that of guessing or of the mean of the targets, and that of held-out data does
    not stay at its level or that of guessing, too, or is unknown.
    """
    low, high = GUESSING
    classes = next((k for k in known if low * math.log(k) <= trend.median <= high * math.log(k)), None)
    falls = z < FALLING and trend.start - trend.end > LEVEL * abs(trend.start)
    if falls or local_noise(series.values) > EVEN * abs(trend.median):
        classes = None  # slowly, it learns; or it is no such loss
    held_out = held_out and (not falls or trend.start - trend.end <= HARDLY * abs(trend.start))
    growth = "" if falls else _growth_of_gradients(data)
    guessing = f"Guessing one of {classes} classes gives {math.log(classes):.4g}. " if classes else ""
    guessing = guessing or growth or ("The mean of the targets would predict as well. " if at_mean else "")
    detail = f"{series.quoted} {trend.start:.4g} → {trend.end:.4g} over {len(series):,} values"
    # The mean of the targets may be all that was learned.
    verb = "fall below that of a constant" if at_mean and falls else "fall"
    facts = {"series": series.quoted, "detail": detail, "guessing": guessing, "what": "training loss", "verb": verb}
    # Batches of a trained model differ. Values that are all one number may be a constant that is logged.
    flat = FLAT_OF_MANY if len(series) >= MANY_FLAT else FLAT
    is_flat = len(series) >= LEAST_FLAT and float(np.ptp(series.values[1:])) <= flat * abs(trend.median)
    late = series.values[len(series) // 2 :]
    is_flat |= (
        len(series) >= MANY_FLAT and trend.median > 0 and not falls and float(np.ptp(late)) <= FLAT * trend.median
    )
    is_flat = is_flat and float(np.ptp(series.values)) > 0
    is_flat |= _begins_as_guessing(data, series) or (not falls and _has_large_rate(data, series))
    is_sure = (classes or held_out or at_mean or guesses or growth or is_flat) and not _margins_grow(data)
    return unlearned(series, facts, "medium" if is_sure else "low")


def _begins_as_guessing(data: RunData, series: Series) -> bool:
    """Whether a loss begins at that of guessing among few classes, and stays there.

    A trained model of tokens has such a loss by chance, but names its tokens.
    """
    first, level = float(np.median(series.values[:3])), float(np.median(series.values))
    is_near = any(abs(first / math.log(k) - 1) <= AT_GUESS and abs(level / math.log(k) - 1) <= NEAR_GUESS for k in FEW)
    is_even = float(np.std(series.values)) <= EVEN_GUESS * abs(level)
    names = frozenset(word for one in data.series for word in one.words)
    return len(series) >= LEAST_POINTS and is_near and is_even and _OF_TOKENS.isdisjoint(names)


def _has_large_rate(data: RunData, series: Series) -> bool:
    """Whether a loss stays with a rate that moves any model, and with gradients.

    A trained model gets worse with it at first.
    """
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one)]
    norms = [one for one in data.of(Kind.GRADIENT_NORM) if len(one) >= LEAST_POINTS and np.median(one.values) > 0]
    is_large = bool(rates) and float(np.median(rates[0].values)) >= LARGE_RATE
    return is_large and bool(norms) and len(series) >= LEAST_POINTS and float(series.values.min()) > 1


def _margins_grow(data: RunData) -> bool:
    """Whether the better of two answers is preferred more and more."""
    margins = [
        one for one in data.series if one.words[-1:] in (("margins",), ("margin",)) and len(one) >= LEAST_MARGINS
    ]
    return any(float(mann_kendall(one.values[None])[0]) > NO_TREND for one in margins)


def _growth_of_gradients(data: RunData) -> str:
    """Return a sentence about gradients that have grown far, or an empty one."""
    for norm in data.of(Kind.GRADIENT_NORM):
        if len(norm) < LEAST_POINTS:
            continue
        part = max(3, len(norm) // 20)
        first, last = float(np.median(norm.values[:part])), float(np.median(norm.values[-part:]))
        if first > 0 and last > GROWS * first:
            return (
                f"Meanwhile the norm of the gradient grows ({norm.quoted} {first:.3g} → {last:.3g}): gradients may add up because they "
                "are not reset, or the learning rate is too high. "
            )
    return ""
