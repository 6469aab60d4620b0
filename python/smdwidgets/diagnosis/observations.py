"""Facts about a run that speak for one cause and against another.

An observation holds, does not hold, or is unknown, because what it needs was not recorded. Unknown is never taken for
"does not hold".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from smdwidgets.diagnosis.detectors.guessing import never_below_guessing
from smdwidgets.diagnosis.detectors.learning_rate import HIGH, NOTHING
from smdwidgets.diagnosis.detectors.norms_add_up import growing_norm
from smdwidgets.diagnosis.detectors.schedules import begins_again
from smdwidgets.diagnosis.detectors.unbounded import falls_without_bound, unbounded_losses
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.tensor_gradients import are_reset
from smdwidgets.diagnosis.tensor_layers import layers, median_of, training
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.finding import Finding

__all__ = ["OBSERVATIONS", "Observation", "Observations"]

#: Height above its first values from which on a loss has exploded, and below which it has stayed level.
EXPLODED, LEVEL = 2.0, 1.2
#: Share of its first level by which a loss that is learned from has fallen at least.
LEARNED = 0.1
#: Share of its very first value that a loss which is learned at once falls below.
LEARNED_AT_ONCE = 0.4
#: Times its first value by which a loss rises that only comes back, and the fewest values of it.
RISEN, FEWEST = 4.0, 20
#: Values before a loss is lost that tell whether it rose.
SHORTLY = 5
#: Steps of a training that are few.
FEW_STEPS = 50
#: Fewest evaluations, one at each value of the training loss, that show that steps are epochs.
LEAST_EPOCHS = 8
#: A loss after the first updates relative to its first value that only a rate which is too high gives.
AT_ONCE = 1.2
#: Share of the run that is most of it.
MOSTLY = 0.5
#: Relative updates that are large, and the share of the saves at which they must be.
LARGE, LARGE_SHARE = 0.05, 0.1
#: Share of the run for which a learning rate is as good as 0.
GONE = 0.5
#: Loss at the end relative to that at the lowest learning rate which has been undone.
UNDONE = 1.2
#: Updates that count as the first ones.
FIRST_UPDATES = 5
#: Deviation of a batch far outside relative to the usual one, the share of such batches, and that of all others.
FAR_OUTSIDE, FEW_OUTSIDE, ALIKE = 100.0, 0.05, 3.0
#: Share of the run at its end that counts as its end.
LATE = 0.15


class Observation(NamedTuple):
    """A fact with the sentence that says it.

    Attributes:
        name: identifier, as the table of causes names it.
        holds: None if it is unknown.
        text: the fact if it holds.
    """

    name: str
    holds: bool | None
    text: str


def _explodes(data: RunData) -> bool | None:
    """Whether a training loss was ever far above its first values, or lost."""
    loss = data.longest_loss
    if loss is None or not len(loss) + len(loss.lost_steps):
        return None
    if len(loss.lost_steps):
        return True
    first = float(np.median(loss.values[:3]))
    return bool(np.max(loss.values) > first + (EXPLODED - 1) * abs(first))


def _has_few_steps(data: RunData) -> bool | None:
    """Whether a training is too short to show that its rate is too high.

    The first updates of adaptive optimizers are large, and a loss that is learned later has not fallen either.
    """
    loss = data.longest_loss
    if loss is None or not len(loss):
        return None
    # Where each value has its evaluation, steps are epochs, of which each has many updates.
    are_epochs = any(
        np.array_equal(one.steps, loss.steps) for one in data.held_out(Kind.LOSS) if len(one) >= LEAST_EPOCHS
    )
    return bool(loss.steps[-1] - loss.steps[0] < FEW_STEPS and not are_epochs and not _explodes(data))


def _only_returns(loss: Series) -> bool:
    """Whether a loss rises far above its first value, and ends no lower than that.

    One that was above it for most of the run may end a little lower.
    """
    if len(loss) < FEWEST or len(loss.lost_steps):
        return False
    first, size = float(loss.values[0]), abs(float(loss.values[0]))
    late = float(np.median(loss.values[-(len(loss) // 5) :]))
    is_above = float((loss.values > first).mean()) > MOSTLY
    least = first - (1 - LEARNED_AT_ONCE if is_above else LEARNED) * size
    return bool(loss.values.max() > first + RISEN * size and late > least)


def _loss_only_returns(data: RunData) -> bool | None:
    """Whether the training loss rises far above its first value, and comes back."""
    loss = data.longest_loss
    return None if loss is None else _only_returns(loss)


def _norms_grow(data: RunData) -> bool:
    return growing_norm(data) is not None


def _stays_level(data: RunData) -> bool | None:
    """Whether a training loss never left its first level, neither up nor down."""
    loss = data.longest_loss
    if loss is None or len(loss) < 10 or len(loss.lost_steps):
        return None
    # The first value of an untrained network may be far above guessing.
    values = loss.values[len(loss) // 20 + 1 :]
    middle = float(np.median(values))
    spread = max((LEVEL - 1) * abs(middle), 6 * local_noise(values))
    return bool(values.max() <= middle + spread and values.min() >= middle - spread)


def _lost_without_rise(data: RunData) -> bool | None:
    """Whether a training loss is lost although it was not above its first value."""
    loss = data.longest_loss
    if loss is None or len(loss) < 2 or not len(loss.lost_steps):
        return None if loss is None else False
    before = loss.values[loss.steps < loss.lost_steps[0]]
    return bool(len(before) > 1 and before[-SHORTLY:].max() <= before[0] + (LEVEL - 1) * abs(before[0]))


def _learns(data: RunData) -> bool | None:
    """Whether a training loss fell, or a metric improved, against its noise."""
    known = [series for series in data.training_losses() if series.trend is not None]
    for series in known:
        trend = series.trend
        assert trend is not None
        if falls_without_bound(series) is not None or never_below_guessing(data, series):
            continue
        if _only_returns(series):
            continue
        fall = trend.start - trend.end
        # From its first value a loss of an untrained network falls to that of guessing, too, but hardly to half of it.
        first = float(series.values[0])
        if fall > max(LEARNED * abs(trend.start), 3 * trend.wide_noise) or trend.end < LEARNED_AT_ONCE * first:
            return True
    return False if known else None


def _unbounded(data: RunData) -> bool | None:
    """Whether a training loss falls without bound."""
    losses = unbounded_losses(data)
    return bool(losses) if losses or data.training_losses() else None


def _large_updates(data: RunData) -> bool | None:
    """Whether updates are large for the weights at many saves."""
    updates = median_of(layer.least for layer in layers(data))
    known = updates[~np.isnan(updates)]
    return bool((known > LARGE).mean() > LARGE_SHARE) if len(known) else None


def _large_at_first(data: RunData) -> bool | None:
    """Whether the first updates of most layers are large for their weights."""
    updates = median_of(layer.least for layer in layers(data))[:FIRST_UPDATES]
    finite = updates[~np.isnan(updates)]
    return bool(np.median(finite) > LARGE) if len(finite) >= FIRST_UPDATES else None


def _batches_differ(data: RunData) -> bool | None:
    """Whether the statistics of the inputs differ from save to save."""
    inputs = [one for one in training(data, "input") if len(one) > 1]
    if not inputs:
        return None
    return any(bool((np.diff(one["l2"]) != 0).any()) for one in inputs)


def _rate_is_gone(data: RunData) -> bool | None:
    """Whether the learning rate is 0 for most of the run, after it was not."""
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one) >= FEWEST]
    if not rates:
        return None
    return any(GONE <= (one.values < NOTHING * one.values.max()).mean() < 1 for one in rates)


def _rate_begins_again(data: RunData) -> bool | None:
    """Whether a schedule begins again in the middle."""
    rates = data.of(Kind.LEARNING_RATE)
    return any(begins_again(one) is not None for one in rates) if rates else None


def _rises_at_once(data: RunData) -> bool | None:
    """Whether a loss rises with the first updates of a rate that is high for AdamW."""
    rates, loss = [one for one in data.of(Kind.LEARNING_RATE) if len(one)], data.longest_loss
    if not rates or loss is None or not len(loss):
        return None
    highest = max(float(one.values.max()) for one in rates)
    early = loss.values[: max(1, len(loss) // 10)]
    return bool(data.is_of_transformers and highest >= HIGH and early.max() > AT_ONCE * loss.values[0] > 0)


def _rate_undoes(data: RunData) -> bool | None:
    """Whether a run ends at a high learning rate, and was better at a low one."""
    rates = [one for one in data.of(Kind.LEARNING_RATE) if len(one) >= FEWEST]
    losses = [one for one in data.held_out(Kind.LOSS) if len(one) >= FEWEST // 2]
    if not rates or not losses:
        return None
    rate, loss = rates[0], min(losses, key=lambda one: one.name)
    later = rate.values[len(rate) // 10 :]
    low = int(rate.steps[len(rate) // 10 + int(later.argmin())])
    near = float(np.interp(low, loss.steps, loss.values))
    end = float(np.median(loss.values[-2:]))
    return bool(rate.values[-1] > 0.5 * later.max() and later.min() < 0.1 * later.max() and end > UNDONE * near)


def _batches_stop_changing(data: RunData) -> bool | None:
    """Whether batches differ at first and are the same at the end."""
    inputs = [one for one in training(data, "input") if len(one) > 1]
    if not inputs:
        return None
    changes = [np.diff(one["l2"]) != 0 for one in inputs]
    return any(bool(one.any()) for one in changes) and all(not one[-1] for one in changes)


def _batches_without_values(data: RunData) -> bool | None:
    """Whether all values of some batches are equal while other batches vary."""
    inputs = [one for one in training(data, "input") if len(one) > 1]
    if not inputs:
        return None
    return any(2 <= np.count_nonzero(one["std"] == 0) < 0.5 * len(one) for one in inputs)


def _batches_far_outside(data: RunData) -> bool | None:
    """Whether few batches vary far more than all others, which are alike."""
    inputs = [one for one in training(data, "input") if len(one) >= FEWEST]
    if not inputs:
        return None
    for one in inputs:
        deviations = one["std"][np.isfinite(one["std"])]
        usual = float(np.median(deviations)) if len(deviations) else 0.0
        far = deviations > FAR_OUTSIDE * usual
        if usual > 0 and 1 <= far.sum() <= FEW_OUTSIDE * len(deviations) and deviations[~far].max() < ALIKE * usual:
            return True
    return False


def _rises_with_targets(data: RunData) -> bool | None:
    """Whether the targets of a regression grow to the end, and the error less."""
    begin, end = data.extent
    grown = any(one.id == "targets_grow" and one.last >= end - LATE * (end - begin) for one in data.checks)
    return grown or (False if data.checked else None)


def _of_policy(data: RunData) -> bool | None:
    """Whether the loss shows no progress, such as that of a policy or a critic."""
    return any(one.id == "policy_loss" for one in data.checks) or (False if data.checked else None)


def _rate_rises(data: RunData) -> bool | None:
    """Whether the learning rate is ever above its first value."""
    rates = [series for series in data.of(Kind.LEARNING_RATE) if len(series)]
    return any(bool(one.values.max() > one.values[0]) for one in rates) if rates else None


def _only_scalars(data: RunData) -> bool:
    return not data.tensors


_READ: dict[str, tuple[Callable[[RunData], bool | None], str]] = {
    "loss_explodes": (_explodes, "the loss rose to more than twice its first values, or was lost"),
    "few_steps": (_has_few_steps, "the training has few steps"),
    "loss_only_returns": (_loss_only_returns, "the loss rose far above its first value, and has only come back"),
    "norms_grow_smoothly": (_norms_grow, "the norm of the gradient grows, and hardly differs between batches"),
    "loss_stays_level": (_stays_level, "the loss never left its first level"),
    "lost_without_rise": (_lost_without_rise, "the loss was not above its first value before it was lost"),
    "loss_learns": (_learns, "the training loss fell"),
    "loss_unbounded": (_unbounded, "the training loss falls without bound"),
    "large_updates": (_large_updates, "updates are large at many saves"),
    "updates_large_at_first": (_large_at_first, "the first updates of most layers are large"),
    "batches_differ": (_batches_differ, "batches differ from step to step"),
    "batches_stop_changing": (_batches_stop_changing, "batches are the same from some step on"),
    "batches_without_values": (_batches_without_values, "all values of some batches are equal"),
    "gradients_reset": (are_reset, "gradients of successive steps differ"),
    "batches_far_outside": (_batches_far_outside, "few batches vary far more than all others, which are alike"),
    "loss_rises_with_targets": (_rises_with_targets, "the targets grow, and the error less than they do"),
    "loss_of_policy": (_of_policy, "the value of the loss shows no progress, as that of a policy or an energy"),
    "only_scalars": (_only_scalars, "no tensors were recorded"),
    "rate_rises": (_rate_rises, "the learning rate rises"),
    "rate_is_gone": (_rate_is_gone, "the learning rate is 0 for most of the run"),
    "rate_begins_again": (_rate_begins_again, "the learning rate has the same values as from the first step on"),
    "loss_rises_at_once": (_rises_at_once, "the loss rises with the first updates, at a rate that is high for AdamW"),
    "rate_undoes": (_rate_undoes, "the loss was lower while the learning rate was low than at the end"),
}

OBSERVATIONS = frozenset(_READ)
"""Names of all observations; the kind of a finding is one, too, which holds if it was found."""


class Observations(Mapping[str, Observation]):
    """The observations of one run, each made when it is first asked for."""

    def __init__(self, data: RunData | None, found: Iterable[Finding]) -> None:
        self._data = data
        self._found = {finding.kind: finding for finding in found}
        self._made: dict[str, Observation] = {}

    def __getitem__(self, name: str) -> Observation:
        if name not in self._made:
            self._made[name] = self._observe(name)
        return self._made[name]

    def _observe(self, name: str) -> Observation:
        if name in self._found:
            return Observation(name, True, self._found[name].title)
        if name not in _READ:
            return Observation(name, None, "")
        read, text = _READ[name]
        return Observation(name, read(self._data) if self._data is not None else None, text)

    def __iter__(self) -> Iterator[str]:
        return iter({**_READ, **self._found})

    def __len__(self) -> int:
        return len({*_READ, *self._found})
