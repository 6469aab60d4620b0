"""A learning rate that is 0, that jumps up, or that is too high at its peak."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import evaluations
from smdwidgets.diagnosis.detectors._falls import falls_on
from smdwidgets.diagnosis.detectors._rates import comes_back
from smdwidgets.diagnosis.detectors._show import beside, evidence, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.finding import Finding

LEAST_POINTS = 10
#: Share of the run at whose end a rate of 0 is reported.
ZERO = 0.2
#: Share of the largest rate that is as good as 0.
NOTHING = 1e-5
#: Share of the largest rate with which nothing moves, the share of the run that it may take at most, and the change of
#: a loss that shows it, relative to its level, or to its fall before.
TINY, MOST_TRAINED, UNMOVED, OF_FALL = 1e-3, 0.5, 0.02, 0.05
#: Factor within a few points that is a jump, not a warm-up.
JUMP = 5.0
#: Rises within the first part of the run are a warm-up.
WARM_UP = 0.1
WITHIN = 3
#: A jump that is smaller but raises the loss: its factor, the values of the loss on either side, and their rise.
SMALL_JUMP, BESIDE, LOSS_RISES = 1.5, 6, 0.1
#: Fewest values on either side that show that a loss goes on falling.
LEAST_BESIDE = 3
#: Fall of a loss, relative to its first value, before the rate was tiny.
FELL = 0.05
#: Fewest losses that show the best of a warm-up; fall until then relative to the first one, and the distance of all
#: later ones from the best, relative to that fall.
LEAST_LOSSES, LEARNED, CLEARLY = 30, 0.1, 0.1
#: Fewest evaluations whose best is the first one, by how much all others are worse, the rate at the first one relative
#: to its peak, and the rise of the training loss from its best before the peak.
FEWEST_EVALUATIONS, WORSE, BELOW_PEAK, RISES_WITH_RATE = 5, 1.15, 0.8, 1.3
#: Fewest rates that show a warm-up; how far its slopes may differ, relative to them, and the share of the planned steps
#: that is all of them.
LEAST_OF_WARM_UP, LINE, ALL_OF_IT = 5, 0.1, 0.9
#: A rate with which AdamW, which Transformers use, does not learn; the share of the run after which the loss must still
#: fall, its fall from there to its end, and the fewest losses.
FAR_TOO_LARGE, SOON, STILL_FALLS, LEAST_LARGE = 0.015, 0.2, 0.03, 20
#: A rate with which it learns nothing, whatever the first log shows: that may be far above the loss of guessing.
HOPELESS = 0.1
#: Fewest evaluations at which a slow loss falls.
LEAST_OF_SLOW = 5
#: A rate that is absurd for it, of which the first log may show a little less, and the fall of a loss that is little
#: then.
ABSURD, FALLS_LITTLE = 0.028, 0.2
#: An accuracy of guessing at most, the best of all by their median, and a loss by that of guessing.
MOST_GUESSED, AS_GUESSED, BELOW_GUESS = 0.55, 1.6, 0.97
#: Range of a loss, relative to its first value, that has not moved.
SAME = 0.005
#: A rate that plain gradient descent does not bear, either, and words of an adaptive optimizer.
BEYOND_PLAIN, _ADAPTIVE = 2.0, frozenset({"adam", "adamw"})
#: A rate that is high for it, a loss relative to its first value, and the share of the logs at which it is above that.
HIGH, ABOVE, FOR_LONG = 0.01, 1.02, 0.12
#: A loss relative to its first value that is far above it, the share of the logs that are a large part, and a rate
#: relative to its peak that has come down.
TWICE, LARGE_PART, HALVED = 2.0, 0.3, 0.5
#: Largest rate that is far too small. Updates of weights of about 0.01 are then lost even in single precision.
FAR_TOO_SMALL = 3e-8
#: The same of losses that stay within this share of their level, and the fewest values of each.
TOO_SMALL, STILL, SHOW_IT = 2e-6, 0.02, 3
#: The same of evaluations beside losses of batches, which differ more: share of the level, and the fewest of each.
STANDS, SHOW_IT_BESIDE_NOISE = 5e-4, 5
#: Values before the jump whose rate must fall, so that it is neither a warm-up nor a cycle.
DECAYS = 5


def learning_rate(data: RunData) -> Iterator[Finding]:
    """Yield rates of 0, and jumps that may explain what follows."""
    for series in data.of(Kind.LEARNING_RATE):
        yield from _warm_up(data, series)
        yield from _far_too_small(data, series)
        clear = list(_far_too_large(data, series)) or list(_above_first(data, series))
        clear = clear or list(_only_guesses(data, series))
        yield from clear or _beyond_use(data, series)
        peaks: list[Finding] = []
        if len(series) >= LEAST_POINTS:
            yield from _zero(data, series)
            jumps = [] if comes_back(data) else list(_jump(data, series))
            yield from jumps or _small_jump(data, series)
            peaks = list(_peak(data, series))
        yield from peaks or _peak_of_evaluations(data, series)


def _warm_up(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a warm-up that is as long as the planned training."""
    planned = data.settings.get("max_steps")
    values, steps = series.values, series.steps
    if isinstance(planned, bool) or not isinstance(planned, int) or len(values) < LEAST_OF_WARM_UP:
        return
    top = int(values.argmax())
    slopes = np.diff(values[: top + 1]) / np.diff(steps[: top + 1])
    is_line = top > 0 and float(np.ptp(slopes)) <= LINE * float(np.median(slopes))
    if not is_line or steps[top] < ALL_OF_IT * planned or not 0 <= values[0] < values[top] / 2:
        return
    facts = {
        "series": series.quoted,
        "numbers": f"{from_to(series)}; the training was planned with {planned:,} steps",
        "reached": int(steps[top]),
    }
    yield beside("warm_up_too_long", "problem", (series,), facts)


