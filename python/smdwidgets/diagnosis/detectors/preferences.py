"""Trainings on preferences, from what trainers log of chosen and rejected answers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._evaluations import is_share_of_pairs
from smdwidgets.diagnosis.detectors._show import beside, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData
from smdwidgets.finding import Finding

__all__ = ["preferences"]

#: Fewest logs of a series, and logs that are the last ones.
LEAST_LOGS, LOGS = 12, 5
#: Fall of the logarithm of the probability of preferred answers, relative to its first value, and the nats that it is
#: at least.
LESS_LIKELY, LEAST_NATS = 3.0, 20.0
#: The same fall in units of the noise, which is no chance.
CLEARLY = 3.0
#: A rate that is absurd for training on preferences, a share of pairs in its last third that are hardly ordered right,
#: and the reward of preferred answers that is lost at least.
ABSURD_RATE, HARDLY_ORDERED, LEAST_LOST = 2e-3, 0.65, 0.5
#: Fewest logs of a share of pairs that are ordered right, its mean that is hardly more than chance, also in the last
#: third, and the fall of the loss beside it.
LEAST_ACCURACIES, BY_CHANCE, FALLS = 100, 0.6, 0.05
#: Fewest evaluations of such a share, and the fall of their loss.
LEAST_EVALUATIONS, FALLS_OF_EVALUATIONS = 5, 0.02


def preferences(data: RunData) -> Iterator[Finding]:
    """Yield preferred answers that become unlikely, and pairs ordered by chance."""
    yield from _less_likely(data)
    yield from _by_rate(data)
    yield from _by_chance(data)


def _less_likely(data: RunData) -> Iterator[Finding]:
    """Judge a training on preferences that makes the preferred answers unlikely, too."""
    for series in data.series:
        words = frozenset(series.words)
        if len(series) < LEAST_LOGS or series.role.is_held_out or not ("chosen" in words and words & {"logps", "logp"}):
            continue
        best_at = int(series.values[: len(series) // 2].argmax())
        best = float(series.values[best_at])
        end = float(np.median(series.values[-LOGS:]))
        margins = [one for one in data.of(Kind.METRIC) if one.words[-1] in ("margins", "margin")]
        if not margins or best >= 0 or end > min(LESS_LIKELY * best, best - LEAST_NATS):
            continue
        # Batches of few pairs differ far.
        noise = float(np.std(np.diff(series.values))) / math.sqrt(2)
        if float(np.median(series.values[:LOGS])) - end < CLEARLY * noise:
            continue
        onset = min(best_at + 1, len(series) - 1)
        facts = {
            "series": series.quoted,
            "best": best,
            "end": end,
            "keep": int(series.steps[best_at]),
            "beside": f"{from_to(margins[0])}; the preferred answers become unlikely, too: often the learning rate is too high, "
            "or beta too small",
        }
        yield beside("metric_falls", "problem", (series, margins[0]), facts, int(series.steps[onset]))
        return


def _by_rate(data: RunData) -> Iterator[Finding]:
    """Judge preferred answers that become less likely with an absurd rate.

    The pairs are hardly ordered better: the model moves away from all answers.
    """
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one)]
    shares = [one for one in data.of(Kind.METRIC) if is_share_of_pairs(one) and not one.role.is_held_out]
    if not data.is_of_transformers or not rates or rates[0].values.max() < ABSURD_RATE:
        return
    if not shares or len(shares[0]) < LEAST_LOGS:
        return
    others = [one for one in data.held_out(Kind.METRIC) if is_share_of_pairs(one) and len(one)]
    if min(float(one.values[-len(one) // 3 :].mean()) for one in (shares[0], *others)) > HARDLY_ORDERED:
        return
    for series in data.series:
        if series.role.is_held_out or len(series) < LEAST_LOGS or not {"rewards", "chosen"} <= {*series.words}:
            continue
        first, end = (float(np.median(some)) for some in (series.values[:LOGS], series.values[-LOGS:]))
        noise = float(np.std(np.diff(series.values))) / math.sqrt(2)
        if end > min(-LEAST_LOST, first - CLEARLY * noise):
            continue
        best_at = int(series.values[: len(series) // 2].argmax())
        rate = float(rates[0].values.max())
        share = others[0] if others else shares[0]
        facts = {
            "what": f"The learning rate is {rate:.2g}, and the preferred answers become less likely",
            "detail": f"{from_to(series)}, {from_to(share)}; usual rates of preference training are below 0.0003",
        }
        yield beside("rate_too_high", "problem", (rates[0], series, shares[0]), facts)
        lost = {
            "series": series.quoted,
            "best": float(series.values[best_at]),
            "end": end,
            "keep": int(series.steps[best_at]),
            "beside": f"{from_to(share)}: the pairs are hardly ordered better",
        }
        onset = int(series.steps[min(best_at + 1, len(series) - 1)])
        yield beside("metric_falls", "problem", (series, shares[0]), lost, onset)
        return


def _by_chance(data: RunData) -> Iterator[Finding]:
    """Judge a training that orders its pairs hardly better than chance to the end."""
    loss = data.longest_loss
    for series in data.of(Kind.METRIC):
        if not is_share_of_pairs(series) or series.role.is_held_out or len(series) < LEAST_ACCURACIES or loss is None:
            continue
        late = series.values[-len(series) // 3 :]
        if max(float(series.values.mean()), float(late.mean())) > BY_CHANCE:
            continue
        part = max(1, len(loss) // 10)
        first, last = float(np.median(loss.values[:part])), float(np.median(loss.values[-part:]))
        if first - last > FALLS * abs(first):
            continue
        facts = {
            "series": series.quoted,
            "late": float(late.mean()),
            "numbers": f"{from_to(loss)}, {len(series):,} logs",
        }
        yield beside("preferences_by_chance", "problem", (series, loss), facts)
        return
    yield from _by_chance_at_evaluations(data)


def _by_chance_at_evaluations(data: RunData) -> Iterator[Finding]:
    """Judge evaluations that order their pairs hardly better than chance to the end.

    They have more pairs than a batch, and none that is learned by heart, so that few of them suffice.
    """
    for series in data.held_out(Kind.METRIC):
        losses = [one for one in data.held_out(Kind.LOSS) if one.stem == ("loss",) and one.role is series.role]
        if not is_share_of_pairs(series) or len(series) < LEAST_EVALUATIONS or not losses or not len(losses[0]):
            continue
        values = losses[0].values
        # Pairs that are never ordered right are equal for the model, or the wrong way round.
        if not 1 - BY_CHANCE <= series.values.min() <= series.values.max() <= BY_CHANCE:
            continue
        if values.min() < (1 - FALLS_OF_EVALUATIONS) * values[0] or values[0] <= 0:
            continue
        late = series.values[-len(series) // 3 :]
        facts = {
            "series": series.quoted,
            "late": float(late.mean()),
            "numbers": f"{from_to(losses[0])}, {len(series):,} evaluations",
        }
        yield beside("preferences_by_chance", "problem", (series, losses[0]), facts)
        return
