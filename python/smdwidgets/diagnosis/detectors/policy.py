"""Faults of reinforcement learning with language models, from what trainers log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._show import beside, course, from_to
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise, mann_kendall
from smdwidgets.finding import Finding, Level
from smdwidgets.naming.policy import Quantity, quantity

__all__ = ["policy"]

#: Fewest logs of a series, logs in succession that show a fault, and of groups with equal rewards.
LEAST_LOGS, LOGS, EQUAL_LOGS = 12, 5, 10
#: Logs of a running mean, and logs that are the first ones.
_MEAN, _FIRST = 5, 10
#: Statistic of the trend of a reward that rises, however noisy it is.
CLEARLY = 2.0
#: The same where a quantity may change within the first ones, and is not noisy.
_SOON = 3
EQUAL_GROUPS, NO_SPREAD = 0.8, 1e-6
COLLAPSED, COLLAPSED_BELOW, EXPLODED = 0.2, 0.05, 3.0
KL_GROWTH, KL_LEAST, KL_LARGE = 5.0, 0.1, 2.0
LENGTH_GROWTH, TRUNCATED = 2.0, 0.3
#: Shares of truncated answers, at first and at the end, with which all of them have grown to the limit.
FEW_TRUNCATED, ALL_TRUNCATED = 0.5, 0.9
#: Growth of their lengths that shows it: where most answers reached the limit from the first log on, little is left.
GROWN_TO_LIMIT = 1.5
#: Share of truncated answers at first, and from which on no answer ends, for at least that part of the run.
SOME_END, NONE_ENDS, FOR_HALF = 0.75, 0.999, 0.5
#: Share of the logs of that part at which it is so; at the others, at least `ALL_TRUNCATED` are truncated.
NEARLY_EVERY = 0.9
#: Gain of a reward relative to its best, and share of the later logs with exactly that best, of a task that is solved.
GAINED, AT_BEST = 0.2, 0.5
#: A part of a reward that is lost, relative to its first value, and that value relative to its noise.
LOST, BEYOND_NOISE = 0.2, 4.0
#: Divergence of a whole answer from the reference, in nats, beside which an entropy of nearly 0 is a collapse.
FAR_FROM_REFERENCE = 30.0
#: Divergence of a whole answer that has little in common with the reference, and its cost by the reward.
FAR_AWAY, HARDLY_COSTS = 50.0, 0.1
#: Entropy relative to its first value of a policy that takes the same action every time, the least first value, the
#: share of the run within which that is too early, and the divergence of an update that is far too large.
DECIDED, LEAST_ENTROPY, SOON, LARGE_UPDATE = 0.05, 0.1, 0.25, 0.5
#: Share of the updates that are so large after the first ones, and the share of the run within which such a policy has
#: lost most of its entropy too early.
OFTEN, FIRST_UPDATES, SOON_OF_OFTEN = 0.3, 3, 0.4
#: Divergence of an update that changes nothing.
UNMOVED = 1e-4
#: Divergence of an update that changes little, and logs of an entropy that stays near its first value, relative to it.
HARDLY_MOVES, MANY_LOGS, KEPT = 2e-3, 25, 0.03
#: Logs of large updates, their median divergence in the second half, and the share of samples that is clipped.
MANY_UPDATES, TOO_FAR, MOST_CLIPPED = 20, 0.2, 0.4
#: A median divergence that is too far however few samples are clipped: those of a policy that is sure stay as they are,
#: while the others change by orders of magnitude; and the share of samples that is clipped then.
FAR_TOO_FAR, SOME_CLIPPED = 0.5, 0.1
#: The same of few logs: a divergence of the last ones that no clipping allows.
FEW_UPDATES, FAR_AT_ONCE = 6, 1.0
#: By quantity of the sampler: whether a value is a mismatch, and the healthy range in words.
_SAMPLER: Mapping[Quantity, tuple[Callable[[Floats], NDArray[np.bool_]], str]] = {
    Quantity.SAMPLER_LOG_GAP: (lambda values: np.abs(values) > 0.1, "below 0.1"),
    Quantity.SAMPLER_GAP: (lambda values: np.abs(values) > 0.03, "below 0.03"),
    Quantity.SAMPLER_CORRELATION: (lambda values: values < 0.95, "above 0.95"),
    Quantity.SAMPLER_RATIO: (lambda values: (values < 0.8) | (values > 1.25), "0.8 to 1.25"),
}


class _Reward(NamedTuple):
    """Whether the reward rose beyond its noise, and ends below its best."""

    rises: bool
    is_below_best: bool


def policy(data: RunData) -> Iterator[Finding]:
    """Yield what the series of such a training show."""
    yield from _stuck(data)
    yield from _never_an_advantage(data)
    decided = list(_decided_soon(data))
    yield from decided
    yield from _too_far(data, bool(decided))
    by_quantity: dict[Quantity, list[Series]] = {}
    for series in data.series:
        one = quantity(series.name) if len(series) >= LEAST_LOGS and not series.role.is_held_out else None
        if one is not None:
            by_quantity.setdefault(one, []).append(series)
    if not by_quantity:
        return
    for kind, (is_wrong, healthy) in _SAMPLER.items():
        for series in by_quantity.get(kind, ()):
            at = _until_end(is_wrong(_smooth(series.values)), LOGS)
            if at is not None:
                facts = {"series": series.quoted, "value": float(series.values[at:].mean()), "healthy": healthy}
                yield _finding("sampler_mismatch", series, at, facts, "high")
    reward = _reward(data)
    if reward is None:
        return  # a policy of another kind has no reward
    yield from _advantage(by_quantity, data)
    is_far = any(np.median(one.values[-LOGS:]) > FAR_FROM_REFERENCE for one in by_quantity.get(Quantity.KL, ()))
    yield from _entropy(by_quantity.get(Quantity.ENTROPY, []), reward, is_far)
    yield from _divergence(by_quantity.get(Quantity.KL, []), reward)
    yield from _unbounded(by_quantity, data)
    yield from _length(by_quantity)
    yield from _lost_parts(data)


def _updates(data: RunData, least: int) -> tuple[list[Series], list[Series]]:
    """Return the divergence of each update of PPO, and the share that is clipped."""
    named = [(one, frozenset(one.words)) for one in data.series if len(one) >= least]
    return (
        [one for one, words in named if {"approx", "kl"} <= words or "approxkl" in words],
        [one for one, words in named if {"clip", "fraction"} <= words or "clipfrac" in words],
    )


def _keeps_its_entropy(data: RunData) -> bool:
    """Whether the entropy of a policy stays near its first value."""
    for series in data.of(Kind.RL, Kind.UNDIRECTED):
        if "entropy" in series.words and len(series) >= MANY_LOGS and series.values[0]:
            left = series.values / series.values[0]
            return bool(left.min() >= 1 - KEPT and left.max() <= 1 + KEPT)
    return False


def _too_far(data: RunData, has_decided: bool) -> Iterator[Finding]:
    """Judge updates of PPO that change the policy beyond its clipping.

    A policy that has lost its entropy changes so in every update, which is no news.
    """
    divergences, clipped = _updates(data, FEW_UPDATES)
    if not divergences or not clipped:
        return
    if len(divergences[0]) < MANY_UPDATES:
        far = _until_end(divergences[0].values >= FAR_AT_ONCE, 3)
        if far is not None and len(divergences[0]) - far >= 3:
            numbers = f"{divergences[0].quoted} is {divergences[0].values[far:].min():.2g} or more at the last {len(divergences[0]) - far} updates"
            yield _finding("policy_steps_large", divergences[0], far, {"numbers": numbers}, "medium")
        return
    late, share = (float(np.median(one.values[len(one) // 2 :])) for one in (divergences[0], clipped[0]))
    is_far = late > FAR_TOO_FAR and SOME_CLIPPED < share <= 1 and not has_decided
    if is_far or (late > TOO_FAR and MOST_CLIPPED < share <= 1):
        begins = np.flatnonzero(divergences[0].values > TOO_FAR / 2)
        numbers = f"{divergences[0].quoted} {late:.2g}, and {share:.0%} of the samples are clipped, in the second half"
        yield _finding("policy_steps_large", divergences[0], int(begins[0]), {"numbers": numbers}, "medium")


def _stuck(data: RunData) -> Iterator[Finding]:
    """Judge by how much updates change a policy that is trained by PPO."""
    divergences, clipped = _updates(data, LEAST_LOGS)
    named = [(one, frozenset(one.words)) for one in data.series if len(one) >= LEAST_LOGS]
    for series in divergences:
        later = np.abs(series.values[len(series) // 10 :])
        if not clipped or np.median(clipped[0].values) > 0:
            continue
        is_unmoved = later.max() <= 10 * UNMOVED and np.median(later) <= UNMOVED and clipped[0].values.max() <= 0
        if not is_unmoved and not (np.median(later) <= HARDLY_MOVES and _keeps_its_entropy(data)):
            continue
        losses = [one for one, words in named if {"value", "loss"} <= words]
        size = f"; {losses[0].quoted} {np.median(losses[0].values):.2g}" if losses else ""
        facts = {"series": series.quoted, "value": float(np.median(later)), "value_loss": size}
        yield _finding("policy_stuck", series, 0, facts, "medium")
        return


def _never_an_advantage(data: RunData) -> Iterator[Finding]:
    """Judge few logs of which each has groups of equal rewards only."""
    for series in data.series:
        if not LOGS <= len(series) < LEAST_LOGS or quantity(series.name) is not Quantity.EQUAL_GROUPS:
            continue
        if series.values.min() >= 1:
            facts = {"series": series.quoted, "value": 1.0, "gradient": ""}
            yield _finding("zero_advantage", series, 0, facts, "medium")
            return


def _decided_soon(data: RunData) -> Iterator[Finding]:
    """Judge a policy that large updates have made certain before it had learned."""
    updates = [one for one in data.series if {"approx", "kl"} <= set(one.words)]
    if not updates or not _rewards(data):
        return
    for entropy in data.of(Kind.RL, Kind.UNDIRECTED):
        size = np.abs(entropy.values)
        if "entropy" not in entropy.stem or len(size) < LEAST_LOGS:
            continue
        later = np.abs(updates[0].values[FIRST_UPDATES:])
        often = len(later) > 0 and float((later >= LARGE_UPDATE).mean()) >= OFTEN
        decided, soon = (COLLAPSED, SOON_OF_OFTEN) if often else (DECIDED, SOON)
        at = _until_end(_smooth(size) < decided * size[0], len(size) - int(soon * len(size)))
        until = entropy.steps[at] if at is not None else 0
        if size[0] <= LEAST_ENTROPY:  # it had collapsed before the log begins
            at, until = (0, entropy.steps[-1]) if size.max() <= LEAST_ENTROPY else (None, 0)
        largest = float(updates[0].values[updates[0].steps <= until].max(initial=0))
        if at is not None and largest >= LARGE_UPDATE:
            facts = {
                "series": entropy.quoted,
                "before": float(size[0]),
                "after": float(np.median(size[-LOGS:])),
                "growth": 0.0,
            }
            yield _finding("entropy_collapse", entropy, at, facts, "medium")
            return


def _smooth(values: Floats) -> Floats:
    """Return the median of each value and those before it, up to five."""
    padded = np.concatenate([np.repeat(values[:1], _MEAN - 1), values])
    smooth: Floats = np.median(np.lib.stride_tricks.sliding_window_view(padded, _MEAN), axis=1)
    return smooth


def _until_end(holds: NDArray[np.bool_], count: int) -> int | None:
    """Return since when something holds up to the end, at ``count`` places or more.

    >>> _until_end(np.array([True, False, True, True]), 2), _until_end(np.array([True, False]), 1)
    (2, None)
    """
    misses = np.flatnonzero(~holds)
    begin = int(misses[-1]) + 1 if len(misses) else 0
    return begin if len(holds) - begin >= count else None


def _rewards(data: RunData) -> list[Series]:
    """Return the rewards of the training that have enough values."""
    return [one for one in data.of(Kind.REWARD) if len(one) >= LEAST_LOGS and not one.role.is_held_out]


def _reward(data: RunData) -> _Reward | None:
    every = _rewards(data)
    if not every:
        return None
    series = min(every, key=lambda one: (len(one.name), one.name))
    values = series.values
    means = np.convolve(values, np.ones(_MEAN) / _MEAN, "valid")
    noise = max(local_noise(values), 1e-9)
    first, last, best = float(means[0]), float(means[-1]), float(means.max())
    spread = max(2 * noise, 0.02 * abs(best))
    rises = last - first > spread or (last > first and float(mann_kendall(values[None])[0]) > CLEARLY)
    return _Reward(rises, best - last > spread / 2)


def _advantage(by_quantity: Mapping[Quantity, list[Series]], data: RunData) -> Iterator[Finding]:
    for kind in (Quantity.EQUAL_GROUPS, Quantity.REWARD_SPREAD):
        for series in by_quantity.get(kind, ()):

            def are_equal(values: Floats, kind: Quantity = kind) -> NDArray[np.bool_]:
                return values >= EQUAL_GROUPS if kind is Quantity.EQUAL_GROUPS else np.abs(values) < NO_SPREAD

            # Few groups may differ now and then.
            at = _until_end(are_equal(_smooth(series.values)), EQUAL_LOGS)
            if at is None:
                continue
            before = np.flatnonzero(~are_equal(series.values[:at]))
            at = int(before[-1]) + 1 if len(before) else 0
            norms = data.of(Kind.GRADIENT_NORM)
            begin = int(series.steps[at])
            later = norms[0].values[norms[0].steps >= begin] if norms else np.empty(0)
            gradient = f"; norm of the gradient {float(np.median(later)):.2g}" if len(later) else ""
            facts = {"series": series.quoted, "value": float(np.median(series.values[at:])), "gradient": gradient}
            level: Level = "note" if _is_solved(data, by_quantity.get(Quantity.ENTROPY, []), begin) else "warning"
            yield _finding("zero_advantage", series, at, facts, "high", level)
            return


def _is_solved(data: RunData, entropies: list[Series], begin: int) -> bool:
    """Whether groups have equal rewards because every answer is right.

    The mean reward has risen, and is exactly its best at most logs. A policy that always gives the same answer may have
    such a reward, too, but no entropy.
    """
    reward = min(_rewards(data), key=lambda one: (len(one.name), one.name))
    best = float(reward.values.max())
    later = reward.values[reward.steps >= begin]
    rose = best - float(np.median(reward.values[:_SOON])) > GAINED * abs(best)
    decides = all(float(np.median(one.values[-LOGS:])) >= COLLAPSED_BELOW for one in entropies)
    return rose and decides and len(later) > 0 and float(np.isclose(later, best).mean()) >= AT_BEST


def _entropy(every: list[Series], reward: _Reward, is_far: bool) -> Iterator[Finding]:
    for series in every:
        values = _smooth(series.values)
        before, after = float(np.median(series.values[:_FIRST])), float(np.median(series.values[-LOGS:]))
        if before <= 0:  # a loss, which is the entropy's negative
            continue
        facts = {"series": series.quoted, "before": before, "after": after, "growth": after / before}
        low = _until_end((values < COLLAPSED * before) & (values < COLLAPSED_BELOW), LOGS)
        high = _until_end(values > EXPLODED * before, LOGS)
        if low is not None and (reward.is_below_best or is_far):
            yield _finding("entropy_collapse", series, low, facts, "medium")
        elif high is not None and not reward.rises:
            yield _finding("entropy_explosion", series, high, facts, "medium")


def _divergence(every: list[Series], reward: _Reward) -> Iterator[Finding]:
    if reward.rises:
        return
    for series in every:
        values = _smooth(series.values)
        before, after = float(np.median(series.values[:_FIRST])), float(np.median(series.values[-LOGS:]))
        grown = (values > KL_GROWTH * abs(before)) & (values > KL_LEAST)
        at = _until_end(grown | (values > KL_LARGE), LOGS)
        if at is not None:
            facts = {"series": series.quoted, "before": before, "after": after}
            yield _finding("kl_without_gain", series, at, facts, "medium")
            return


def _unbounded(by_quantity: Mapping[Quantity, list[Series]], data: RunData) -> Iterator[Finding]:
    """Judge a divergence that costs hardly anything of the reward."""
    rewards = _rewards(data)
    costs = [one for one in data.series if {"non", "score", "reward"} <= set(one.words) and len(one)]
    if not rewards or not costs:
        return
    size = max((float(np.abs(np.median(one.values[-LOGS:]))) for one in rewards if one not in costs), default=0.0)
    cost = float(np.abs(np.median(costs[0].values[-LOGS:])))
    falls = [
        one
        for one in by_quantity.get(Quantity.ENTROPY, ())
        if np.median(one.values[-LOGS:]) < np.median(one.values[:_SOON])
    ]
    for series in by_quantity.get(Quantity.KL, ()):
        before, after = float(np.median(series.values[:_SOON])), float(np.median(series.values[-LOGS:]))
        at = _until_end(_smooth(series.values) > max(FAR_AWAY, KL_GROWTH * abs(before)), LOGS)
        if at is not None and falls and cost < HARDLY_COSTS * size:
            facts = {
                "series": series.quoted,
                "before": before,
                "after": after,
                "numbers": f"{from_to(costs[0])}, {from_to(falls[0])}",
            }
            yield _finding("kl_unbounded", series, at, facts, "medium")
            return


def _length(by_quantity: Mapping[Quantity, list[Series]]) -> Iterator[Finding]:
    cut = by_quantity.get(Quantity.TRUNCATED, [])
    for series in by_quantity.get(Quantity.LENGTH, ()):
        # Lengths may grow from the second log on.
        before, after = float(series.values[:_SOON].min()), float(np.median(series.values[-LOGS:]))
        at = _until_end(_smooth(series.values) > LENGTH_GROWTH * before, LOGS) if before > 0 else None
        if at is not None:
            share = max((_share_since(one, int(series.steps[at])) for one in cut), default=0.0)
        elif after >= GROWN_TO_LIMIT * float(np.median(series.values[:_FIRST])) and (
            every := [(one, since) for one in cut if (since := _all_truncated_since(one)) is not None]
        ):
            # The limit may be less than twice the first length.
            one, since = every[0]
            at = min(int(np.searchsorted(series.steps, one.steps[since])), len(series) - 1)
            share = _share_since(one, int(one.steps[since]))
        elif after > before and (never := next((one for one in cut if _none_ends(one)), None)) is not None:
            at = min(int(np.searchsorted(series.steps, _since_none_ends(never))), len(series) - 1)
            share = 1.0
        else:
            continue
        if share >= TRUNCATED:
            facts = {"series": series.quoted, "before": before, "after": after, "share": share}
            yield _finding("length_explosion", series, at, facts, "medium")
            return


def _share_since(cut: Series, begin: int) -> float:
    """Return the share of truncated answers at the end, if it is known from a step on."""
    later = cut.values[cut.steps >= begin][-LOGS:]
    return float(np.median(later)) if len(later) else 0.0


def _none_ends(cut: Series) -> bool:
    """Whether some answers end at first, and none for most of the run."""
    late = cut.values[int((1 - FOR_HALF) * len(cut)) :]
    if len(late) < LOGS or float(np.median(cut.values[:_SOON])) > SOME_END:
        return False
    return float(np.mean(late >= NONE_ENDS)) >= NEARLY_EVERY and float(late.min()) >= ALL_TRUNCATED


def _since_none_ends(cut: Series) -> int:
    """Return the step since which nearly all answers are truncated."""
    return int(cut.steps[int(np.flatnonzero(cut.values < ALL_TRUNCATED)[-1]) + 1])


def _all_truncated_since(cut: Series) -> int | None:
    """Return since when nearly all answers are truncated that were not at first."""
    if float(cut.values[:_SOON].min()) > FEW_TRUNCATED:
        return None
    return _until_end(_smooth(cut.values) >= ALL_TRUNCATED, _FIRST)


def _lost_parts(data: RunData) -> Iterator[Finding]:
    """Judge parts of a reward of which one is lost while the whole rises."""
    every = _rewards(data)
    parts = [one for one in every if "rewards" in one.words]
    whole = min((one for one in every if one not in parts), key=lambda one: len(one.name), default=None)
    if whole is None or len(parts) < 2 or not np.median(whole.values[-LOGS:]) > np.median(whole.values[:_SOON]):
        return
    for part in parts:
        smooth = _smooth(part.values)
        best_at = int(smooth[: len(smooth) // 2].argmax())
        best, end = float(smooth[best_at]), float(np.median(part.values[-LOGS:]))
        noise = max(map(local_noise, np.array_split(part.values, 2)))
        is_lost = best > 0 and end <= LOST * best and smooth[-len(smooth) // 4 :].max() <= best / 2
        if not is_lost or best - end < BEYOND_NOISE * noise:
            continue
        onset = int(part.steps[best_at + int(np.argmax(smooth[best_at:] <= best / 2))])
        facts = {"series": part.quoted, "best": best, "end": end, "keep": int(part.steps[best_at])}
        facts["beside"] = f"{from_to(whole)}, which other parts of the reward raise"
        yield beside("metric_falls", "problem", (part, whole), facts, onset)
        return


def _finding(
    kind: str, series: Series, at: int, facts: Mapping[str, object], confidence: str, level: Level = "warning"
) -> Finding:
    first, last = int(series.steps[at]), int(series.steps[-1])
    shown = course(series, first, last)
    return Finding.of(kind, level, confidence, first, last, (series.name,), facts, (shown,))  # type: ignore[arg-type]
