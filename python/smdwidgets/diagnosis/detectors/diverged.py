"""A training loss that rises again and stays up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.arrays import Floats
from smdwidgets.diagnosis.detectors._evaluations import as_share, is_accuracy
from smdwidgets.diagnosis.detectors._falls import falls_elsewhere
from smdwidgets.diagnosis.detectors._show import evidence, step_of_block
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.trends import local_noise, mann_kendall
from smdwidgets.finding import Confidence, Finding

#: Fewest values of a loss that rises after it fell, and of one that rises from its first values on.
LEAST_POINTS, LEAST_FROM_START = 20, 8
#: Blocks after which a jump has this share of its height, and the end relative to the start that is beyond doubt.
ABRUPT, MOST_OF_IT, EXCEEDS = 3, 0.8, 1.3
#: Least rise in units of the noise near the best value.
AT_BEST = 2.0
#: Changes of the sign of the first values from which on a loss has none.
TURNS = 3
#: Share of the values that are the first ones, and of those that are the last ones.
FIRST, LAST = 0.05, 0.2
#: The last values relative to the first ones, and their rise in units of their noise.
RISE, CLEAR = 1.5, 6.0
#: Values relative to the first ones that no training that works has, and their share of all. A schedule that ends at 0
#: brings such a loss back.
FAR_ABOVE, LEAST_FAR_ABOVE = 1e3, 0.1
#: A loss relative to its first value that no first updates bring about which work, the logs that show it, and its end
#: from which on it has recovered.
EXPLODES, STRETCH, RECOVERED = 20.0, 4, 0.5
#: The last values relative to the first ones from which on the rise is beyond doubt.
SURE = 3.0
#: A loss that no untrained model has, the fall from it, and the level of the last values by the next ones, of a model
#: that the first updates have destroyed.
ABSURD, FALLS_BACK, STAYS = 1e9, 1e5, 0.75
#: A single first value that is between these shares of the last ones is an artefact of logging: an average over fewer
#: steps than it was divided by. A smaller one is beyond such a mistake.
ARTEFACT = 0.001, 0.1
#: Growth of a loss that need not fall: where a reward tells that nothing is gained, and without one.
UNBOUNDED, UNBOUNDED_ALONE = 100.0, 1e4
#: Size of such a loss relative to its first values that it exceeds for good since its onset.
OF_ONSET = 5.0
#: Fewest values of such a loss; few must grow as far as one without a reward.
FEWEST_UNBOUNDED = 10
#: The same where the loss of an adversary has fallen to this share of its first values: it always wins.
UNBOUNDED_BEATEN, BEATEN = 10.0, 0.01


#: Noise with its bursts relative to that without them, and the share of the run after the best of such a loss.
BURSTS, SHARE_LATER = 5.0, 0.5
#: Words of estimated returns, and their growth.
VALUES, GROWN = frozenset({"q", "qvalue", "qvalues", "values"}), 8.0


#: Fewest values of a loss that rises from a best near its beginning, the share of the run before it, the fall to it and
#: the rise from it relative to it, and the statistic of its trend since.
LEAST_SOON, SOON, FELL, ROSE, RISING = 15, 0.25, 0.1, 0.15, 3.0


#: Fewest values of a noisy loss, and the median of its last third and most of its values, relative to the first ones.
LEAST_OF_MANY, FAR_ABOVE_START, ABOVE_START = 100, 2.0, 1.3
#: Fewest values of a loss that rises from value to value, the last by the first one, the share of those that rise, and
#: the statistic of their trend.
LEAST_ALONG, ALONG, MOSTLY_RISES, CLEARLY_RISES = 8, 3.0, 0.75, 2.5


#: Fewest values of a loss and its accuracy that both lose what was learned: the accuracy at its best by that of the
#: last third, the loss of that third by its best, and an accuracy that had learned something.
LEAST_OF_BOTH, LOST, LOSS_BACK, HAD_LEARNED = 8, 2.5, 1.4, 0.3


#: Values that rise one after another at the end of a loss, the last by the best one, and the part of what was gained.
LAST_RISES, BY_BEST, OF_GAIN = 5, 4.0, 0.1


#: Fewest evaluations after the rise of a training loss that show that the model improves, and by how much they do.
LEAST_SINCE, BETTER = 3, 0.02


class _Rise(NamedTuple):
    onset: int
    best: float
    end: float
    confidence: Confidence
    how: str = "stays up"


def diverged(data: RunData) -> Iterator[Finding]:
    """Yield losses that end wholly above their best, or above their first values."""
    for series in data.training_losses():
        if falls_elsewhere(data, series):
            continue
        rise = (
            _at_first(series) or _all_along(series) or _after_best(series) or _from_start(series) or _far_above(series)
        )
        rise = rise or _beside_bursts(series) or _after_early_best(series, data) or _mostly_above(series, data)
        rise = rise or _forgets(series, data) or _explodes_at_once(series, data) or _rises_at_last(series, data)
        if rise is not None and not _only_data_change(data, series, rise.onset):
            yield _finding(series, rise)
    for series in data.of(Kind.UNDIRECTED, Kind.RL):
        rise = without_bound(series, data) or _of_values(series, data)
        if rise is not None:
            yield _finding(series, rise)


def _only_data_change(data: RunData, series: Series, onset: int) -> bool:
    """Whether evaluations improve to their end after a training loss has risen.

    Then a curriculum has come to harder samples, or another loss is logged.
    """
    for other in data.held_out(Kind.LOSS):
        before, since = other.values[other.steps <= onset], other.values[other.steps > onset]
        if other.stem != series.stem or not len(before) or len(since) < LEAST_SINCE:
            continue
        if (
            since.max() < before.min()
            and since[-1] <= (1 - BETTER) * since[0]
            and since[-1] <= since.min() * (1 + BETTER / 2)
        ):
            return True
    return False


def _at_first(series: Series) -> _Rise | None:
    """Return the rise of a loss that explodes with the first updates.

    It stays where it fell back to.
    """
    values = series.values
    if len(values) < LEAST_POINTS:
        return None
    top, rest = int(values[:3].argmax()), values[3:]
    early, end = float(np.median(rest[: len(rest) // 4])), float(np.median(rest[-len(rest) // 4 :]))
    if end <= 0 or values[top] < max(ABSURD, FALLS_BACK * end) or end < STAYS * early:
        return None
    how = f"is {values[top]:.2g} there, falls back and stays"
    return _Rise(int(series.steps[top]), float(values[top]), end, "medium", how)


def _after_best(series: Series) -> _Rise | None:
    """Return the rise of a loss above the best of its trend."""
    trend = series.trend
    if trend is None or len(series) < LEAST_POINTS or trend.end - trend.best <= 6 * trend.wide_noise:
        return None
    blocks, noise = trend.blocks, trend.wide_noise
    tail = blocks[-max(2, len(blocks) // 5) :]
    rise, learned = float(np.median(tail)) - trend.best, trend.start - trend.best
    if (
        tail.min() <= trend.best + 3 * noise
        or rise <= max(0.2 * abs(trend.best), 0.3 * learned)
        or trend.best_at >= len(blocks) - len(tail)
    ):
        return None
    # Values may have varied more at the best than they do at the end, as those of a policy that becomes sure.
    around = series.values[max(0, trend.best_at - 1) * trend.length : (trend.best_at + 2) * trend.length]
    if rise <= AT_BEST * local_noise(around):
        return None
    near = np.flatnonzero(blocks <= trend.best + max(3 * noise, rise / 4))
    # A loss whose targets move, as in Q-learning, may rise slowly to where it began.
    next_ones = blocks[near[-1] + 1 :][:ABRUPT]
    jumps = len(next_ones) > 0 and float(np.median(next_ones)) > trend.best + MOST_OF_IT * rise
    exceeds = trend.end > EXCEEDS * abs(trend.start)
    confidence: Confidence = "high" if rise > 0.6 * learned and (jumps or exceeds) else "medium"
    return _Rise(step_of_block(series, int(near[-1])), trend.best, trend.end, confidence)


def _from_start(series: Series) -> _Rise | None:
    """Return the rise of a loss whose only good values are its first ones.

    Blocks of such a loss may all contain the jump, so the values themselves are compared.
    """
    values = series.values
    # Most runs end here.
    if len(values) < LEAST_FROM_START or values[-1] <= values[0]:
        return None
    first, tail = values[: max(1, round(FIRST * len(values)))], values[-max(3, round(LAST * len(values))) :]
    start = _lowest(first)
    lowest, end = float(tail.min()), float(np.median(tail))
    if start == 0 or lowest - start <= (RISE - 1) * abs(start) or lowest - start <= CLEAR * local_noise(tail):
        return None
    # The sign of a policy's loss changes often.
    if np.count_nonzero(np.diff(np.sign(first))) >= TURNS and end <= float(first.max()):
        return None
    good = np.flatnonzero(values <= start + (lowest - start) / 4)
    if len(good) < 2 and ARTEFACT[0] * abs(end) < abs(start) < ARTEFACT[1] * abs(end):
        return None
    # Where only the first value is good, the second must show that the rise went on.
    if len(good) < 2 and np.median(values[1:4]) <= end:
        return None
    sure = len(good) > 1 and len(values) >= LEAST_POINTS and lowest > SURE * abs(start)
    return _Rise(int(series.steps[good[-1]]), start, end, "high" if sure else "medium")


def _all_along(series: Series) -> _Rise | None:
    """Return the rise of a loss that rises from value to value."""
    values = series.values
    if len(values) < LEAST_ALONG or not 0 < ALONG * values[0] < values[-1]:
        return None
    if (np.diff(values) > 0).mean() < MOSTLY_RISES or float(mann_kendall(values[None])[0]) < CLEARLY_RISES:
        return None
    return _Rise(int(series.steps[0]), float(values[0]), float(values[-1]), "medium", "rises from the first value on")


def _far_above(series: Series) -> _Rise | None:
    """Return the rise of a loss that was far above its first values for long.

    It may have come back.
    """
    values = series.values
    if len(values) < LEAST_POINTS:
        return None
    start = float(np.median(values[:3]))
    far = values > FAR_ABOVE * start
    if start <= 0 or far.mean() < LEAST_FAR_ABOVE or not (far[:-2] & far[1:-1] & far[2:]).any():
        return None  # single batches are no divergence
    return _Rise(
        int(series.steps[max(0, int(far.argmax()) - 1)]),
        start,
        float(values.max()),
        "high",
        f"was above {FAR_ABOVE:,.0f} times its first values for {far.mean():.0%} of the run",
    )


def _explodes_at_once(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of a loss far above that of an untrained model.

    The first updates bring it there, and it comes back for most of the run.
    """
    values = series.values
    if len(values) < LEAST_POINTS or values[0] <= 0 or data.of(Kind.REWARD, Kind.UNDIRECTED):
        return None
    above = values > EXPLODES * values[0]
    since = int(np.argmax(above))
    below = np.flatnonzero(~above[since:])
    stretch = int(below[0]) if len(below) else 0
    end = float(np.median(values[-len(values) // 3 :]))
    # A first value that is too small is an artefact of logging, and a loss that has halved has recovered.
    if not 0 < since <= SOON * len(values) or stretch < STRETCH or not RECOVERED * values[0] <= end <= values[0]:
        return None
    how = f"is above {EXPLODES:g} times its first value at {stretch} logs in succession"
    return _Rise(int(series.steps[since - 1]), float(values[0]), float(values.max()), "medium", how)


def _beside_bursts(series: Series) -> _Rise | None:
    """Return the rise of a loss that never comes back to its best.

    It also jumps again and again, which hides the rise.
    """
    trend = series.trend
    if trend is None or len(series) < LEAST_POINTS or trend.wide_noise <= BURSTS * trend.noise:
        return None
    learned, later = trend.start - trend.best, trend.blocks[trend.best_at + 1 :]
    tail = later[len(later) // 4 :]
    rise = float(np.median(tail)) - trend.best if len(tail) else 0.0
    if len(later) < SHARE_LATER * len(trend.blocks) or rise <= max(0.2 * abs(trend.best), 0.3 * learned):
        return None
    if tail.min() <= trend.best + max(rise / 2, 6 * trend.noise):
        return None
    near = np.flatnonzero(trend.blocks <= trend.best + rise / 2)
    return _Rise(step_of_block(series, int(near[-1])), trend.best, float(np.median(tail)), "medium")


def _after_early_best(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of a loss that fell at first, and has gone up ever since.

    It ends above its first value. Losses of estimated returns may.
    """
    values = series.values
    at = int(values.argmin()) if len(values) >= LEAST_SOON else 0
    if not 0 < at <= SOON * len(values) or data.of(Kind.REWARD):
        return None
    first, best = float(values[0]), float(values[at])
    tail = values[-max(3, len(values) // 5) :]
    if best <= 0 or first < (1 + FELL) * best or tail.min() <= max(first, (1 + ROSE) * best):
        return None
    if float(mann_kendall(values[None, at:])[0]) < RISING:
        return None
    return _Rise(int(series.steps[at]), best, float(np.median(tail)), "medium", "rises ever since")


def _mostly_above(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of a noisy loss that ends mostly far above its first values."""
    values = series.values
    if len(values) < LEAST_OF_MANY or data.of(Kind.REWARD):
        return None
    first, late = values[: max(5, len(values) // 100)], values[-len(values) // 3 :]
    start = float(np.median(first))
    if (
        start <= 0
        or float(np.median(late)) < FAR_ABOVE_START * start
        or (late > ABOVE_START * start).mean() < MOSTLY_RISES
    ):
        return None
    smooth = np.median(values[: len(values) // 10 * 10].reshape(10, -1), axis=1)
    onset = int(np.argmax(smooth > FAR_ABOVE_START * start)) * (len(values) // 10)
    return _Rise(
        int(series.steps[onset]), start, float(np.median(late)), "medium", "is mostly far above its first values"
    )


def _forgets(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of a loss beside an accuracy that is lost for good."""
    values = series.values
    if len(values) < LEAST_OF_BOTH or series.role.is_held_out or values.min() <= 0:
        return None
    at, tail = int(values.argmin()), values[-len(values) // 3 :]
    if at > len(values) / 2 or tail.min() < LOSS_BACK * values[at] or np.median(tail) < values[0]:
        return None
    for accuracy in data.of(Kind.METRIC):
        if not is_accuracy(accuracy) or not np.array_equal(accuracy.steps, series.steps):
            continue
        share = as_share(accuracy)
        if share.max() >= HAD_LEARNED and share[-len(share) // 3 :].max() * LOST < share.max():
            how = f"stays up, and {accuracy.quoted} falls from {share.max():.2g} to {share[-1]:.2g}"
            return _Rise(int(series.steps[at]), float(values[at]), float(np.median(tail)), "medium", how)
    return None


def _rises_at_last(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of a loss from value to value until the end, far above its best."""
    values = series.values
    if len(values) <= LAST_RISES:
        return None
    at = int(values.argmin())
    best, end = float(values[at]), float(values[-1])
    if len(values) - 1 - at < LAST_RISES or best <= 0 or data.of(Kind.REWARD) or end < BY_BEST * best:
        return None
    if (np.diff(values[-LAST_RISES - 1 :]) <= 0).any() or end - best < OF_GAIN * (float(values[:3].max()) - best):
        return None
    return _Rise(int(series.steps[at]), best, end, "medium", "rises from value to value until the end")


def _lowest(first: Floats) -> float:
    """Return the lowest of the first values; of many, a level that neighbours share."""
    if len(first) < 6:
        return float(first.min())
    levels = np.sort(np.lib.stride_tricks.sliding_window_view(first, 3), axis=1)[:, 1]
    return float(min(first[0], levels.min()))


def without_bound(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of a loss that grows without bound, such as a critic's.

    A critic's loss grows with the square of the rewards, so a run whose reward improves is no such run.
    """
    values = series.values
    if len(values) < FEWEST_UNBOUNDED or "loss" not in series.stem:
        return None
    part = max(3, len(values) // 5)
    size = np.abs(values)
    start, middle = float(np.median(size[:part])), float(np.median(size[len(size) // 2 - part // 2 :][:part]))
    lowest, end = float(size[-part:].min()), float(np.median(size[-part:]))
    rewards = [one for one in data.of(Kind.REWARD) if one.trend is not None]
    gains = any(map(_gains, rewards))
    beaten = not rewards and any(_vanishes(one) for one in data.of(Kind.UNDIRECTED) if one is not series)
    limit = UNBOUNDED if rewards and not gains else UNBOUNDED_BEATEN if beaten else UNBOUNDED_ALONE
    limit = limit if len(values) >= LEAST_POINTS else UNBOUNDED_ALONE
    # A loss that was nearly 0 for some of the first logs only has not grown.
    if gains or start == 0 or lowest <= max(limit * start, float(size[:part].max())) or end <= 2 * middle:
        return None
    onset = int(np.flatnonzero(size <= OF_ONSET * start)[-1])
    return _Rise(int(series.steps[onset]), start, end, "medium")


def _gains(reward: Series) -> bool:
    """Whether a reward ends beyond the noise of its start."""
    trend = reward.trend
    return trend is not None and trend.start - trend.end > 3 * trend.noise


def _of_values(series: Series, data: RunData) -> _Rise | None:
    """Return the rise of estimated returns that grow while the real ones do not."""
    values, rewards = series.values, [one for one in data.of(Kind.REWARD) if one.trend is not None]
    if len(values) < LEAST_POINTS or not rewards or not VALUES.intersection(series.words):
        return None
    if any(map(_gains, rewards)):
        return None
    part = max(3, len(values) // 5)
    start, middle = float(np.median(values[:part])), float(np.median(values[len(values) // 2 :][:part]))
    end, real = float(values[-part:].min()), max(float(np.abs(one.values).max()) for one in rewards)
    if start <= 0 or end < GROWN * start or end <= 1.2 * middle or end < 2 * real:
        return None
    return _Rise(int(series.steps[0]), start, end, "medium", "grows without bound, while the returns do not")


def _vanishes(series: Series) -> bool:
    """Whether a loss is nearly 0 at the end, but was not at the start."""
    if len(series) < LEAST_POINTS or "loss" not in series.stem:
        return False
    size = np.abs(series.values)
    part = max(3, len(size) // 5)
    return bool(size[-part:].max() < BEATEN * np.median(size[:part]))


def _finding(series: Series, rise: _Rise) -> Finding:
    last = int(series.steps[-1])
    # There is nothing to go back to if the loss rises from the first steps on.
    late = rise.onset - series.steps[0] > FIRST * (last - series.steps[0])
    back = f"Go back to a checkpoint before step {rise.onset:,}; r" if late else "R"
    facts = {"series": series.quoted, "best": rise.best, "end": rise.end, "back": back, "how": rise.how}
    shown = evidence(series, f"{series.label} {rise.best:.4g} → {rise.end:.4g}", rise.onset, last)
    return Finding.of("diverged", "problem", rise.confidence, rise.onset, last, (series.name,), facts, (shown,))
