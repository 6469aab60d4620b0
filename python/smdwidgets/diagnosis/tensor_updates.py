"""Detectors of faults in updates of weights.

They cover rates, decay, frozen layers, and workers that train apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from smdwidgets.diagnosis.findings import Candidate, Evidence
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.diagnosis.tensor_layers import Layer, curve, layers, median, median_of, training, training_loss

__all__ = ["frozen", "rate_too_high", "rate_too_low", "rate_zero", "strong_decay", "workers_apart"]

#: Relative update of one step: too high in the median of layers at the start; at any time in one layer; while units die.
HIGH_AT_START, HIGH, HIGH_AND_DYING = 0.05, 0.1, 0.02
#: A later update is too high if it is this many times its earlier median.
JUMP = 20
#: Relative update of one step: too low in the median of layers, and in every layer.
LOW, LOW_IN_ALL = 2e-5, 1e-4
#: Norm of the gradient relative to the weight's from which on the weight should move.
MOVING = 1e-3
#: Share of its first norm to which a decaying weight shrinks.
SHRUNK = 0.3
#: Distance of two workers' weights, relative to their norm.
APART = 1e-3
#: Fewest saves of a frozen layer.
FROZEN_SAVES = 5


def rate_too_high(data: RunData) -> Iterator[Candidate]:
    """Find updates that are large for the weights.

    They are large from the start, in a jump, or while units die.
    """
    every = layers(data)
    found = [one for one in (_high_at_start(every, data), _jump(every)) if one is not None]
    if not found:
        return
    onset, layer, update = min(found, key=lambda one: one[0])
    yield Candidate(
        "rate_too_high",
        "problem",
        "high",
        onset,
        None,
        (layer.name,),
        {"tensor": layer.name, "update": update},
        (
            Evidence(
                f"one step changes `{layer.name}` by at least {update:.2g} of its norm",
                layer.name,
                curve(layer.weight, layer.starts, layer.least, onset),
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
    dying = any((one["dead"] >= 0.7).any() for one in training(data, "activation", having="dead"))
    if start[at] > HIGH_AT_START or (start[at] > HIGH_AND_DYING and dying):
        layer = max(every, key=lambda one: np.nan_to_num(one.least[at]))
        return int(layer.starts[at]), layer, float(layer.least[at])
    return None


def _jump(every: list[Layer]) -> tuple[int, Layer, float] | None:
    found = []
    for layer in every:
        least = layer.least
        for at in np.flatnonzero(least > HIGH):
            base = median(least[:at])
            if at and least[at] > JUMP * base:
                found.append((int(layer.starts[at]), layer, float(least[at])))
                break
    return min(found, key=lambda one: one[0], default=None)


def rate_too_low(data: RunData) -> Iterator[Candidate]:
    """Find weights that hardly move although their gradients are large enough.

    The loss stays where it is.
    """
    every = layers(data)
    typical = [median(layer.typical) for layer in every]
    if not typical or not all(0 < one < LOW_IN_ALL for one in typical) or np.median(typical) >= LOW:
        return
    gradients = [median(layer.relative_gradient) for layer in every if layer.gradient is not None]
    if gradients and np.median(gradients) < MOVING:
        return
    loss = training_loss(data)
    if loss is not None and len(loss) >= 2:
        part = max(1, len(loss) // 10)
        if np.median(loss.values[-part:]) < 0.7 * np.median(loss.values[:part]):
            return
    update = float(np.median(typical))
    yield Candidate(
        "rate_too_low",
        "problem",
        "high" if gradients and loss is not None else "medium",
        int(every[0].starts[0]),
        int(every[0].weight.steps[-1]),
        tuple(layer.name for layer in every),
        {"update": update},
        (
            Evidence(
                f"updates of {update:.2g} of the norm a step",
                every[0].name,
                curve(every[0].weight, every[0].starts, every[0].typical),
            ),
        ),
    )


def rate_zero(data: RunData) -> Iterator[Candidate]:
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
    onset, last = int(steps[first]), int(every[0].weight.steps[-1])
    yield Candidate(
        "rate_zero",
        "problem",
        "medium",
        onset,
        last,
        tuple(layer.name for layer in every),
        {"series": every[0].name, "when": f"since step {onset:,}", "count": len(still) - first},
        (Evidence(f"no weight changes since step {onset:,}", every[0].name),),
    )


def frozen(data: RunData) -> Iterator[Candidate]:
    """Find weights that never change while others do."""
    every = [layer for layer in layers(data) if np.isfinite(layer.moved).sum() >= FROZEN_SAVES - 1]
    still = [layer for layer in every if _still(layer)]
    moving = [layer for layer in every if (layer.moved > 0).mean() > 0.5]
    if not still or not moving:
        return
    weight = still[0].weight
    yield Candidate(
        "frozen",
        "problem",
        "high",
        int(weight.steps[0]),
        int(weight.steps[-1]),
        tuple(layer.name for layer in still),
        {"tensor": weight.name, "saves": len(weight)},
        tuple(Evidence(f"`{one.name}` is the same at {len(one.weight)} saves", one.name) for one in still[:3]),
    )


def _still(layer: Layer) -> bool:
    """Whether a weight never changes, and not because its gradient is 0."""
    moved = layer.moved[np.isfinite(layer.moved)]
    gradient = layer.gradient
    return not moved.any() and (gradient is None or bool((gradient["l2"] > 0).mean() > 0.5))


<<<<<<< HEAD
=======
def vanishing(data: RunData) -> Iterator[Candidate]:
    """Find gradients that shrink from layer to layer towards the input."""
    every = [layer for layer in layers(data) if layer.gradient is not None and layer.weight["std"][0] > 0]
    # Where the optimizer makes up for it, gradients vanish at first only.
    found = [one for share in (1.0, EARLY) if (one := _vanishing(every, share)) is not None]
    if found:
        yield found[0]


def _vanishing(every: list[Layer], share: float) -> Candidate | None:
    rms = [_rms(layer, share) for layer in every]
    kept = [(layer, one) for layer, one in zip(every, rms, strict=True) if np.isfinite(one) and one > 0]
    if len(kept) < 3:
        return None
    (first, low), (last, high) = kept[0], kept[-1]
    steps = np.diff(np.log([one for _, one in kept]))
    if low / high >= VANISHING or (steps > 0).mean() < 0.7:
        return None
    return Candidate(
        "vanishing",
        "problem",
        "high",
        int(first.weight.steps[0]),
        int(first.weight.steps[-1]),
        tuple(layer.gradient.name for layer, _ in kept if layer.gradient is not None),
        {
            "tensor": first.gradient.name if first.gradient is not None else first.name,
            "other": last.gradient.name if last.gradient is not None else last.name,
            "ratio": low / high,
        },
        tuple(
            Evidence(f"RMS of the gradient of `{layer.name}`: {one:.2g}", layer.name)
            for layer, one in (kept[0], kept[-1])
        ),
    )


def _rms(layer: Layer, share: float) -> float:
    gradient = layer.gradient
    if gradient is None:
        return float("nan")
    size = np.where(np.isnan(gradient["size"]), layer.weight["size"][0], gradient["size"])
    with np.errstate(all="ignore"):
        return _median((gradient["l2"] / np.sqrt(size))[: max(2, int(share * len(gradient)))])


def exploding(data: RunData) -> Iterator[Candidate]:
    """Find gradients that are far larger than their weights.

    Gradients after large updates do not count, because the updates may be the reason.
    """
    found = []
    every = layers(data)
    for layer in every:
        large = np.flatnonzero(layer.relative_gradient > EXPLODING)
        if len(large) and layer.gradient is not None and _stays_large(layer, int(large[0])):
            found.append((int(layer.gradient.steps[large[0]]), layer, float(layer.relative_gradient[large[0]])))
    if not found:
        return
    onset, layer, ratio = min(found, key=lambda one: one[0])
    if any((one.least[one.starts < onset] > HIGH_AT_START).any() for one in every):
        return
    assert layer.gradient is not None
    yield Candidate(
        "exploding",
        "problem",
        "high",
        onset,
        None,
        (layer.gradient.name,),
        {"tensor": layer.name, "ratio": ratio},
        (
            Evidence(
                f"norm of the gradient of `{layer.name}` {ratio:.3g} times that of the weights",
                layer.gradient.name,
                curve(layer.gradient, layer.gradient.steps, layer.relative_gradient, onset),
            ),
        ),
    )


def _stays_large(layer: Layer, first: int) -> bool:
    """Whether a gradient stays large or is lost.

    A gradient that is large once and then clipped does not count.
    """
    ratio = layer.relative_gradient[first:]
    return bool((~(ratio <= EXPLODING)).mean() > LASTING)


>>>>>>> a6a3edb (Shorten docstrings of the diagnosis and its tests)
def strong_decay(data: RunData) -> Iterator[Candidate]:
    """Find weights that shrink towards 0."""
    every = [layer for layer in layers(data) if layer.weight["std"][0] > 0]
    ratios = [median(layer.weight["l2"][-max(1, len(layer.weight) // 5) :]) / layer.weight["l2"][0] for layer in every]
    if not ratios or not np.median(ratios) < SHRUNK:
        return
    layer, ratio = min(zip(every, ratios, strict=True), key=lambda one: one[1])
    norm = layer.weight["l2"]
    # It shrinks from where its norm was last near the first one.
    onset = int(layer.weight.steps[np.flatnonzero(norm >= 0.95 * norm[0])[-1]])
    yield Candidate(
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
                curve(layer.weight, layer.weight.steps, norm),
            ),
        ),
    )


<<<<<<< HEAD
=======
def _overall(every: Iterable[Layer], cosine: Callable[[Layer], tuple[Steps, Floats, Floats]]) -> tuple[Steps, Floats]:
    """Return the cosine of all layers together at each step.

    It is the mean of their cosines, weighted by the products of norms.
    """
    total: dict[int, tuple[float, float]] = {}
    for layer in every:
        for step, one, weight in zip(*(part.tolist() for part in cosine(layer)), strict=True):
            if np.isfinite(one) and np.isfinite(weight):
                dots, norms = total.get(step, (0.0, 0.0))
                total[step] = dots + one * weight, norms + weight
    steps = np.array(sorted(total), dtype=np.int64)
    return steps, np.array([total[step][0] / total[step][1] if total[step][1] else np.nan for step in steps.tolist()])


def loss_sign(data: RunData) -> Iterator[Candidate]:
    """Find weights that move along their gradients while the loss rises."""
    every = [layer for layer in layers(data) if layer.gradient is not None and "along" in layer.weight]
    if not every:
        return

    def along(layer: Layer) -> tuple[Steps, Floats, Floats]:
        assert layer.gradient is not None
        at = np.searchsorted(layer.gradient.steps, layer.starts)
        norm = layer.gradient["l2"][np.minimum(at, len(layer.gradient) - 1)]
        with np.errstate(all="ignore"):
            return layer.starts, layer.weight["along"][1:], layer.weight["update"][1:] * norm

    steps, cosine = _overall(every, along)
    # Later, the training has diverged and its gradients are noise.
    value = _median(cosine[: max(5, len(cosine) // 10)])
    if value > ALONG and _rises(data, int(steps[0])):
        what = "The weights move along the gradient instead of against it"
    elif value < AGAINST and _only_rises(data, every):
        what = "The weights follow the gradient, but the loss rises from the first step on"
    else:
        return
    yield Candidate(
        "loss_sign",
        "problem",
        "high",
        int(steps[0]),
        None,
        (every[0].name,),
        {"what": what, "tensor": every[0].name, "cosine": value},
        (Evidence(f"cosine of update and gradient {value:.2f}", every[0].name, curve(every[0].weight, steps, cosine)),),
    )


def _rises(data: RunData, first: int) -> bool:
    """Whether the training loss is lost, or higher than at the first step."""
    loss = training_loss(data)
    before, after = loss_between(loss, first, first), loss_between(loss, first + 1, data.last_step)
    lost = loss is not None and bool(len(loss.lost_steps))
    return lost or bool(len(before) and len(after) and np.median(after) > before[0])


def _only_rises(data: RunData, every: list[Layer]) -> bool:
    """Whether the training loss rises and never falls below its start.

    Updates must be moderate at first.
    """
    loss = training_loss(data)
    if loss is None or len(loss) < 4 or not loss.values[0] > 0:
        return False
    start = loss.values[:10]
    small = median_of(layer.least for layer in every)[:2]
    rising = (np.diff(start) > 0).mean() >= 0.6 and loss.values.min() >= 0.9 * start[0]
    return bool(rising and start[-1] > 1.5 * start[0] and np.nanmax(small, initial=0) < HIGH_AND_DYING)


def adding_up(data: RunData) -> Iterator[Candidate]:
    """Find successive gradients that are almost the same and grow.

    This happens if they are never reset.
    """
    every = [layer for layer in layers(data) if layer.gradient is not None and "turn" in layer.gradient]
    if not every:
        return

    def turn(layer: Layer) -> tuple[Steps, Floats, Floats]:
        assert layer.gradient is not None
        norm = layer.gradient["l2"]
        with np.errstate(all="ignore"):
            return layer.gradient.steps[1:], layer.gradient["turn"][1:], norm[1:] * norm[:-1]

    steps, cosine = _overall(every, turn)
    if len(cosine) < 3 or _median(cosine) <= TURN:
        return
    norms = median_of(layer.gradient["l2"] for layer in every if layer.gradient is not None)
    norms = norms[np.isfinite(norms)]
    if len(norms) < 3 or np.median(norms[1:]) < 3 * norms[0]:
        return
    value = _median(cosine)
    gradient = every[0].gradient
    assert gradient is not None
    yield Candidate(
        "gradients_add_up",
        "problem",
        "medium",
        int(gradient.steps[0]),
        None,
        (gradient.name,),
        {"tensor": gradient.name, "cosine": value},
        (Evidence(f"cosine of successive gradients {value:.2f}", gradient.name, curve(gradient, steps, cosine)),),
    )


>>>>>>> a6a3edb (Shorten docstrings of the diagnosis and its tests)
def workers_apart(data: RunData) -> Iterator[Candidate]:
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
    yield Candidate(
        "workers_apart",
        "problem",
        "high",
        onset,
        int(weight.steps[-1]),
        tuple(dict.fromkeys(one.name for _, one, _ in found)),
        {"tensor": weight.name, "apart": last, "first": first, "second": weight.worker},
        (
            Evidence(
                f"distance {last:.2g} of the norm", weight.name, curve(weight, weight.steps, weight["apart"], onset)
            ),
        ),
    )
