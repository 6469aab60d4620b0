"""Rewards that never rise."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.detectors._show import from_to, unrewarded
from smdwidgets.diagnosis.detectors.diverged import without_bound
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import Trend, local_noise, mann_kendall
from smdwidgets.finding import Finding

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
#: Words of the whole reward of an answer, as trainers of language models log it.
_OF_WHOLE = frozenset({"reward", "rewards", "mean", "rlhf", "objective", "critic", "env", "train"})
#: Words of a share of episodes that reach their goal.
_OF_SUCCESS = frozenset({"success", "solved", "goal"})
#: Rise from the first reward to the least of the later ones, relative to it and to their range.
RISES_AT_ONCE = 0.5
#: Fewest rewards that show something, and the gain, relative to the first ones, that is none.
LEAST_POINTS, LEAST_DROP = 20, 0.03


def rewards(data: RunData) -> Iterator[Finding]:
    """Yield rewards that never rise."""
    for series in data.of(Kind.REWARD):
        if series.trend is None or len(series) < LEAST_POINTS:
            continue
        if why := _of_random_actions(data, series.trend):
            yield unrewarded(series, _facts_of_reward(series, series.trend, why))
        elif _always_below_untrained(series) or _never_gains(series):
            yield _never_better(series)
        elif (_never_rose(series.trend) and not _rose_at_once(series)) or _is_without_trend(series):
            yield _of_reward(series, series.trend, data)
    yield from _hardly_ever_succeeds(data)


def _never_rose(trend: Trend) -> bool:
    gain = trend.start - min(trend.best, trend.end)
    return gain <= max(LEAST_DROP * abs(trend.start), 2 * trend.wide_noise) and trend.z > -2


def _rose_at_once(series: Series) -> bool:
    """Whether a reward rises within its first values, and stays there.

    Blocks of the values do not show it.
    """
    first, later = float(series.values[0]), series.values[max(LEAST_POINTS // 4, len(series) // 10) :]
    least = float(later.min())
    return first < least and least - first > max(RISES_AT_ONCE * abs(least), RISES_AT_ONCE * float(np.ptp(later)))


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
            return unrewarded(series, facts)
    for rate in data.series:
        if why := _of_exploration(rate):
            facts["guessing"] = why
            return unrewarded(series, facts)
    is_sure = _stays_flat(series, data) or _earns_nothing(series, data)
    if not is_sure and _is_without_trend(series):
        # Where a critic diverges, that is the cause.
        is_sure = all(without_bound(one, data) is None for one in data.of(Kind.LOSS, Kind.UNDIRECTED))
    return unrewarded(series, facts, "medium" if is_sure else "low")


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
    return unrewarded(series, facts)


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
            yield unrewarded(series, facts)
            return


def _stays_flat(reward: Series, data: RunData) -> bool:
    """Whether the reward of a language model is no better at the end than at first.

    Such a model can answer before it is trained, so that rewards do not come late.
    """
    values = reward.values
    is_whole = _OF_WHOLE.issuperset(reward.words) and any(_OF_ANSWERS.intersection(one.words) for one in data.series)
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
    is_level = data.varies and all(float(np.ptp(one.values)) == 0 for one in rewards)
    first = float(reward.values[0])
    return is_level and first <= 0 and len(reward) >= (LEAST_EQUAL if first else LEAST_OF_NOTHING)


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
