"""Detectors of faults in updates of weights.

They cover rates, decay, frozen layers, and workers that train apart.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.detectors.clipping import BEFORE_CLIPPING
from smdwidgets.diagnosis.detectors.guessing import is_near_guessing
from smdwidgets.diagnosis.detectors.not_learning import is_at_mean
from smdwidgets.diagnosis.inputs import Kind, RunData, Series
from smdwidgets.diagnosis.tensor_layers import Layer, curve, dying, layers, median, median_of
from smdwidgets.diagnosis.trends import local_noise
from smdwidgets.finding import Evidence, Finding

__all__ = ["frozen", "rate_too_high", "rate_too_low", "rate_zero", "strong_decay", "workers_apart"]

#: Relative update of one step: too high in the median of layers at the start; at any time in one layer; while units
#: die.
HIGH_AT_START, HIGH, HIGH_AND_DYING = 0.05, 0.1, 0.02
#: Saves with a large update that make a sure sign, and the share of the run after the last one that makes it past.
LARGE_SAVES, ENDED = 3, 0.05
#: A later update is too high if it is this many times its earlier median.
JUMP = 20
#: Relative update of one step: too low in the median of layers, and in every layer.
LOW, LOW_IN_ALL = 2e-5, 1e-4
#: Share of its level by which the loss may have fallen: where it stays, and where it falls in a straight line, with the
#: fewest points of such a line.
LITTLE_FALL, STRAIGHT_FALL, STRAIGHT_POINTS = 0.3, 0.5, 30
#: Trend statistic below which a loss near guessing falls.
FALLS_SLOWLY = -3
#: Times by which clipping divides gradients that leave nothing, and how much larger the least updates may be then.
CLIPPED, BY_CLIPPING = 50, 5
#: A single update by the norm of its weight, which leaves little of it.
REPLACES = 0.3
#: Norm of the gradient relative to the weight's from which on the weight should move.
MOVING = 1e-3
#: Share of its first norm to which a decaying weight shrinks.
SHRUNK = 0.3
#: Distance of two workers' weights, relative to their norm.
APART = 1e-3
#: Relative update that rounding may take away.
ROUNDED_AWAY = 1e-6
#: Fewest saves of a frozen layer.
FROZEN_SAVES = 5
#: Words of layers that are often trained or stopped alone, and of those that are trained in place of others.
NORMALIZATIONS, EMBEDDINGS = ("norm",), ("embed", "wte", "wpe", "token")
ADAPTERS = ("lora", "adapter", "prompt", "prefix", "ia3", "vera", "dora", "hada")


def rate_too_high(data: RunData) -> Iterator[Finding]:
    """Find updates that are large for the weights.

    They are large from the start, in a jump, or while units die. A single large step is no sure sign.
    """
    every = layers(data)
    found = [one for one in (_high_at_start(every, data), _jump(every)) if one is not None]
    if not found:
        return
    onset, layer, update = min(found, key=lambda one: one[0])
    large = layer.starts[np.nan_to_num(layer.least, posinf=np.inf) > min(HIGH_AT_START, update)]
    lost = ~np.isfinite(layer.moved[layer.starts >= onset])
    if len(large) + lost.sum() < LARGE_SAVES and update < REPLACES and not data.training_losses():
        return  # nothing shows what a single large step has done
    last = int(max(large[-1], onset)) if len(large) else onset
    ends = layer.starts[-1] - last > ENDED * (layer.starts[-1] - layer.starts[0]) and not lost.any()
    when = (
        f"since step {onset:,}"
        if not ends
        else f"from step {onset:,} to {last:,}"
        if last > onset
        else f"at step {onset:,}"
    )
    yield Finding.of(
        "rate_too_high",
        "problem",
        "high" if len(large) + lost.sum() >= LARGE_SAVES else "medium",
        onset,
        last if ends else None,
        (layer.name,),
        {
            "what": f"Updates of `{layer.name}` are too large {when}",
            "detail": f"one step changes `{layer.name}` by {update:.2g} of its norm; healthy: 0.0007 to 0.03",
        },
        (
            Evidence(
                f"one step changes `{layer.name}` by at least {update:.2g} of its norm",
                layer.name,
                onset,
                update,
                HIGH_AT_START,
                curve=curve(layer.weight, layer.starts, layer.least, onset),
            ),
        ),
    )


def _high_at_start(every: list[Layer], data: RunData) -> tuple[int, Layer, float] | None:
    median = median_of(layer.least for layer in every)
    if not len(median):
        return None
    start = median[: max(1, len(median) // 20)]
    if not np.isfinite(start).any():
        return None
    at = int(np.nanargmax(start))
    if start[at] > HIGH_AT_START or (start[at] > HIGH_AND_DYING and dying(data)):
        layer = max(every, key=lambda one: np.nan_to_num(one.least[at]))
        return int(layer.starts[at]), layer, float(layer.least[at])
    return None


def _jump(every: list[Layer]) -> tuple[int, Layer, float] | None:
    jumps = []
    for layer in every:
        at = _first_jump(layer.least)
        if at is not None:
            jumps.append((int(layer.starts[at]), layer, float(layer.least[at])))
    return min(jumps, key=lambda one: one[0], default=None)


def _first_jump(values: NDArray[np.float64]) -> int | None:
    """Return where a value is first high, and far above the median before it.

    >>> _first_jump(np.array([0.01, 0.011, 0.012, 0.9, 0.01])), _first_jump(np.array([0.9, 0.9]))
    (3, None)
    """
    finite = np.isfinite(values)
    least = np.minimum.accumulate(np.where(finite, values, np.inf))
    # No median is below the least value, which few values exceed so far: most series need no median at all.
    candidates = 1 + np.flatnonzero((values[1:] > HIGH) & (values[1:] > JUMP * least[:-1]))
    before: list[float] = []
    begin = 0
    for at in candidates.tolist():
        for value in values[begin:at][finite[begin:at]].tolist():
            insort(before, value)
        begin = at
        middle = len(before) // 2
        base = before[middle] if len(before) % 2 else (before[middle - 1] + before[middle]) / 2
        if values[at] > JUMP * base:
            return int(at)
    return None


def rate_too_low(data: RunData) -> Iterator[Finding]:
    """Find weights that hardly move although their gradients are large enough.

    The loss stays where it is, or falls in a straight line to the end.
    """
    every = layers(data)
    typical = [median(layer.typical) for layer in every]
    clipped, loss = _clipped(data), data.longest_loss
    near_guessing = loss is not None and is_near_guessing(data, loss)
    slow = near_guessing and loss is not None and loss.trend is not None and loss.trend.z < FALLS_SLOWLY
    limit = LOW_IN_ALL * (BY_CLIPPING if clipped or slow else 1)
    if not typical or not all(0 < one < limit for one in typical) or (not clipped and min(typical) > LOW_IN_ALL):
        return
    gradients = [median(layer.relative_gradient) for layer in every if layer.gradient is not None]
    # Gradients may be as small as the loss, if that is divided by a large number. Where a training predicts the mean of
    # its targets, and its updates were never larger, it has not come to its end.
    small = bool(gradients) and np.median(gradients) < MOVING
    near_guessing = near_guessing or (is_at_mean(data) and _never_moved(every))
    if small and not near_guessing and not clipped:
        return
    fallen = _fallen(loss)
    straight = loss is not None and np.median(typical) >= LOW
    if straight and not near_guessing and not (loss is not None and _falls_straight(loss)):
        return
    if fallen > (STRAIGHT_FALL if straight else LITTLE_FALL):
        return
    update = float(np.median(typical))
    yield Finding.of(
        "rate_too_low",
        "problem",
        "high" if gradients and loss is not None and not straight and not small else "medium",
        int(every[0].starts[0]),
        int(every[0].weight.steps[-1]),
        tuple(layer.name for layer in every),
        {
            "detail": f"one step changes the weights by {update:.2g} of their norm, in the median of layers; healthy: 0.0007 to 0.03",
            "what": "The loss hardly falls, and updates are small"
            if straight and near_guessing
            else "The loss falls in a straight line, and updates are small"
            if straight
            else "Updates are too small",
            "or_stopped": f": clipping divides gradients by {clipped:,.0f}"
            if clipped
            else ", or the training was stopped early"
            if straight
            else "",
        },
        (
            Evidence(
                f"updates of {update:.2g} of the norm a step",
                every[0].name,
                value=update,
                limit=LOW_IN_ALL if straight else LOW,
                curve=curve(every[0].weight, every[0].starts, every[0].typical),
            ),
        ),
    )


def _never_moved(every: list[Layer]) -> bool:
    """Whether updates were as small at first as they are later."""
    return all(bool(np.nanmax(layer.least, initial=0.0) < LOW) for layer in every)


def _clipped(data: RunData) -> float:
    """Return by how much clipping divides gradients at nearly all steps; or 0."""
    norms = {(one.name, one.mode, one.worker): one for one in data.of(Kind.GRADIENT_NORM)}
    for before in norms.values():
        after = norms.get((before.name.removesuffix(BEFORE_CLIPPING), before.mode, before.worker))
        if not before.name.endswith(BEFORE_CLIPPING) or after is None or len(after) != len(before):
            continue
        with np.errstate(all="ignore"):
            ratios = before.values / after.values
        if len(ratios) >= STRAIGHT_POINTS and (ratios > CLIPPED).mean() > 0.9:
            return float(np.median(ratios))
    return 0.0


def _fallen(loss: Series | None) -> float:
    """Return by which share of its first level a loss has fallen; 0 if it is unknown."""
    if loss is None or len(loss) < 2:
        return 0.0
    part = max(1, len(loss) // 10)
    first, last = np.median(loss.values[:part]), np.median(loss.values[-part:])
    return float((first - last) / abs(first)) if first else 0.0


def _falls_straight(loss: Series) -> bool:
    """Whether a loss still falls at the end as fast as before."""
    if len(loss) < STRAIGHT_POINTS:
        return False
    thirds = [float(np.median(part)) for part in np.array_split(loss.values, 6)]
    whole, late = thirds[0] - thirds[5], thirds[3] - thirds[5]
    noise = local_noise(loss.values) / np.sqrt(len(loss) / 6)
    falling = all(before > after for before, after in itertools.pairwise(thirds))
    return falling and late > 0.3 * whole and late > 6 * noise


def rate_zero(data: RunData) -> Iterator[Finding]:
    """Find weights that all stop moving although they have gradients."""
    every = layers(data)
    if not every:
        return
    moved = median_of(layer.moved for layer in every)
    still = np.all([layer.moved[: len(moved)] == 0 for layer in every], axis=0)
    if not still[-1] or still.all():
        return
    first = len(still) - int(np.argmin(still[::-1]))
    steps = every[0].starts
    gradients = [layer.gradient for layer in every if layer.gradient is not None]
    if not gradients or steps[-1] - steps[first] < 0.2 * (steps[-1] - steps[0]) or len(still) - first < FROZEN_SAVES:
        return
    if not any((one["l2"][one.steps >= steps[first]] > 0).all() for one in gradients):
        return
    # An optimizer that has converged, such as L-BFGS, stops by itself.
    rates = [one.values[one.steps >= steps[first]] for one in data.of(Kind.LEARNING_RATE)]
    if any(len(one) and one.min() > 0 for one in rates):
        return
    onset, last = int(steps[first]), int(every[0].weight.steps[-1])
    yield Finding.of(
        "rate_zero",
        "problem",
        "medium",
        onset,
        last,
        tuple(layer.name for layer in every),
        {"series": every[0].weight.quoted, "when": f"since step {onset:,}", "count": len(still) - first},
        (Evidence(f"no weight changes since step {onset:,}", every[0].name),),
    )


def frozen(data: RunData) -> Iterator[Finding]:
    """Find weights that never change while others do.

    They are exactly the same at all saves of the run. The rule UnchangedTensor has another meaning: any tensor that is
    the same, within a tolerance, at its last saves.
    """
    every = [layer for layer in layers(data) if np.isfinite(layer.moved).sum() >= FROZEN_SAVES - 1]
    moving = [layer for layer in every if (layer.moved > 0).mean() > 0.5]
    still = [layer for layer in every if _still(layer) and not _is_rounded_away(layer, moving)]
    if not still or not moving:
        return
    weight = still[0].weight
    yield Finding.of(
        "frozen",
        # A user who trains a new head or adapters freezes the rest on purpose.
        "problem" if any(one.gradient is not None for one in still) or _is_odd(still, moving) else "note",
        "proof",
        int(weight.steps[0]),
        int(weight.steps[-1]),
        tuple(layer.name for layer in still),
        {"tensor": weight.name, "saves": len(weight)},
        tuple(Evidence(f"`{one.name}` is the same at {len(one.weight)} saves", one.name) for one in still[:3]),
    )


def _is_odd(still: list[Layer], moving: list[Layer]) -> bool:
    """Whether a layer is still that comes after one that moves.

    A user who freezes a pretrained model does so from the input on. Normalizations, embeddings and adapters are often
    trained or stopped alone.
    """
    stopped = [one.weight for one in still if not _is_apart(one, NORMALIZATIONS)]
    trained = [one.weight for one in moving if not _is_apart(one, NORMALIZATIONS)]
    if not any(not _is_apart(one, EMBEDDINGS) for one in moving) or any(_is_apart(one, ADAPTERS) for one in moving):
        return False
    # What is trained beside a layer within one module adapts it.
    around = {one.name.rpartition(".")[0].rpartition(".")[0] for one in still} - {""}
    if any(one.name.rpartition(".")[0] in around for one in moving):
        return False
    return bool(stopped and trained) and stopped[-1].order > trained[0].order


def _is_apart(layer: Layer, words: tuple[str, ...]) -> bool:
    names = f"{layer.weight.module} {layer.name}".lower()
    return any(word in names for word in words)


def _still(layer: Layer) -> bool:
    """Whether a weight never changes, and not because its gradient is 0."""
    moved = layer.moved[np.isfinite(layer.moved)]
    gradient = layer.gradient
    return not moved.any() and (gradient is None or bool((gradient["l2"] > 0).mean() > 0.5))


def _is_rounded_away(layer: Layer, moving: list[Layer]) -> bool:
    """Whether updates of a weight are too small to change it.

    Layers that move give the size of an update for a gradient.
    """
    if layer.gradient is None:
        return False
    rates = [
        median(one.moved) / relative
        for one in moving
        if one.gradient is not None and (relative := median(one.relative_gradient)) > 0
    ]
    return bool(rates) and median(layer.relative_gradient) * float(np.median(rates)) < ROUNDED_AWAY


def strong_decay(data: RunData) -> Iterator[Finding]:
    """Find weights that shrink towards 0."""
    every = [layer for layer in layers(data) if layer.weight["std"][0] > 0]
    ratios = [median(layer.weight["l2"][-max(1, len(layer.weight) // 5) :]) / layer.weight["l2"][0] for layer in every]
    if not ratios or not np.median(ratios) < SHRUNK:
        return
    layer, ratio = min(zip(every, ratios, strict=True), key=lambda one: one[1])
    norm = layer.weight["l2"]
    # It shrinks from where its norm was last near the first one.
    onset = int(layer.weight.steps[np.flatnonzero(norm >= 0.95 * norm[0])[-1]])
    yield Finding.of(
        "decay_too_strong",
        "problem",
        "high",
        onset,
        int(layer.weight.steps[-1]),
        (layer.name,),
        {"tensor": layer.name, "ratio": ratio},
        (
            Evidence(
                f"norm of `{layer.name}` {norm[0]:.3g} → {norm[-1]:.3g}",
                layer.name,
                curve=curve(layer.weight, layer.weight.steps, norm),
            ),
        ),
    )


def workers_apart(data: RunData) -> Iterator[Finding]:
    """Find weights that differ between workers."""
    found = []
    for weight in data.tensors.select("weight", having="apart"):
        apart = weight["apart"]
        far = np.flatnonzero(apart > APART)
        if not len(far) or np.median(apart[far[0] :]) <= APART:
            continue
        if apart[0] > 0.5:  # not even similar at first: parts of one weight rather than copies
            continue
        found.append((int(weight.steps[far[0]]), weight, float(apart[np.isfinite(apart)][-1])))
    if not found:
        return
    onset, weight, last = min(found, key=lambda one: one[0])
    first = data.tensors.workers[0]
    yield Finding.of(
        "workers_apart",
        "problem",
        "high",
        onset,
        int(weight.steps[-1]),
        tuple(dict.fromkeys(one.name for _, one, _ in found)),
        {"tensor": weight.name, "apart": last, "worker": first, "other": weight.worker},
        (
            Evidence(
                f"distance {last:.2g} of the norm",
                weight.name,
                curve=curve(weight, weight.steps, weight["apart"], onset),
            ),
        ),
    )