def _far_too_small(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a learning rate with which no optimizer moves the weights."""
    largest = float(series.values.max(initial=0))
    limit = TOO_SMALL if _stands_still(data) else FAR_TOO_SMALL
    # A rate that comes to nothing at once had another one before the first log.
    comes_to_nothing = float(np.median(series.values)) <= NOTHING * largest if len(series) else False
    if len(series) < LEAST_OF_WARM_UP or not 0 < largest <= limit or comes_to_nothing:
        return
    facts = {
        "what": f"The learning rate is {largest:.2g} at most",
        "detail": f"{from_to(series)}; usual rates are above 1e-07",
        "or_stopped": ", such as a number of the wrong unit",
    }
    yield beside("rate_too_low", "problem", (series,), facts)


def _stands_still(data: RunData) -> bool:
    """Whether the losses of training and evaluation stay at the same level.

    A rate that is usual for a trained model is too low for one that has learned nothing.
    """
    losses = [one for one in (*data.training_losses(), *data.held_out(Kind.LOSS)) if len(one) >= SHOW_IT]
    held_out = [one for one in losses if one.role.is_held_out]
    if not held_out or data.of(Kind.REWARD):
        return False
    if all(_spread(one) <= STILL for one in losses):
        return True
    # The samples of an evaluation are the same each time, those of the batches are not.
    return all(_spread(one) <= STANDS and len(one) >= SHOW_IT_BESIDE_NOISE for one in held_out)


def _spread(loss: Series) -> float:
    """Return the range of a loss relative to its level."""
    return float(np.ptp(loss.values)) / (abs(float(np.median(loss.values))) or 1.0)


def _far_too_large(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a rate with which the loss stays where the first updates left it.

    Transformers use AdamW.
    """
    loss = data.longest_loss
    rate = float(series.values.max(initial=0))
    # A plain optimizer of a language model may have a rate of 1 and more.
    is_adam = data.is_of_transformers or (rate < 1 and any("ppl" in one.words for one in data.series))
    if not is_adam or rate < FAR_TOO_LARGE or loss is None or len(loss) < LEAST_LARGE or data.of(Kind.REWARD):
        return
    values, begin = loss.values, int(SOON * len(loss))
    soon, end = float(np.median(values[begin : 2 * begin])), float(np.median(values[-begin:]))
    falls = FALLS_LITTLE if rate >= ABSURD else STILL_FALLS
    others = [one.values for one in data.held_out(Kind.LOSS) if len(one) and one.stem == loss.stem]
    # A small loss has been learned, and a few prompts take large rates.
    is_hopeless = rate >= HOPELESS and end >= (1 - STILL_FALLS) * soon
    learned = 0.0 if is_hopeless else 0.5 * float(values[0])
    if end < max((1 - falls) * soon, learned, 1.0):
        return
    if any(one[-1] < (1 - falls) * one[min(1, len(one) - 1)] for one in others):
        return
    # Too large a rate makes a loss swing. One that falls at every evaluation is slow.
    if any(len(one) >= LEAST_OF_SLOW and (np.diff(one) < 0).all() for one in others):
        return
    detail = f"{from_to(loss)}, {soon:.3g} after {SOON:.0%} of the run"
    facts = {
        "what": f"{loss.quoted} stays where the first updates left it, with a learning rate of {rate:.2g}",
        "detail": f"{detail}; usual rates of AdamW are below 0.001",
    }
    yield beside("rate_too_high", "problem", (loss, series), facts)
    stays = {"series": loss.quoted, "detail": detail, "guessing": "", "what": "training loss", "verb": "fall"}
    yield beside("not_learning", "problem", (loss,), stays, int(loss.steps[begin]))


def _only_guesses(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a rate that no optimizer bears, beside evaluations that only guess.

    The first logged loss may be that of a model which the first updates have destroyed, so that the loss falls.
    """
    rate = float(np.median(series.values)) if len(series) else 0.0
    if rate < BEYOND_PLAIN or data.of(Kind.REWARD):
        return
    for one in evaluations(data):
        share, losses = one.share, one.loss.values
        if min(len(share), len(losses)) < LEAST_OF_SLOW or not 0 < float(np.median(share)) <= MOST_GUESSED:
            continue
        chance = float(np.median(share))
        if share.max() <= AS_GUESSED * chance and losses.min() >= -BELOW_GUESS * math.log(chance):
            numbers = f"{from_to(one.loss)}, {from_to(one.accuracy)}; {from_to(series)}"
            facts = {"what": f"Evaluations only guess, with a learning rate of {rate:.2g}", "detail": numbers}
            yield beside("rate_too_high", "problem", (one.loss, one.accuracy, series), facts)
            stays = {
                "series": one.loss.quoted,
                "detail": numbers,
                "guessing": "",
                "what": "loss of evaluations",
                "verb": "fall below that of guessing",
            }
            yield beside("not_learning", "problem", (one.loss,), stays)
            return


def _beyond_use(data: RunData, series: Series) -> Iterator[Finding]:
    """Yield a rate far above the usual ones.

    A few prompts or a large batch may bear it, so that it is a fault only where something suffers.
    """
    rate = float(series.values.max(initial=0))
    words = [frozenset(one.words) for one in data.series]
    # Programs that clip updates of policies use Adam.
    clips = all(any(both <= one for one in words) for both in ({"approx", "kl"}, {"clip", "fraction"}))
    is_adam = data.is_of_transformers or clips or not _ADAPTIVE.isdisjoint(series.words)
    limit = FAR_TOO_LARGE if is_adam else BEYOND_PLAIN
    if len(series) < LEAST_POINTS or rate < limit or _never_moves(data):
        return
    usual = "of adaptive optimizers are below 0.001" if is_adam else "are below 1"
    facts = {"what": f"The learning rate is {rate:.2g}", "detail": f"{from_to(series)}; usual rates {usual}"}
    yield beside("rate_too_high", "problem", (series,), facts, int(series.steps[np.argmax(series.values >= limit)]))


def _never_moves(data: RunData) -> bool:
    """Whether all losses stay where they were, as no large rate leaves them.

    The part of boxes is at its largest value as long as no box is near its target.
    """
    losses = [one for one in data.training_losses() if len(one) >= LEAST_POINTS]
    return bool(losses) and all(float(np.ptp(one.values)) <= SAME * abs(float(one.values[0])) for one in losses)


def _above_first(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a loss that is far above its first value for a large part of the run.

    It comes down with the rate only.
    """
    loss = data.longest_loss
    if loss is None or len(loss) < LEAST_LARGE or data.of(Kind.REWARD) or loss.values[0] <= 0 or not len(series):
        return
    is_high = data.is_of_transformers and float(series.values.max()) >= HIGH
    times, part = (ABOVE, FOR_LONG) if is_high else (TWICE, LARGE_PART)
    above = loss.values > times * loss.values[0]
    since = int(np.argmax(above))
    falls = float(series.values[-1]) < HALVED * float(series.values.max())
    below = np.flatnonzero(~above[since:])
    stretch = int(below[0]) if len(below) else 0  # in succession: single batches may be above
    if stretch < part * len(loss) or since > len(loss) / 4 or not falls:
        return
    facts = {
        "what": f"{loss.quoted} is more than {times:g} times its first value at {stretch} of {len(loss)} logs in succession, and falls with the rate only",
        "detail": f"{from_to(loss)}, up to {loss.values.max():.3g}; {from_to(series)}",
    }
    yield beside("rate_too_high", "problem", (loss, series), facts, int(loss.steps[since]))


def _zero(data: RunData, series: Series) -> Iterator[Finding]:
    largest = float(series.values.max(initial=0))
    steps = series.steps
    if largest == 0 and any(map(falls_on, data.training_losses())):
        return  # a small rate that is printed with few digits
    first = _below(series, NOTHING * largest)
    if first is None or steps[-1] - steps[first] < ZERO * (steps[-1] - steps[0]):
        first = _below(series, TINY * largest)
        if first is None or not _nothing_moves(data, series, first):
            return
    onset, last = int(steps[first]), int(steps[-1])
    when = f"since step {onset:,}" if first else "at every step"
    if series.values[-1]:
        when = f"compared with its largest value of {largest:.3g} ({series.values[-1]:.2g}) {when}"
    facts = {"series": series.quoted, "when": when, "count": len(series) - first}
    yield Finding.of(
        "rate_zero",
        "warning" if first else "problem",
        "medium" if first else "proof",
        onset,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} is 0 {when}", onset, last),),
    )


def _below(series: Series, limit: float) -> int | None:
    """Return since when a series is at or below a limit up to its end."""
    above = np.flatnonzero(series.values > limit)
    first = int(above[-1]) + 1 if len(above) else 0
    return first if first < len(series) else None


def _nothing_moves(data: RunData, series: Series, first: int) -> bool:
    """Whether the losses, which fell before, stay where they are for most of the run."""
    begin, end = int(series.steps[0]), int(series.steps[-1])
    onset = int(series.steps[first])
    losses = [one for one in data.training_losses() if len(one) >= LEAST_POINTS]
    if onset - begin > MOST_TRAINED * (end - begin) or not losses:
        return False
    for loss in losses:
        before, after = loss.values[loss.steps < onset], loss.values[loss.steps >= onset]
        if not len(before) or len(after) < LEAST_POINTS:
            return False
        third = len(after) // 3
        soon, late = float(np.median(after[:third])), float(np.median(after[-third:]))
        fall = float(before[0]) - soon
        if abs(late - soon) > max(UNMOVED * abs(soon), OF_FALL * fall) or fall < FELL * abs(float(before[0])):
            return False
    return True


def _peak(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a loss that was lowest during the warm-up of the rate.

    The full rate has raised it for good.
    """
    loss = data.longest_loss
    top = int(series.values.argmax())
    if loss is None or len(loss) < LEAST_LOSSES or not 0 < series.values[0] < series.values[top] / JUMP:
        return
    smooth = np.convolve(loss.values, np.ones(WITHIN) / WITHIN, "valid")
    at = int(smooth.argmin())
    best, start = float(smooth[at]), float(loss.values[0])
    step = int(loss.steps[at + 1])
    if step > series.steps[top] or start - best < LEARNED * abs(start) or best <= 0:
        return
    later = smooth[int(np.searchsorted(loss.steps, series.steps[top])) :]
    if len(later) < len(smooth) / 2 or later.min() - best < CLEARLY * (start - best):
        return
    rate, end = float(np.interp(step, series.steps, series.values)), float(np.median(later[-len(later) // 3 :]))
    onset = int(loss.steps[min(at + WITHIN, len(loss) - 1)])
    facts = {
        "series": loss.quoted,
        "best": best,
        "end": end,
        "numbers": f"{series.quoted} {rate:.3g} at the best, {series.values[top]:.3g} at step {series.steps[top]:,}",
        "rate": rate,
    }
    yield beside("peak_rate_too_high", "problem", (loss, series), facts, onset)


def _peak_of_evaluations(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge evaluations that are never again as good as during the warm-up.

    The training loss rises with the rate, too.
    """
    loss = data.longest_loss
    if loss is None or min(len(loss), len(series)) < FEWEST_EVALUATIONS:
        return
    top = int(series.values.argmax())
    for held_out in data.held_out(Kind.LOSS):
        if len(held_out) < FEWEST_EVALUATIONS:
            continue
        first, later = float(held_out.values[0]), held_out.values[1:]
        when = int(held_out.steps[0])
        rate = float(np.interp(when, series.steps, series.values))
        if not 0 < first * WORSE < later.min() or when >= series.steps[top] or rate > BELOW_PEAK * series.values[top]:
            continue
        smooth = (
            np.convolve(loss.values, np.ones(WITHIN) / WITHIN, "valid") if len(loss) > LEAST_LOSSES else loss.values
        )
        at = np.searchsorted(loss.steps[: len(smooth)], series.steps[top])
        best, peak = float(smooth[: at + 1].min()), float(smooth[at:].max(initial=0))
        if peak < RISES_WITH_RATE * best or best <= 0:
            continue
        facts = {
            "series": held_out.quoted,
            "best": first,
            "end": float(held_out.values[-1]),
            "numbers": f"{series.quoted} {rate:.3g} at the best, {series.values[top]:.3g} at step {series.steps[top]:,}; "
            f"{loss.quoted} {best:.3g} → {peak:.3g}",
            "rate": rate,
        }
        yield beside("peak_rate_too_high", "problem", (held_out, loss, series), facts, int(held_out.steps[1]))
        return


def _small_jump(data: RunData, series: Series) -> Iterator[Finding]:
    """Judge a rate that decays and jumps back once, if the loss jumps, too.

    So does a schedule that begins again.
    """
    values, steps = series.values, series.steps
    with np.errstate(all="ignore"):
        jumps = np.flatnonzero(values[1:] >= SMALL_JUMP * values[:-1]) + 1
    jumps = jumps[(values[jumps - 1] > 0) & (steps[jumps] - steps[0] > WARM_UP * (steps[-1] - steps[0]))]
    if len(jumps) != 1 or jumps[0] < DECAYS:
        return
    at = int(jumps[0])
    before = values[at - DECAYS : at]
    loss = data.longest_loss
    if not (np.diff(before) <= 0).all() or before[0] == before[-1] or loss is None:
        return
    onset, last = int(steps[at]), int(steps[-1])
    rise = _rise_of(loss, onset)
    if rise is None:
        return
    risen = _risen(rise, onset, last)
    facts = {
        "series": series.quoted,
        "before": float(values[at - 1]),
        "after": float(values[at]),
        "until": "",
        "back": _restarted(rise),
    }
    jump = evidence(series, f"{series.label} {values[at - 1]:.3g} → {values[at]:.3g}", onset, last)
    names, shown = (series.name, loss.name), (jump, *risen.evidence)
    yield Finding.of("rate_rise", "problem", "medium", onset, last, names, facts, shown)
    yield risen


class _Rise(NamedTuple):
    """A loss, and its levels before and after a step at which it rises."""

    loss: Series
    level: float
    risen: float


def _rise_of(loss: Series, onset: int) -> _Rise | None:
    """Return the rise of a loss at a step, or None."""
    around = _around(loss, onset)
    if around is None:
        return None
    earlier, later = around
    rise = _Rise(loss, float(np.median(earlier)), float(np.median(later)))
    least = max(LOSS_RISES * abs(rise.level), 3 * local_noise(earlier))
    return rise if rise.risen - rise.level > least else None


def _restarted(rise: _Rise) -> str:
    """Return the rest of a sentence about a rate that jumps back."""
    return f"; {rise.loss.quoted} {rise.level:.3g} → {rise.risen:.3g}. After a restart, often the state of schedule and optimizer is lost"


def _risen(rise: _Rise, onset: int, last: int) -> Finding:
    """Return the finding for a loss that rises with the rate."""
    loss = rise.loss
    title = f"{loss.quoted} rises at step {onset:,}, where the learning rate jumps"
    facts = {"series": loss.quoted, "title": title, "level": rise.level, "top": rise.risen}
    shown = evidence(loss, f"{loss.label} {rise.level:.3g} → {rise.risen:.3g}", onset, last)
    return Finding.of("spike", "warning", "medium", onset, last, (loss.name,), facts, (shown,))


def _goes_on_falling(data: RunData, onset: int) -> bool:
    """Whether the loss is lower after a step than before.

    Then a warm-up ends there.
    """
    loss = data.longest_loss
    around = None if loss is None else _around(loss, onset, LEAST_BESIDE)
    return around is not None and float(around[1].max()) < float(np.median(around[0]))


def _around(loss: Series, onset: int, least: int = BESIDE) -> tuple[Floats, Floats] | None:
    """Return some values of a loss before and after a step.

    None if there are fewer than ``least``.
    """
    here = int(np.searchsorted(loss.steps, onset))
    earlier, later = loss.values[max(0, here - BESIDE) : here], loss.values[here : here + BESIDE]
    return (earlier, later) if min(len(earlier), len(later)) >= least else None


def _jump(data: RunData, series: Series) -> Iterator[Finding]:
    values = series.values
    before, after = values[:-WITHIN], values[WITHIN:]
    jumps = np.flatnonzero((after >= JUMP * before) & (before > 0)) + WITHIN
    span = int(series.steps[-1] - series.steps[0])
    jumps = jumps[series.steps[jumps] - series.steps[0] > WARM_UP * span]
    if not len(jumps):
        return
    at = int(jumps[0])
    # The first of the few points that are already high.
    low = values[at - WITHIN]
    at = next(one for one in range(at - WITHIN + 1, at + 1) if values[one] >= JUMP * low or one == at)
    high = float(values[at])
    # It is back where it is nearer to what it was before, by ratio.
    back = at + np.flatnonzero(values[at:] ** 2 < low * high)
    onset, last = int(series.steps[at]), int(series.steps[back[0] - 1] if len(back) else series.steps[-1])
    if low == series.values[0] and _goes_on_falling(data, onset):
        return
    loss = data.longest_loss
    # Schedules with restarts go back to their highest rate, and those that climb again do so slowly.
    is_higher = high >= JUMP * values[at - 1] and high >= SMALL_JUMP * float(values[:at].max())
    rise = _rise_of(loss, onset) if loss is not None and is_higher and not len(back) else None
    if rise is not None and np.median(rise.loss.values[-BESIDE:]) > max(
        (rise.level + rise.risen) / 2, rise.loss.values[0]
    ):
        rise = None  # it diverges, which another finding says
    returns = f" → {values[back[0]]:.3g}" if len(back) else ""
    facts = {
        "series": series.quoted,
        "before": float(low),
        "after": high,
        "until": f" and is back at step {series.steps[back[0]]:,}" if len(back) else "",
        "back": returns if rise is None else _restarted(rise),
    }
    if rise is not None:
        yield _risen(rise, onset, last)
    yield Finding.of(
        "rate_rise",
        "problem",
        "medium",
        onset,
        last,
        (series.name,),
        facts,
        (evidence(series, f"{series.label} {low:.3g} → {values[at]:.3g}", onset, last),),
    )
