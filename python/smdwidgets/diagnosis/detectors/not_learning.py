"""A training loss or reward that never improves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._accuracy import (
    as_share,
    evaluations,
    is_accuracy,
    is_area,
    is_share_of_errors,
)
from smdwidgets.diagnosis.detectors._falls import falls_elsewhere
from smdwidgets.diagnosis.detectors._show import beside, evidence, from_to
from smdwidgets.diagnosis.detectors.constant_accuracy import classes_of_one
from smdwidgets.diagnosis.detectors.diverged import without_bound
from smdwidgets.diagnosis.inputs import Kind, RunData, Series, is_whole
from smdwidgets.diagnosis.trends import Trend, local_noise, mann_kendall
from smdwidgets.finding import Confidence, Finding, Level

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
#: Limits relative to the guessing loss, which is a little lower where classes are not balanced.
GUESSING = (0.965, 1.015)
#: Standard deviation of the values, relative to their level, that guessing does not exceed: each sample costs about the
#: same.
EVEN = 0.04
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
#: Distance of an untrained network's loss from that of guessing, relative to it.
UNTRAINED = 0.1
#: Change of a loss of held-out data, relative to its level, that moving weights exceed, and evaluations that show it.
UNMOVED, LEAST_EVALUATIONS = 0.005, 4
#: A learning rate with which models are fine-tuned, and the same change of one that gets better every time.
USUAL, HARDLY_BETTER = 1e-5, 2e-4
#: An accuracy relative to the probability of the right class, by the loss, that guessing does not exceed or go below.
#: A model that has learned is right far more often than it gives that class the whole probability.
AS_GUESSED = (0.4, 1.6)
#: An accuracy that varies and is above this is none of guessing.
LEARNED_WELL = 0.8
#: Share of the evaluations that must be so, and the range of an accuracy of guessing among few classes.
MOSTLY, STEADY = 0.8, 0.08
#: Fewest evaluations of a model that never comes near its targets, and the first squared error of large targets.
LEAST_OF_TARGETS, LARGE_SQUARES = 10, 1e4
#: Share of the variance that a model explains which has learned something.
EXPLAINS = 0.05
#: Share of the run at its end that counts as its end.
LATE = 0.15
#: Entropy of a policy relative to its first value below which the policy no longer explores, and in nats; the share of
#: the run within which that is early, and the first value below which it never explored.
DECIDED, DECIDED_NATS, EARLY, LEAST_ENTROPY = 0.03, 0.05, 0.5, 0.05
#: Entropy in nats of a policy that never explores, at its largest.
NO_ENTROPY = 0.002
#: Shares of random actions with which a policy hardly explores, and with which it does nothing else; values that show
#: it.
EXPLORES, RANDOM, LEAST_RATES = 0.05, 0.9, 5
#: Rise of a reward, relative to its first value, that random actions may bring.
HARDLY_RISES = 0.5
#: Share of a loss that is nearly all of it, its fall, and the level of a part that has learned nothing.
NEARLY_ALL, FALLS_WELL, STAYED = 0.97, 0.7, 0.95
#: Words of a loss of the task itself; its first value relative to the whole loss, and its least later value relative to
#: the first one, if another part works against it.
_OF_TASKS = frozenset({"ce", "nll", "mse", "task", "recon", "reconstruction", "cls", "lm", "xent", "bce"})
MINOR, WORSE = 0.1, 1.15
#: Growth of the norm of the gradient beside a loss that does not fall.
GROWS = 20.0
#: Share of the values of a loss whose sign is not that of the value before, from which it is around 0.
CHANGES_SIGN = 0.15
#: A training loss that falls below this share of its first value has fallen, whatever evaluations say.
FALLEN = 0.5
#: Fewest values of a loss that is that of guessing exactly: how near, relative to it, and how even it is after the
#: first one, and beside accuracies that never change; accuracies relative to that of guessing beside it.
LEAST_EXACT, EXACTLY, EVENLY, NEARLY_EVENLY, AS_CHANCE = 5, 0.004, 0.005, 0.03, (0.74, 1.3)
#: Words of a loss over the pairs of a batch, and the distance from that of guessing, relative to it.
_OF_PAIRS = frozenset({"contrastive", "clip", "infonce", "nce", "ntxent"})
OF_PAIRS = 0.02
#: Fewest rows of a batch whose number a loss may show.
LEAST_BATCH = 8
#: Distance of accuracies of evaluations, and of losses, from those of guessing, relative to them; the same of the only
#: evaluation.
BY_ACCURACY, BY_LOSS, ONLY_ACCURACY, ONLY_LOSS = 0.03, 0.025, 0.01, 0.005
#: The first of these of few samples, beside losses that are those of guessing as exactly as that of the only one.
BY_FEW_SAMPLES = 0.12
#: Fewest values of a loss that is never below that of guessing, by how much it may be; accuracies beside it relative to
#: that of guessing, among two classes and among more, and the share of them that must be so.
LEAST_ABOVE, HARDLY_BELOW, OF_TWO, OF_MORE, MOST_GUESS = 8, 0.99, (0.92, 1.08), (0.75, 1.25), 0.8
#: The end of such a loss relative to that of guessing, where only accuracies tell the number of classes.
NEAR_GUESS = 1.1
#: Fewest updates of a language model whose reward never rises, and logs of them, the statistic of its trend, the
#: distance from its largest value, relative to it, that is none, and the share of such logs.
LEAST_LOGS, FEWEST_LOGS, NO_TREND, NEARLY_ALL_OF_IT, AGAIN = 100, 20, 2.0, 1e-3, 0.2
#: Fewest logs of a policy that is never better than the untrained one, those that are the first ones, and the share of
#: later ones that may be as good.
MANY_LOGS, OF_UNTRAINED, AS_GOOD = 200, 3, 0.02
#: Episodes that are very many, their parts, and a gain in units of the spread of all, and of the first level, that is
#: none.
VERY_MANY, PARTS, OF_SPREAD, OF_LEVEL = 2000, 20, 0.6, 0.1
#: Rewards without any gain: fewest equal ones, fewest that are 0, and many, their parts, gains in units of the noise of
#: a part, and the share of rewards near the largest one from which on it may be all that can be earned.
LEAST_EQUAL, LEAST_OF_NOTHING, LEAST_REWARDS, REWARD_PARTS, OF_NOISE, AT_MOST = 30, 15, 300, 10, (2.5, 1.0), 0.2
#: Fewest evaluations of a share of episodes that never rises, and the largest one.
LEAST_OF_SUCCESS, HARDLY_EVER = 30, 0.15
#: Words of series that only policies that are language models have.
_OF_ANSWERS = frozenset({"completions", "completion", "response", "responses"})
#: Words of a share of episodes that reach their goal.
_OF_SUCCESS = frozenset({"success", "solved", "goal"})
#: Most classes among which guessing is recognized by its loss and accuracy.
MOST_CLASSES = 1000


def not_learning(data: RunData) -> Iterator[Finding]:
    """Yield training losses and rewards that never improve, and constant losses."""
    named = False
    for finding in _of_losses(data):
        named |= finding.confidence != "low"
        yield finding
    yield from [] if named else islice(_exactly_guessed(data), 1)
    yield from [] if named else _equal_answers(data)
    yield from _far_from_targets(data)
    yield from _drowned(data)
    yield from _sacrificed(data)
    for series in data.of(Kind.REWARD):
        if series.trend is None or len(series) < LEAST_POINTS:
            continue
        if why := _of_random_actions(data, series.trend):
            yield _finding("not_learning", series, "medium", _facts_of_reward(series, series.trend, why))
        elif _always_below_untrained(series) or _never_gains(series):
            yield _never_better(series)
        elif _never_rose(series.trend) or _is_without_trend(series):
            yield _of_reward(series, series.trend, data)
    yield from _hardly_ever_succeeds(data)


def _of_losses(data: RunData) -> Iterator[Finding]:
    improves = any(
        _improves(series, series.trend)
        for series in data.of(Kind.METRIC)
        if series.trend is not None and not _explains_nothing(series)
    )
    # A loss of a policy may be 0 at each step.
    is_nothing = (
        not data.of(Kind.REWARD) and not any(one.values.any() for one in data.training_losses()) and _varies(data)
    )
    for series in data.training_losses():
        trend = series.trend
        if trend is None or falls_elsewhere(data, series) or _is_around_zero(series):
            continue
        if is_share_of_errors(series) and trend.median == 0:
            continue  # without a mistake
        # An accuracy may rise to that of guessing.
        learns = improves and not _every_accuracy_guesses(data, trend)
        constant = len(series) >= LEAST_POINTS and _is_constant(series, trend)
        if constant:
            yield _finding("constant", series, "low", {"value": trend.median})
        if not improves and is_nothing and "loss" in series.stem:
            yield _of_nothing(series)
            continue
        if not learns and not constant and never_below_guessing(data, series):
            # The loss of an untrained network may be far above guessing at first.
            late = trend.blocks[len(trend.blocks) // 2 :]
            begins_above = trend.start > trend.median * (1 + 2 * EVEN)
            z = float(mann_kendall(late[None])[0]) if begins_above else trend.z
            yield _of_loss(data, series, trend, _classes(data), z, guesses=_held_out_guesses(data))
        elif not learns and (_is_level(trend, len(series)) or _stays(trend, len(series)) or is_at_mean(data)):
            held_out = not constant and (_held_out_stays(data) or _held_out_unmoved(data))
            guesses = not constant and (
                _accuracy_of_guessing(data, series)
                or _every_accuracy_guesses(data, trend)
                or _guesses_pairs(data, series)
            )
            yield _of_loss(data, series, trend, _classes(data), trend.z, held_out, is_at_mean(data), guesses)
        elif not constant and _guesses_pairs(data, series):
            yield _of_loss(data, series, trend, _classes(data), 0.0, guesses=True)
        elif not learns and not constant and trend.end > FALLEN * trend.start and _accuracy_of_guessing(data, series):
            yield _of_loss(data, series, trend, _classes(data), trend.z, guesses=True)


def _of_nothing(series: Series) -> Finding:
    """Return the finding for a loss that is 0 at every step."""
    facts = {
        "detail": f"{series.quoted} is 0 at each of {len(series):,} values",
        "guessing": "An untrained model has a loss: probably no batch or no target reaches it, or another number is logged. ",
        "what": "training loss",
        "verb": "fall",
    }
    return _finding("not_learning", series, "medium", facts)


def _exactly_guessed(data: RunData) -> Iterator[Finding]:
    """Yield a loss that is exactly that of guessing, as its accuracies are.

    Few values are enough.
    """
    yield from _guessed_by_all(data)
    yield from _never_below(data)
    # What the model answers at first does not matter.
    shares = [one[1 if len(one) < LEAST_POINTS else len(one) // 2 :] for one in _accuracies(data)]
    are_constant = all(float(np.ptp(one)) == 0 for one in shares)
    for series in data.training_losses():
        # The loss of large first outputs falls to that of guessing.
        later = series.values[1 if len(series) < LEAST_POINTS else len(series) // 2 :]
        if len(series) < LEAST_EXACT or not shares or not np.isfinite(later).all():
            continue
        level = float(np.median(later))
        classes = round(math.exp(level)) if 0 < level < math.log(MOST_CLASSES) else 0
        even = NEARLY_EVENLY if are_constant else EVENLY
        if classes < 2 or abs(level - math.log(classes)) > EXACTLY * level or float(np.ptp(later)) > even * level:
            continue
        if _are_near(shares, 1 / classes, AS_CHANCE):
            detail = f"{series.quoted} {series.values[0]:.4g} → {series.values[-1]:.4g} over {len(series):,} values"
            yield _as_guessed(series, classes, detail, "fall")
            return


def _guessed_by_all(data: RunData) -> Iterator[Finding]:
    """Yield a loss of guessing that evaluations confirm.

    Two of them are enough if both their loss and their accuracy are those of guessing.
    """
    for one in evaluations(data):
        share, losses = one.share, one.loss.values
        alone = len(share) < 2 or len(losses) < 2
        level = float(np.median(losses)) if len(losses) else 0.0
        of_loss = round(math.exp(level)) if 0 < level < math.log(MOST_CLASSES) else 0
        exact = of_loss > 2 and not alone and (np.abs(losses / math.log(of_loss) - 1) <= ONLY_LOSS).all()
        of_share = round(1 / float(np.median(share))) if len(share) and share.min() > 0 else 0
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
            if len(series) >= LEAST_POINTS and (np.abs(levels - 1) <= BY_LOSS).all():
                detail = f"{from_to(series)}, {from_to(one.accuracy)}"
                yield _as_guessed(series, classes, detail, "fall below that of guessing")
                return


def _never_below(data: RunData) -> Iterator[Finding]:
    """Yield a loss that is never below that of guessing.

    Nearly all accuracies are those of guessing, or answers are all one class.
    """
    of_one = classes_of_one(data)
    classes = of_one or _guessed_classes(_accuracies(data))
    losses = [one for one in data.held_out(Kind.LOSS) if one.stem == ("loss",) and len(one)]
    if not classes or any(one.values.min() < HARDLY_BELOW * math.log(classes) for one in losses):
        return
    for series in data.training_losses():
        if len(series) < LEAST_ABOVE or "loss" not in series.stem:
            continue
        guess, late = math.log(classes), float(np.median(series.values[len(series) // 2 :]))
        if series.values.min() >= HARDLY_BELOW * guess and (of_one or late <= NEAR_GUESS * guess):
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
    yield _finding("not_learning", losses[0], "medium", facts)


def _as_guessed(series: Series, classes: int, detail: str, verb: str) -> Finding:
    """Return the finding for a loss and accuracies that are those of guessing."""
    guessing = f"Guessing one of {classes} classes gives {math.log(classes):.4g}, and is right as often. "
    facts = {"detail": detail, "guessing": guessing, "what": "training loss", "verb": verb}
    return _finding("not_learning", series, "medium", facts)


def _is_around_zero(series: Series) -> bool:
    """Whether a loss changes its sign again and again, as that of a policy gradient.

    Its size does not say what is learned.
    """
    signs = np.sign(series.values[np.isfinite(series.values)])
    return len(signs) >= LEAST_POINTS and float(np.mean(signs[1:] != signs[:-1])) > CHANGES_SIGN


def _whole_and_parts(data: RunData) -> tuple[Series | None, list[Series]]:
    """Return a whole training loss that falls well, and the losses beside it.

    These have as many values. There is none if no loss falls so.
    """
    losses = [one for one in data.of(Kind.LOSS) if not one.role.is_held_out and len(one) >= LEAST_POINTS]
    whole = next((one for one in losses if is_whole(one)), None)
    if whole is None or not 0 < whole.values[-1] < FALLS_WELL * whole.values[0]:
        return None, []
    return whole, [one for one in losses if one is not whole and len(one) == len(whole)]


def _far_from_targets(data: RunData) -> Iterator[Finding]:
    """Yield a regression whose outputs do not come to the size of its targets."""
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


def _drowned(data: RunData) -> Iterator[Finding]:
    """Yield a part of a loss that does not fall beside one that is nearly all."""
    whole, others = _whole_and_parts(data)
    if whole is None:
        return
    parts = [one for one in others if "loss" in one.stem]
    large = [one for one in parts if (one.values >= NEARLY_ALL * whole.values).all()]
    if len(large) != 1:
        return
    for part in parts:
        late = float(np.median(part.values[2 * len(part) // 3 :]))
        if part is large[0] or part.values[0] <= 0 or late < STAYED * part.values[0]:
            continue
        facts = {
            "detail": f"{part.quoted} {part.values[0]:.4g} → {part.values[-1]:.4g} over {len(part):,} values",
            "guessing": f"{large[0].quoted} is {float(np.median(large[0].values / whole.values)):.1%} of {whole.quoted}, so that "
            "hardly anything else is trained: scale its targets, or weigh the parts. ",
            "what": f"loss {part.quoted}",
            "verb": "fall",
        }
        yield _finding("not_learning", part, "medium", facts)
        return


def _sacrificed(data: RunData) -> Iterator[Finding]:
    """Yield a part of a loss that stays above its first value while the whole falls."""
    whole, parts = _whole_and_parts(data)
    if whole is None:
        return
    for part in parts:
        first, later = float(part.values[0]), part.values[1:]
        # A weight against growth, such as that of a divergence, begins at nearly 0.
        if _OF_TASKS.isdisjoint(part.stem) or not 0 < MINOR * whole.values[0] < first or later.min() < WORSE * first:
            continue
        facts = {
            "detail": f"{part.quoted} {first:.4g} → {part.values[-1]:.4g}, and at least {later.min():.4g} since, over {len(part):,} values",
            "guessing": f"{whole.quoted} falls from {whole.values[0]:.3g} to {whole.values[-1]:.3g} by another part, which works "
            "against this one: compare what the two are computed from. ",
            "what": f"loss {part.quoted}",
            "verb": "fall",
        }
        yield _finding("not_learning", part, "medium", facts)
        return


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


def never_below_guessing(data: RunData, series: Series) -> bool:
    """Whether a loss never fell below that of guessing, wherever it began.

    It is that of guessing among the classes of the saved outputs.
    """
    saved, trend = _saved_classes(data), series.trend
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
    saved = _saved_classes(data)
    if len(saved) != 1 or not len(series):
        return False
    chance = math.log(saved[0])
    return abs(float(np.median(series.values)) - chance) < UNTRAINED * chance


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
    # A trained model may know the data: with a usual rate, it then gets better at every evaluation, however little.
    rates = [float(one.values.max()) for one in data.of(Kind.LEARNING_RATE) if len(one)]
    if max(rates, default=0.0) >= USUAL and all((np.diff(one.values) <= 0).all() for one in losses):
        losses = [one for one in losses if np.ptp(one.values) <= HARDLY_BETTER * abs(float(one.values[0]))]
    return bool(losses) and all(float(np.ptp(one.values)) <= UNMOVED * abs(float(one.values[0])) for one in losses)


def _accuracy_of_guessing(data: RunData, series: Series) -> bool:
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
        is_level = float(loss.values[at][-1]) >= (1 - LEAST_HELD_OUT) * abs(float(series.values[0]))
        if is_level and ((low <= guessed) & (guessed <= high)).mean() >= MOSTLY:
            return True
    return False


def _every_accuracy_guesses(data: RunData, trend: Trend) -> bool:
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


def _accuracies(data: RunData) -> list[Floats]:
    """Return all accuracies with enough values, as shares of 1."""
    return [as_share(one) for one in data.of(Kind.METRIC) if is_accuracy(one) and len(one) >= LEAST_EVALUATIONS]


def _are_near(shares: list[Floats], chance: float, limits: tuple[float, float]) -> bool:
    """Whether all accuracies are within limits of that of guessing, relative to it."""
    low, high = (limit * chance for limit in limits)
    return all(low <= float(share.min()) and float(share.max()) <= high for share in shares)


def _guesses_pairs(data: RunData, series: Series) -> bool:
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


def _held_out_guesses(data: RunData) -> bool:
    """Whether a long loss of held-out data never fell below that of guessing."""
    saved = _saved_classes(data)
    losses = [one for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_POINTS]
    return len(saved) == 1 and any(one.values.min() >= math.log(saved[0]) for one in losses)


def _never_rose(trend: Trend) -> bool:
    gain = trend.start - min(trend.best, trend.end)
    return gain <= max(LEAST_DROP * abs(trend.start), 2 * trend.wide_noise) and trend.z > -2


def _classes(data: RunData) -> tuple[int, ...]:
    """Return the number of classes of the saved outputs.

    If none were saved, return all usual numbers.
    """
    return _saved_classes(data) or CLASSES


def _saved_classes(data: RunData) -> tuple[int, ...]:
    saved = {int(np.nanmax(one["classes"], initial=0)) for one in data.tensors.select("output", having="classes")}
    return tuple(sorted(saved - {0, 1}))


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
    is_sure = (classes or held_out or at_mean or guesses or growth or is_flat) and not _margins_grow(data)
    return _finding("not_learning", series, "medium" if is_sure else "low", facts)


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


def _of_reward(series: Series, trend: Trend, data: RunData) -> Finding:
    """Return the finding for a reward that never rose.

    It is sure only if the policy stopped to explore early, since many tasks pay late.
    """
    facts = _facts_of_reward(series, trend)
    for entropy in data.of(Kind.RL, Kind.UNDIRECTED):
        at = _decided(entropy) if "entropy" in entropy.stem else None
        if at is not None:
            facts["guessing"] = (
                f"The policy takes the same action every time since step {at:,} ({entropy.quoted} "
                f"{entropy.values[0]:.3g} → {entropy.values[-1]:.2g}), before it had learned: often the learning rate is too high. "
            )
            return _finding("not_learning", series, "medium", facts)
    for rate in data.series:
        if why := _of_exploration(rate):
            facts["guessing"] = why
            return _finding("not_learning", series, "medium", facts)
    is_sure = _stays_flat(series, data) or _earns_nothing(series, data)
    if not is_sure and _is_without_trend(series):
        # Where a critic diverges, that is the cause.
        is_sure = all(without_bound(one, data) is None for one in data.of(Kind.LOSS, Kind.UNDIRECTED))
    return _finding("not_learning", series, "medium" if is_sure else "low", facts)


def _facts_of_reward(series: Series, trend: Trend, why: str = "") -> dict[str, object]:
    text = f"{series.quoted} {-trend.start:.4g} → {-trend.end:.4g}"
    return {"series": series.quoted, "detail": text, "guessing": why, "what": "reward", "verb": "rise"}


def _of_random_actions(data: RunData, trend: Trend) -> str:
    """Return a sentence about actions that are random to the end, or nothing.

    There is none if the reward rises well.
    """
    if trend.start - trend.end > HARDLY_RISES * abs(trend.start):
        return ""
    rates = [one for one in data.series if len(one) >= LEAST_POINTS and one.values.min() >= RANDOM]
    return next((why for one in rates if (why := _of_exploration(one))), "")


def _always_below_untrained(reward: Series) -> bool:
    """Whether a reward was best before the policy was trained."""
    values = reward.values
    if len(values) < MANY_LOGS or reward.words[-1:] == ("reward",):
        return False
    first, later = float(np.median(values[:OF_UNTRAINED])), values[2 * OF_UNTRAINED :]
    late = later[len(later) // 2 :]
    is_clear = first - float(np.median(late)) > 3 * local_noise(late)
    return is_clear and (later >= first).mean() <= AS_GOOD


def _never_gains(reward: Series) -> bool:
    """Whether no part of very many episodes is better than the first one."""
    values = reward.values
    if len(values) < VERY_MANY or reward.words[-1:] != ("reward",) or reward.words[:1] != ("episode",):
        return False
    parts = np.array([float(np.median(part)) for part in np.array_split(values, PARTS)])
    return float(parts[1:].max() - parts[0]) < min(OF_SPREAD * float(np.std(values)), OF_LEVEL * abs(float(parts[0])))


def _never_better(series: Series) -> Finding:
    facts = {
        "detail": from_to(series) + f", best of the last half {series.values[len(series) // 2 :].max():.4g}",
        "guessing": "The policy was as good before it was trained. ",
        "what": "reward",
        "verb": "rise above that of the untrained policy",
    }
    return _finding("not_learning", series, "medium", facts)


def _hardly_ever_succeeds(data: RunData) -> Iterator[Finding]:
    """Yield a share of episodes that reach the goal which stays near 0."""
    if any(one.trend is not None and not _never_rose(one.trend) for one in data.of(Kind.REWARD)):
        return  # something is learned
    for series in data.of(Kind.METRIC):
        values = series.values
        is_success = not _OF_SUCCESS.isdisjoint(series.words) and "rate" in series.words
        if not is_success or len(values) < LEAST_OF_SUCCESS or not 0 <= values.min() <= values.max() <= HARDLY_EVER:
            continue
        if float(mann_kendall(values[None])[0]) < NO_TREND:
            facts = {
                "detail": f"{from_to(series)}, at most {values.max():.3g} at {len(values):,} evaluations",
                "guessing": "The goal is reached by chance only. ",
                "what": "share of episodes that succeed",
                "verb": "rise",
            }
            yield _finding("not_learning", series, "medium", facts)
            return


def _stays_flat(reward: Series, data: RunData) -> bool:
    """Whether the reward of a language model is no better at the end than at first.

    Such a model can answer before it is trained, so that rewards do not come late.
    """
    values = reward.values
    is_whole = reward.words == ("reward",) and any(_OF_ANSWERS.intersection(one.words) for one in data.series)
    updates = int(reward.steps[-1] - reward.steps[0])
    if not is_whole or len(values) < FEWEST_LOGS or max(len(values), updates) < LEAST_LOGS:
        return False
    first, late = (float(np.mean(part)) for part in (values[: len(values) // 4], values[-len(values) // 4 :]))
    spread = float(np.std(values)) / math.sqrt(len(values) / 4)
    # All that can be earned is earned again and again.
    has_room = (values >= values.max() - NEARLY_ALL_OF_IT * abs(values.max())).mean() < AGAIN
    return has_room and late - first < 2 * spread and float(mann_kendall(values[None])[0]) < NO_TREND


def _earns_nothing(reward: Series, data: RunData) -> bool:
    """Whether every reward is the same, and none is positive."""
    rewards = [one for one in data.series if len(one) and {"reward", "return", "score"}.intersection(one.words)]
    rewards.append(reward)
    is_level = _varies(data) and all(float(np.ptp(one.values)) == 0 for one in rewards)
    first = float(reward.values[0])
    return is_level and first <= 0 and len(reward) >= (LEAST_EQUAL if first else LEAST_OF_NOTHING)


def _varies(data: RunData) -> bool:
    """Whether any number varies: all that is constant may be no training."""
    return any(float(np.ptp(one.values)) > 0 for one in data.series if len(one))


def _is_without_trend(reward: Series) -> bool:
    """Whether no part of many rewards is better than the first one, beyond the noise."""
    values = reward.values
    if len(values) < LEAST_REWARDS or (values >= values.max() - LEAST_DROP * abs(values.max())).mean() >= AT_MOST:
        return False
    parts = np.array_split(values, REWARD_PARTS)
    means = np.array([float(np.mean(part)) for part in parts])
    noise = float(np.median([np.std(part) / math.sqrt(len(part)) for part in parts])) * math.sqrt(2)
    at_best, at_end = OF_NOISE
    return bool(means[1:].max() - means[0] < at_best * noise and means[-3:].mean() - means[0] <= at_end * noise)


def _of_exploration(rate: Series) -> str:
    """Return a sentence about a policy that hardly explores, or does nothing else.

    It is empty otherwise.
    """
    words = rate.words
    is_rate = "epsilon" in words or {"exploration", "rate"}.issubset(words)
    if not is_rate or len(rate) < LEAST_RATES or not 0 <= rate.values.min() <= rate.values.max() <= 1:
        return ""
    if rate.values.max() <= EXPLORES:
        return f"The policy hardly explores: {rate.quoted} is {rate.values.max():.2g} or less from the first value on. "
    if rate.values.min() >= RANDOM:
        return f"Nearly all actions are random: {rate.quoted} is {rate.values.min():.2g} or more to the end. "
    return ""


def _decided(entropy: Series) -> int | None:
    """Return the step since which the entropy of a policy is nearly 0.

    None if that is late, or if the policy still explores.
    """
    size = np.abs(entropy.values)
    if len(size) < LEAST_POINTS:
        return None
    if size[0] < LEAST_ENTROPY:
        return int(entropy.steps[0]) if size.max() < NO_ENTROPY else None
    limit = max(DECIDED * size[0], min(DECIDED_NATS, size[0] / 4))
    above = np.flatnonzero(size > limit)
    at = int(above[-1]) + 1
    return int(entropy.steps[at]) if at <= EARLY * len(size) else None


def _finding(kind: str, series: Series, confidence: Confidence, facts: Mapping[str, object]) -> Finding:
    first, last = int(series.steps[0]), int(series.steps[-1])
    shown = evidence(series, str(facts.get("detail", series.label)).replace("`", ""), first, last)
    level: Level = "note" if kind == "constant" else "problem"
    return Finding.of(
        kind, level, confidence, first, last, (series.name,), {"series": series.quoted, **facts}, (shown,)
    )
