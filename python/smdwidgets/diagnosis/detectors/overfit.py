"""A validation loss that rises although the training loss does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, is_accuracy
from smdwidgets.diagnosis.detectors._show import beside, evidence, step_of_block
from smdwidgets.diagnosis.detectors.between_evaluations import is_one_by_chance, rises_alone, rises_while_training_falls
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.step_axes import steps_along
from smdwidgets.diagnosis.trends import Trend, local_noise, mann_kendall
from smdwidgets.finding import Confidence, Finding
from smdwidgets.naming.scalars import Role

#: What most findings say.
RISING = "Validation loss rises"
OVER_CONFIDENT = " A validation metric still improves: perhaps only over-confidence."
#: Blocks after the best that must show the rise.
LEAST_BLOCKS = 5
#: Share of the run after the best.
LEAST_SHARE = 0.2
#: Rise in units of the noise that needs no trend.
CLEAR = 30
#: Values of a validation loss that show its noise, and the training loss relative to that of fewer ones above which it
#: may be noise that parts them.
MANY, APART = 20, 0.6
#: Fewest values of a validation loss that is judged without a trend, and its least rise relative to the best.
FEWEST, RISE_SPARSE = 3, 0.25
#: Its rise relative to the best that better metrics do not outweigh, and the part of it by which it may fall back.
OUTWEIGHS, FALLS_BACK = 0.5, 0.1
#: Rise of a metric that counts as better.
RISES = 0.01
#: Training loss relative to the validation loss of data that are learned by heart, and the least share of the run.
BY_HEART, LEAST_BY_HEART = 0.005, 0.5
#: For a loss that rises little: the share of the run within which its best lies, its rise, the training loss relative
#: to it, and the shares of training data and of others that are right.
LATE_BEST, LITTLE_RISE, NEARLY_NONE, ALL_RIGHT, MANY_WRONG = 0.6, 0.05, 0.1, 0.995, 0.85
#: Without a training loss: the rise relative to the best, and the share of the run after the best.
RISE_ALONE, SHARE_ALONE = 0.25, 0.5
#: Beside a training loss that is small: the rise relative to the best, the statistic of its trend, and that training
#: loss relative to the last ones of the validation.
RISE_APART, Z_APART, SMALL_BESIDE = 0.4, 3.0, 0.25
#: Largest cross-entropy of the outputs of a model, and a rise of it that is much.
MOST_OF_ENTROPIES, MUCH = 13.0, 0.5
#: First loss of an untrained classifier, the share of it that is nearly nothing, and an accuracy of other data that is
#: poor beside it.
UNTRAINED, NEARLY_LEARNED, POOR_SHARE = (0.3, 7.0), 0.03, 0.6
#: Epochs of a fine-tuning that are many, fewest values of its loss, the share of it that is hardly any, and its size.
MANY_EPOCHS, FEWEST_LOSSES, HARDLY_ANY, SMALL = 8, 8, 0.05, 0.2
#: Loss of tokens or classes of which each is certain, the share of the values that are so small, and epochs.
CERTAIN, SHARE_CERTAIN, FEW_EPOCHS = 0.001, 0.4, 2
#: Words of accuracies of features, not of the outputs that are trained.
_OF_FEATURES = frozenset({"knn", "probe", "linear", "nmi", "cluster"})
#: Fall of an accuracy, as a share of all samples, and the training loss since then, relative to that at its best.
LEAST_FALL, FALLEN_SINCE = 0.08, 0.3
#: The same rise with fewer values than those that show their noise: at least so many, and relative to the best.
FEWER, RISE_OF_FEWER = 12, 0.75
#: Rise of a loss of held-out data, relative to its best, above its first values: the model is worse than at first.
WORSE = 0.03
#: Fewest values above the best, the share of all that they are, and as many from the best on as rise one by one; the
#: rise relative to the best and to what was gained until then; the training loss relative to that of the validation,
#: and to its value at the best.
LEAST_ABOVE, ABOVE_FOR, LEAST_RISING = 8, 0.6, 5
RISES_SOME, OF_GAINED, NEXT_TO_NOTHING, LEARNED_ON = 0.2, 0.015, 0.02, 0.1
#: For a validation loss far above its best beside a far better accuracy of the training data: the rise relative to the
#: best, that of nearly all later values, the fall of the training loss since, and the distance of the accuracies, also
#: where all training data are right.
RISE_BESIDE, NEARLY_ALL_ABOVE, FELL_SINCE, BETTER_BY, BETTER_THAN_RIGHT = 0.25, 0.05, 0.85, 0.1, 0.05
#: Without a training loss and of many values: the first value by the best one, which comes soon, and nearly all later
#: values by it.
FELL_TO_BEST, SOON, STAYS_ABOVE = 1.5, 0.1, 1.5
#: Share of the possible gain of an accuracy that is no gain.
NO_GAIN = 0.03


def overfit(data: RunData) -> Iterator[Finding]:
    """Yield pairs of losses that drift apart, and accuracies that fall.

    A training that restores earlier weights at its end, such as the best ones, has a note only.
    """
    for one in _found(data):
        yield replace(one, level="note") if data.settings.get("weights.restored") else one


def _found(data: RunData) -> Iterator[Finding]:
    if not data.held_out(Kind.LOSS):
        by_accuracy = list(_by_accuracy(data))
        yield from by_accuracy or _unseen(data)
    else:
        yield from _declines(data)
    for validation in data.held_out(Kind.LOSS):
        trend = validation.trend
        findings = list(_sparse(data, validation) if trend is None else _by_trend(data, validation, trend))
        yield from findings or _between_evaluations(data, validation)


def _by_trend(data: RunData, validation: Series, trend: Trend) -> Iterator[Finding]:
    if not data.training_losses() and _leaves_early_best(validation):
        yield from _since_best(data, validation, None)
        return
    # Most runs end here.
    least = WORSE * abs(trend.best) if trend.end > (1 + WORSE) * trend.start > 0 else _least_rise(trend.best)
    if trend.end - trend.best <= max(2 * trend.noise, least):
        by_heart = list(_by_heart(data, validation, trend))
        training = data.partner(validation)
        yield from by_heart
        if training is not None and not by_heart:
            yield from _without_mistake(data, validation, training)
            yield from _stays_above_best(data, validation, training)
            yield from _worse_than_at_first(validation, training)
        return
    training = data.partner(validation) or _whole(data, validation)
    if training is not None and training.trend is not None:
        clear = list(_judge(data, validation, trend, training, training.trend))
        clear = clear or list(_without_mistake(data, validation, training))
        clear = clear or list(_stays_above_best(data, validation, training))
        clear = clear or list(_far_apart(data, validation, trend))
        if all(one.confidence == "low" for one in clear):
            clear = list(_by_accuracies(data, validation, training)) or clear
        yield from clear or _worse_than_at_first(validation, training)
    elif training is None and not data.training_losses():
        yield from _alone(data, validation, trend)
    elif training is None:
        yield from _far_apart(data, validation, trend)


def _whole(data: RunData, validation: Series) -> Series | None:
    """Return the training loss beside a validation loss that names its data.

    Such data are those of an older task.
    """
    losses = data.training_losses() if "loss" in validation.stem else []
    return losses[0] if len(losses) == 1 and losses[0].trend is not None else None


def _without_mistake(data: RunData, validation: Series, training: Series) -> Iterator[Finding]:
    """Judge a validation loss that rises a little.

    Training data are then all right, and many others are not.
    """
    values = validation.values
    at = int(values.argmin())
    end = float(np.median(values[-max(3, len(values) // 5) :]))
    keep = int(validation.steps[at])
    if (
        at >= LATE_BEST * len(values)
        or end < (1 + LITTLE_RISE) * float(values[at])
        or training.values[-1] > NEARLY_NONE * end
    ):
        return
    right, wrong = (
        [float(np.median(as_share(one)[len(one) // 2 :])) for one in some]
        for some in (
            [one for one in data.of(Kind.METRIC) if not one.role.is_held_out and is_accuracy(one)],
            [one for one in data.held_out(Kind.METRIC) if is_accuracy(one)],
        )
    )
    if right and wrong and min(right) >= ALL_RIGHT and max(wrong) <= MANY_WRONG:
        facts = {
            "what": RISING,
            "while": f"{min(right):.1%} of the training data are right, {max(wrong):.1%} of the others",
            "best": float(values[at]),
            "keep": keep,
            "end": end,
        }
        yield _medium(validation, training, int(validation.steps[min(at + 1, len(values) - 1)]), facts)


def _stays_above_best(data: RunData, validation: Series, training: Series) -> Iterator[Finding]:
    """Judge a validation loss that never comes back to its best, for most of the run.

    It rises from value to value at first; later, noise hides the trend. The training loss falls on to next to nothing.
    """
    values = validation.values
    at = int(values.argmin())
    best, after = float(values[at]), values[at + 1 :]
    gained = max(float(values[0]), float(training.values[0])) - best
    if len(after) < LEAST_ABOVE or len(after) < ABOVE_FOR * len(values) or best <= 0:
        return
    end = float(np.median(after[-max(3, len(after) // 3) :]))
    rise = end - best
    rises = bool((np.diff(values[at : at + LEAST_RISING]) > 0).all())  # so does noise, but seldom
    stays = float(after[LEAST_RISING - 1 :].min()) >= (1 + RISES_SOME / 2) * best
    if not rises or not stays or rise < max(RISES_SOME * best, OF_GAINED * gained):
        return
    before = float(np.interp(steps_along(validation, training)[at], training.steps, training.values))
    left = training.trend.end if training.trend is not None else np.inf
    if not 0 <= left < min(NEXT_TO_NOTHING * end, LEARNED_ON * before):
        return
    if _metric_improves(data, validation, int(validation.steps[at])):
        return
    facts = {
        "what": "Validation loss stays above its best",
        "while": f"{training.quoted} falls to {left:.2g}",
        "best": best,
        "keep": int(validation.steps[at]),
        "end": end,
    }
    yield _medium(validation, training, int(validation.steps[at + 1]), facts)


def _worse_than_at_first(validation: Series, training: Series) -> Iterator[Finding]:
    """Judge a validation loss above its first values by more than the training gains.

    It may jump far, as the likelihood of a model with a variance of its samples does, so that no trend is clear.
    """
    if min(len(validation), len(training)) < MANY or (validation.values > 0).all():
        return
    late = validation.values[len(validation) // 2 :]
    first, rest = float(validation.values[:3].max()), training.values[len(training) // 2 :]
    gained = float(np.median(training.values[:3]) - np.median(rest))
    if gained <= local_noise(training.values) or float(np.median(training.values[:3])) <= np.quantile(rest, 0.9):
        return
    end = float(np.median(late))
    if end - first <= gained or float(np.quantile(late, 0.25)) <= first:
        return
    at = int(validation.values.argmin())
    facts = {
        "what": "Validation loss is worse than at first",
        "while": f"{training.quoted} falls to {np.median(rest):.3g}",
        "best": float(validation.values[at]),
        "keep": int(validation.steps[at]),
        "end": end,
    }
    yield _medium(validation, training, int(validation.steps[min(at + 1, len(validation) - 1)]), facts)


def _accuracy_falls(data: RunData) -> bool:
    """Whether an accuracy of held-out data falls for good beside a rising loss."""
    shares = [as_share(one) for one in data.held_out(Kind.METRIC) if is_accuracy(one) and len(one) >= MANY // 2]
    for share in shares:
        at = int(share.argmax())
        after = share[at:]
        drop = float(share[at] - np.median(after[-max(3, len(after) // 5) :]))
        if len(after) > len(share) / 2 and drop >= LEAST_FALL and _z(after) < -2:
            return True
    return False


def _judge(
    data: RunData, validation: Series, trend: Trend, training: Series, training_trend: Trend
) -> Iterator[Finding]:
    blocks, best_at = trend.blocks, trend.best_at
    after = blocks[best_at:]
    lowest = _lowest(validation, trend)
    keep, best = int(validation.steps[lowest]), float(validation.values[lowest])
    span = validation.steps[-1] - validation.steps[0]
    if len(after) <= LEAST_BLOCKS or validation.steps[-1] - keep < LEAST_SHARE * span:
        return
    rise, z = trend.end - trend.best, _z(after)
    falls = _after(training, training_trend, _along(validation, training, lowest))
    before = training_trend.blocks[: len(training_trend.blocks) - len(falls)]
    # A rise that flattens is no line, so its z is low however clear it is.
    rises = z > 2 or rise > CLEAR * trend.noise
    if not rises or len(falls) < 4 or _z(falls) >= -2 or not _drops(falls):
        return
    # A training loss that recovers from a jump falls, too, but the jump also raised the validation loss.
    if len(before) and np.median(falls[-max(1, len(falls) // 5) :]) >= np.median(before[-3:]):
        return
    still_improves = _metric_improves(data, validation, keep) and rise <= 0.5 * abs(trend.best)
    # Few values of a validation are noisy. Data that are learned by heart have a far smaller loss than others.
    near = len(validation) < MANY and float(np.median(falls[-3:])) > APART * abs(trend.end)
    near = near and not _accuracy_falls(data)
    doubts = 0 if z > 3 and rise > 0.25 * abs(trend.best) and len(validation) >= MANY else 1 + near
    by_doubts: tuple[Confidence, ...] = ("high", "medium", "low", "low")
    # Beside a training without mistakes, a metric that creeps up is no sign that more is learned.
    by_heart = 0 <= training_trend.end < BY_HEART * trend.end
    confidence = by_doubts[doubts + (still_improves and not by_heart)]
    last = int(validation.steps[-1])
    # The best of a level stretch is chance; the rise begins at its end.
    low = best_at + int(np.flatnonzero(after <= trend.best + max(2 * trend.noise, 0.1 * rise))[-1])
    onset = step_of_block(validation, low)
    facts = {
        "what": RISING,
        "series": validation.quoted,
        "while": f"{training.quoted} still falls",
        "best": best,
        "keep": keep,
        "end": trend.end,
        "accuracy": OVER_CONFIDENT if still_improves else "",
    }
    yield Finding.of(
        "overfit",
        "problem",
        confidence,
        onset,
        last,
        (validation.name, training.name),
        facts,
        (
            evidence(validation, f"{validation.label} {best:.4g} → {trend.end:.4g}", onset, last),
            evidence(training, f"{training.label} {falls[0]:.4g} → {falls[-1]:.4g}", onset, last),
        ),
    )


def _far_apart(data: RunData, validation: Series, trend: Trend) -> Iterator[Finding]:
    """Judge a validation loss that rises far, beside a far smaller training loss.

    That one may have few values, or have been small from the first one on.
    """
    training = max(
        (one for one in data.training_by_words.get((validation.kind, validation.stem), []) if len(one) >= FEWEST),
        key=len,
        default=None,
    )
    lowest = _lowest(validation, trend)
    keep, best = int(validation.steps[lowest]), float(validation.values[lowest])
    after = trend.blocks[trend.best_at :]
    span = validation.steps[-1] - validation.steps[0]
    few = len(validation) < MANY
    if training is None or len(validation) < FEWER or validation.steps[-1] - keep < SHARE_ALONE * span:
        return
    rise = trend.end - trend.best
    least = RISE_OF_FEWER * best if few else max(RISE_APART * best, 6 * trend.noise)
    if best <= 0 or rise <= least or _z(after) <= (2 if few else Z_APART):
        return
    late = float(np.median(training.values[-max(3, len(training) // 5) :]))
    if not 0 <= late <= SMALL_BESIDE * trend.end or late > float(np.median(training.values[:3])):
        return
    facts = {
        "what": RISING,
        "while": f"{training.quoted} is {late:.2g}",
        "best": best,
        "keep": keep,
        "end": trend.end,
    }
    yield _medium(validation, training, int(validation.steps[min(lowest + 1, len(validation) - 1)]), facts)


def _by_accuracies(data: RunData, validation: Series, training: Series) -> Iterator[Finding]:
    """Judge a validation loss above its best by the accuracies beside.

    It is above it for most of the run. It may jump, and the accuracy may still rise a little.
    """
    values = validation.values
    at = int(values.argmin())
    best, after = float(values[at]), values[at + 1 :]
    if best <= 0 or len(after) < LEAST_ABOVE or len(after) < ABOVE_FOR * len(values):
        return
    end = float(np.median(after[-max(3, len(after) // 5) :]))
    if end < (1 + RISE_BESIDE) * best or float(np.quantile(after, 0.1)) < (1 + NEARLY_ALL_ABOVE) * best:
        return
    before = float(np.interp(steps_along(validation, training)[at], training.steps, training.values))
    left = float(np.median(training.values[-max(3, len(training) // 10) :]))
    if not 0 <= left < min(FELL_SINCE * before, APART * end):
        return
    known, others = (
        [float(np.median(as_share(one)[-max(3, len(one) // 5) :])) for one in some if len(one) >= FEWER]
        for some in (
            [one for one in data.of(Kind.METRIC) if not one.role.is_held_out and is_accuracy(one)],
            [one for one in data.held_out(Kind.METRIC) if is_accuracy(one)],
        )
    )
    least = BETTER_BY if not known or min(known) < ALL_RIGHT else BETTER_THAN_RIGHT
    if not known or not others or min(known) - max(others) < least:
        return
    facts = {
        "what": RISING,
        "while": f"{training.quoted} still falls; {min(known):.0%} of the training data are right, {max(others):.0%} of the others",
        "best": best,
        "keep": int(validation.steps[at]),
        "end": end,
    }
    yield _medium(validation, training, int(validation.steps[at + 1]), facts)


def _by_accuracy(data: RunData) -> Iterator[Finding]:
    """Judge an accuracy that stays poor although the training loss is nearly 0.

    It is one of other data then, whatever its name.
    """
    for accuracy in data.of(Kind.METRIC):
        if not is_accuracy(accuracy) or accuracy.role is Role.TRAINING or len(accuracy) < MANY:
            continue
        share = as_share(accuracy)
        late = float(np.median(share[-len(share) // 3 :]))
        if late > POOR_SHARE or not _OF_FEATURES.isdisjoint(accuracy.words):
            continue
        for loss in data.training_losses():
            if len(loss) < len(accuracy) / 2:
                continue
            first, end = float(np.median(loss.values[:3])), float(np.median(loss.values[-len(loss) // 5 :]))
            if not UNTRAINED[0] < first < UNTRAINED[1] or not 0 <= end < NEARLY_LEARNED * first:
                continue
            at = int(share.argmax())
            facts = {
                "what": "The training data are learned by heart",
                "while": f"{loss.quoted} is {end:.2g}, and {accuracy.quoted} {late:.2f}",
                "best": float(share[at]),
                "keep": int(accuracy.steps[at]),
                "end": late,
            }
            yield _medium(accuracy, loss, int(accuracy.steps[at]), facts)
            return


def _unseen(data: RunData) -> Iterator[Finding]:
    """Judge a training that learns its data by heart, and evaluates nothing."""
    loss = data.longest_loss
    is_judged = any(one.role is not Role.TRAINING for one in data.of(Kind.METRIC)) or data.of(Kind.REWARD)
    # After NaN in the gradient, a loss may be logged as 0.
    is_lost = any(len(one.lost_steps) > len(one) for one in data.of(Kind.GRADIENT_NORM))
    if loss is None or is_judged or is_lost or len(loss) < FEWEST_LOSSES:
        return
    first, late = float(loss.values[:3].max()), loss.values[-max(3, len(loss) // 10) :]
    end = float(np.median(late))
    epochs = data.epochs.values.max(initial=0) if data.epochs is not None and data.is_of_transformers else 0
    by_epochs = epochs >= MANY_EPOCHS and first >= UNTRAINED[0] and end < min(HARDLY_ANY * first, SMALL)
    small = loss.values < 2 * CERTAIN
    is_certain = epochs >= FEW_EPOCHS and end < CERTAIN < HARDLY_ANY * first and small.mean() >= SHARE_CERTAIN
    is_zero = first >= UNTRAINED[0] and not late.any() and (loss.values == 0).mean() >= LEAST_SHARE
    if end < 0 or not (by_epochs or is_certain or is_zero):
        return
    at = int(np.argmax(loss.values < 2 * HARDLY_ANY * first if by_epochs else small))
    within = f" within {epochs:.0f} epochs" if epochs else ""
    facts = {
        "what": f"The training data are learned by heart{within}" + ("" if by_epochs else ", or they are trivial"),
        "while": "nothing is evaluated, so that nobody knows how good the model is on other data",
        "best": first,
        "keep": int(loss.steps[at]),
        "end": end,
    }
    yield beside("overfit", "problem", (loss,), {"series": loss.quoted, "accuracy": "", **facts}, int(loss.steps[at]))


def _declines(data: RunData) -> Iterator[Finding]:
    """Judge an accuracy that falls for good while the training loss falls far."""
    training = data.longest_loss
    if training is None or len(training) < FEWEST:
        return
    for accuracy in data.of(Kind.METRIC):
        if not is_accuracy(accuracy) or accuracy.role is Role.TRAINING or len(accuracy) < MANY:
            continue
        share = as_share(accuracy)
        at = int(share.argmax())
        after, steps = share[at:], accuracy.steps
        drop = float(share[at] - np.median(after[-max(3, len(after) // 5) :]))
        if len(after) < len(share) / 2 or drop < LEAST_FALL or _z(after) > -Z_APART:
            continue
        before = float(np.interp(steps[at], training.steps, training.values))
        end = float(np.median(training.values[-max(3, len(training) // 10) :]))
        if after[-max(3, len(after) // 5) :].max() > share[at] - drop / 2 or not 0 <= end < FALLEN_SINCE * before:
            continue
        facts = {
            "what": f"{accuracy.label} falls",
            "while": f"{training.quoted} still falls",
            "best": float(share[at]),
            "keep": int(steps[at]),
            "end": float(share[at] - drop),
        }
        yield _medium(accuracy, training, int(steps[min(at + 1, len(steps) - 1)]), facts)
        return


def _least_rise(best: float) -> float:
    """Return the rise of a loss above its best that says something.

    Of cross-entropies, half a nat is much, however large they are.

    >>> _least_rise(9.8), _least_rise(0.5), _least_rise(200.0)
    (0.5, 0.05, 20.0)
    """
    share = 0.1 * abs(best)
    return min(share, MUCH) if best < MOST_OF_ENTROPIES else share


def _sparse(data: RunData, validation: Series) -> Iterator[Finding]:
    """Judge a validation loss of too few values for a trend, such as one an epoch.

    Few values do not show their noise, so the loss must hardly fall back after the best, and the rise must be large.
    """
    training = data.partner(validation)
    values = validation.values
    if training is None or training.trend is None or not len(values) >= FEWEST:
        return
    at = int(values.argmin())
    best, after = float(values[at]), values[at:]
    rise = float(values[-1]) - best
    if len(after) < FEWEST - 1 or np.diff(after).min() < -FALLS_BACK * rise or rise <= RISE_SPARSE * abs(best):
        return
    if is_one_by_chance(values):
        return
    falls = _after(training, training.trend, _along(validation, training, at))
    if len(falls) < 4 or _z(falls) >= -2 or not _drops(falls):
        return
    yield from _since_best(data, validation, training)


def _between_evaluations(data: RunData, validation: Series) -> Iterator[Finding]:
    """Judge a validation loss by the training loss between its values.

    They are too few for a trend, or their rise is slow.
    """
    same = data.training_by_words.get((validation.kind, validation.stem), [])
    training = max((one for one in same if len(one) > 1), key=len, default=None)
    if training is None and (data.training_losses() or validation.trend is not None or not rises_alone(validation)):
        return
    if training is not None and not rises_while_training_falls(validation, training):
        return
    yield from _since_best(data, validation, training)


def _since_best(data: RunData, validation: Series, training: Series | None) -> Iterator[Finding]:
    """Yield that a validation loss has risen since its best value.

    Not if better metrics outweigh the rise.
    """
    at = int(validation.values.argmin())
    best, end, keep = float(validation.values[at]), float(validation.values[-1]), int(validation.steps[at])
    improves = _metric_rises(data, validation, keep)
    if improves and end - best <= OUTWEIGHS * abs(best):
        return
    facts = {
        "what": RISING,
        "while": "there is no training loss to compare with" if training is None else f"{training.quoted} still falls",
        "best": best,
        "keep": keep,
        "end": end,
        "accuracy": OVER_CONFIDENT if improves else "",
    }
    shown = (validation,) if training is None else (validation, training)
    yield beside("overfit", "problem", shown, {"series": validation.quoted, **facts}, int(validation.steps[at + 1]))


def _metric_rises(data: RunData, validation: Series, keep: int) -> bool:
    """Whether a held-out metric is better at the end than at the best loss.

    It may have few values.
    """
    metrics = [one for one in data.held_out(Kind.METRIC) if len(one) and one.worker == validation.worker]
    return any(
        one.values[-1] > float(np.interp(keep, one.steps, one.values)) + RISES * float(np.abs(one.values).max())
        for one in metrics
    )


def _by_heart(data: RunData, validation: Series, trend: Trend) -> Iterator[Finding]:
    """Judge a validation loss that stays while training data are learned by heart."""
    training = data.partner(validation)
    if training is None or training.trend is None:
        return
    learned, level = training.trend, trend.end
    half = trend.blocks[len(trend.blocks) // 2 :]
    if not 0 < learned.end < BY_HEART * level or float(training.values.min()) <= 0:
        return
    # A loss that still falls may come near the training loss later.
    at = np.flatnonzero(learned.blocks < BY_HEART * level)
    share = 1 - at[0] / len(learned.blocks)
    if share < LEAST_BY_HEART or half[0] - half.min() > 0.02 * level:
        return
    since = step_of_block(training, int(at[0]))
    if _metric_improves(data, validation, 0) and not _stays_poor(data, since):
        return
    facts = {
        "what": "The training data are learned by heart",
        "while": f"{training.quoted} is {learned.end:.2g}",
        "best": trend.best,
        "keep": int(validation.steps[_lowest(validation, trend)]),
        "end": level,
    }
    yield _medium(validation, training, since, facts)


def _stays_poor(data: RunData, since: int) -> bool:
    """Whether the accuracies of other data are poor, and hardly better since a step."""
    shares = [
        as_share(one)[one.steps >= since]
        for one in data.held_out(Kind.METRIC)
        if is_accuracy(one) and one.steps[-1] >= since
    ]
    return bool(shares) and all(
        one.max() <= POOR_SHARE and one[-1] - one[0] <= NO_GAIN * (1 - one[0]) for one in shares
    )


def _medium(validation: Series, training: Series, onset: int, facts: dict[str, object]) -> Finding:
    """Return a finding of medium confidence."""
    return beside(
        "overfit", "problem", (validation, training), {"series": validation.quoted, "accuracy": "", **facts}, onset
    )


def _alone(data: RunData, validation: Series, trend: Trend) -> Iterator[Finding]:
    """Judge a validation loss of a run without a training loss.

    A training that diverges looks the same, so confidence is medium at most.
    """
    after = trend.blocks[trend.best_at :]
    lowest = _lowest(validation, trend)
    keep, best = int(validation.steps[lowest]), float(validation.values[lowest])
    first, last = int(validation.steps[0]), int(validation.steps[-1])
    rise = trend.end - trend.best
    if last - keep < SHARE_ALONE * (last - first) or rise <= max(RISE_ALONE * abs(trend.best), 6 * trend.noise):
        return
    # A loss that was never better than at first has learned nothing to overfit.
    if len(after) <= LEAST_BLOCKS or _z(after) <= 2 or trend.start - trend.best <= 2 * trend.noise:
        return
    if _metric_improves(data, validation, keep):
        return
    low = trend.best_at + int(np.flatnonzero(after <= trend.best + max(2 * trend.noise, 0.1 * rise))[-1])
    onset = step_of_block(validation, low)
    facts = {
        "what": RISING,
        "series": validation.quoted,
        "while": "no metric improves, and there is no training loss to compare with",
        "best": best,
        "keep": keep,
        "end": trend.end,
        "accuracy": "",
    }
    shown = evidence(validation, f"{validation.label} {best:.4g} → {trend.end:.4g}", onset, last)
    yield Finding.of("overfit", "problem", "medium", onset, last, (validation.name,), facts, (shown,))


def _leaves_early_best(validation: Series) -> bool:
    """Whether a loss of many values falls at once, and then stays far above its best."""
    values = validation.values
    at = int(values.argmin())
    best = float(values[at])
    if len(values) < 2 * MANY or not 0 < at <= SOON * len(values) or not 0 < FELL_TO_BEST * best <= values[0]:
        return False
    later = values[int(2 * SOON * len(values)) :]
    return float(np.quantile(later, 0.02)) >= STAYS_ABOVE * best


def _lowest(series: Series, trend: Trend) -> int:
    """Return the index of the lowest value in the best block and its neighbours."""
    begin = max(0, (trend.best_at - 1) * trend.length)
    return begin + int(series.values[begin : (trend.best_at + 2) * trend.length].argmin())


def _z(blocks: Floats) -> float:
    return float(mann_kendall(blocks[None])[0])


def _after(series: Series, trend: Trend, step: int) -> Floats:
    """Return the blocks of a trend that begin at or after a step."""
    begins = series.steps[:: trend.length][: len(trend.blocks)]
    return trend.blocks[int(np.searchsorted(begins, step)) :]


def _along(validation: Series, training: Series, at: int) -> int:
    """Return the step of the training at a value of a validation."""
    return int(steps_along(validation, training)[at])


def _drops(blocks: Floats) -> bool:
    part = max(1, len(blocks) // 5)
    first, last = float(np.median(blocks[:part])), float(np.median(blocks[-part:]))
    return first - last > 0.05 * abs(first)


def _hardly_gains(metric: Series) -> bool:
    """Whether an accuracy is hardly better at its best than at first."""
    if not is_accuracy(metric):
        return False
    share = as_share(metric)
    return float(share.max() - share[0]) < NO_GAIN * (1 - float(share[0]))


def _metric_improves(data: RunData, validation: Series, onset: int) -> bool:
    for metric in data.held_out(Kind.METRIC):
        if metric.trend is not None and metric.worker == validation.worker and not _hardly_gains(metric):
            after = _after(metric, metric.trend, onset)
            if len(after) >= 4 and _z(after) < -2:
                return True
    return False
