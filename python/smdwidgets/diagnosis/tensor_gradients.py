"""Detectors of faults in gradients.

They cover gradients that vanish, explode, add up, or are followed in the wrong direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.inputs import RunData
from smdwidgets.diagnosis.tensor_layers import (
    Layer,
    curve,
    layers,
    loss_between,
    median,
    median_of,
    model_of,
    training,
)
from smdwidgets.diagnosis.tensor_updates import HIGH_AND_DYING, HIGH_AT_START
from smdwidgets.finding import Evidence, Finding

__all__ = ["adding_up", "are_reset", "exploding", "loss_sign", "vanishing"]

#: Layers whose cosines are added together.
_GROUP: Final = 2000
#: Norm of the gradient relative to the weight's.
EXPLODING = 100
#: Share of the saves after the first large gradient at which it is large or lost.
LASTING = 0.2
#: RMS of the gradient of the first layer relative to the last.
VANISHING = 1e-2
#: Positions of a kernel or picture that a layer joins, at least.
FEWEST_POSITIONS = 4
#: Times that limit, above which the first gradients do not vanish.
ACQUIRED = 3
#: Share of the saves that count as the first ones.
EARLY = 0.1
#: Cosine of update and gradient: along it, and against it; cosine of successive gradients.
ALONG, AGAINST, TURN = 0.3, -0.3, 0.9
#: Cosine of successive gradients below which they cannot be sums of the same ones.
TURNED = 0.5


EMBEDDINGS = ("Embedding", "EmbeddingBag")
#: Parts of the names of projections to queries and keys.
QUERIES_AND_KEYS = frozenset(
    [
        "q",
        "k",
        "wq",
        "wk",
        "w_q",
        "w_k",
        "q_proj",
        "k_proj",
        "to_q",
        "to_k",
        "q_lin",
        "k_lin",
        "linear_q",
        "linear_k",
        "query",
        "key",
        "query_proj",
        "key_proj",
        "fc_q",
        "fc_k",
        "q_linear",
        "k_linear",
    ]
)


def vanishing(data: RunData) -> Iterator[Finding]:
    """Find gradients that shrink from layer to layer towards the input."""
    # Most rows of an embedding have no gradient at a step, so its mean is small in any training. So is the gradient of
    # queries and keys while every position is attended to alike.
    every = [
        layer
        for layer in layers(data)
        if layer.gradient is not None
        and layer.weight["std"][0] > 0
        and layer.weight.module not in EMBEDDINGS
        and QUERIES_AND_KEYS.isdisjoint(layer.name.lower().split("."))
    ]
    models: dict[str, list[Layer]] = {}
    for layer in every:
        models.setdefault(model_of(layer), []).append(layer)
    # Where the optimizer makes up for it, gradients vanish at first only.
    chains = [chain for some in models.values() for chain in _chains(some, data)]
    findings = [one for share in (1.0, EARLY) for chain in chains if (one := _vanishing(chain, share)) is not None]
    if findings:
        yield findings[0]


def _vanishing(every: list[Layer], share: float) -> Finding | None:
    rms = [_rms(layer, share) for layer in every]
    kept = [(layer, one) for layer, one in zip(every, rms, strict=True) if np.isfinite(one) and one > 0]
    if len(kept) < 3:
        return None
    (first, low), (last, high) = kept[0], kept[-1]
    steps = np.diff(np.log([one for _, one in kept]))
    if low / high >= VANISHING or (steps > 0).mean() < 0.7:
        return None
    # An architecture makes gradients vanish from the first pass on. Where they do so later, updates have changed it.
    begins = _rms(first, 0) / _rms(last, 0)
    return Finding.of(
        "vanishing",
        "problem",
        "medium" if begins > ACQUIRED * VANISHING else "high",
        int(first.weight.steps[0]),
        int(first.weight.steps[-1]),
        tuple(layer.gradient.name for layer, _ in kept if layer.gradient is not None),
        {
            "tensor": first.gradient.name if first.gradient is not None else first.name,
            "other": last.gradient.name if last.gradient is not None else last.name,
            "ratio": low / high,
            "measure": "RMS in",
        },
        tuple(
            Evidence(f"RMS of the gradient of `{layer.name}`: {one:.2g}", layer.name)
            for layer, one in (kept[0], kept[-1])
        ),
    )


def _chains(every: list[Layer], data: RunData) -> Iterator[list[Layer]]:
    """Yield layers that follow one another.

    Parts that stand side by side, such as an actor and a critic, are apart. The inputs of a layer are the outputs of
    the layer before it, as far as the numbers of biases tell.
    """
    outputs = {one.name.rpartition(".")[0]: int(one["count"][0]) for one in training(data, "bias") if len(one)}
    chain: list[Layer] = []
    for layer in every:
        part = layer.name.rpartition(".")[0]
        if chain and part in outputs:
            before = chain[-1].name.rpartition(".")[0]
            inputs = int(layer.weight["count"][0]) // max(1, outputs[part])
            others = before.rpartition(".")[0] != part.rpartition(".")[0] and before in outputs
            if others and not _feeds(outputs[before], inputs):
                yield chain
                chain = []
        chain.append(layer)
    yield chain


def _feeds(outputs: int, inputs: int) -> bool:
    """Whether the next layer can have so many inputs, also of several positions."""
    return inputs == outputs or (outputs > 1 and inputs % outputs == 0 and inputs // outputs >= FEWEST_POSITIONS)


def _rms(layer: Layer, share: float) -> float:
    gradient = layer.gradient
    if gradient is None:
        return float("nan")
    size = np.where(np.isnan(gradient["count"]), layer.weight["count"][0], gradient["count"])
    with np.errstate(all="ignore"):
        return median((gradient["l2"] / np.sqrt(size))[: max(2, int(share * len(gradient)))])


def exploding(data: RunData) -> Iterator[Finding]:
    """Find gradients that are far larger than their weights.

    Gradients after large updates do not count, because the updates may be the reason.
    """
    found = []
    every = layers(data)
    # The gradient of a sum is as many times larger as there are rows, and often has a smaller rate or is divided by its
    # size: it explodes only if it is lost.
    is_sum = any(one.id == "sum_reduction" for one in data.checks)
    for layer in every:
        large = np.flatnonzero(layer.relative_gradient > EXPLODING)
        if is_sum and np.isfinite(layer.relative_gradient).all():
            continue
        if len(large) and layer.gradient is not None and _stays_large(layer, int(large[0])):
            found.append((int(layer.gradient.steps[large[0]]), layer, float(layer.relative_gradient[large[0]])))
    if not found:
        return
    onset, layer, ratio = min(found, key=lambda one: one[0])
    if any((one.least[one.starts < onset] > HIGH_AT_START).any() for one in every):
        return
    assert layer.gradient is not None
    yield Finding.of(
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
                curve=curve(layer.gradient, layer.gradient.steps, layer.relative_gradient, onset),
            ),
        ),
    )


def _stays_large(layer: Layer, first: int) -> bool:
    """Whether a gradient stays large or is lost.

    A gradient that is large once and then clipped does not count.
    """
    ratio = layer.relative_gradient[first:]
    return bool((~(ratio <= EXPLODING)).mean() > LASTING)


def _overall(every: Iterable[Layer], cosine: Callable[[Layer], tuple[Steps, Floats, Floats]]) -> tuple[Steps, Floats]:
    """Return the cosine of all layers together at each step.

    It is the mean of their cosines, weighted by the products of norms.
    """
    steps: Steps = np.zeros(0, np.int64)
    norms: NDArray[Any] = np.zeros(0)
    dots: NDArray[Any] = np.zeros(0)
    rest = iter(every)
    # Very many layers are added group by group, as their cosines take memory.
    while group := [*islice(rest, _GROUP)]:
        at, each, weights = (np.concatenate(parts) for parts in zip(*map(cosine, group), strict=True))
        finite = np.isfinite(each) & np.isfinite(weights)
        steps, places = np.unique(np.concatenate([steps, at[finite]]), return_inverse=True)
        norms = np.bincount(places, np.concatenate([norms, weights[finite]]), len(steps))
        dots = np.bincount(places, np.concatenate([dots, (each * weights)[finite]]), len(steps))
    return steps, np.divide(dots, norms, out=np.full(len(steps), np.nan), where=norms != 0)


def loss_sign(data: RunData) -> Iterator[Finding]:
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
    value = median(cosine[: max(5, len(every[0].weight) // 10)])
    if value > ALONG and _rises(data, int(steps[0])):
        what = "The weights move along the gradient instead of against it"
    elif value < AGAINST and _only_rises(data, every):
        what = "The weights follow the gradient, but the loss rises from the first step on"
    else:
        return
    yield Finding.of(
        "loss_sign",
        "problem",
        "high",
        int(steps[0]),
        None,
        (every[0].name,),
        {
            "what": what,
            "tensor": every[0].name,
            "cosine": value,
            "detail": f"cosine of update and gradient {value:.2f} in {every[0].weight.quoted}, and the loss rises",
        },
        (
            Evidence(
                f"cosine of update and gradient {value:.2f}", every[0].name, curve=curve(every[0].weight, steps, cosine)
            ),
        ),
    )


def _rises(data: RunData, first: int) -> bool:
    """Whether the training loss is lost, or higher than at the first step."""
    loss = data.longest_loss
    before, after = loss_between(loss, first, first), loss_between(loss, first + 1, data.last_step)
    lost = loss is not None and bool(len(loss.lost_steps))
    return lost or bool(len(before) and len(after) and np.median(after) > before[0])


def _only_rises(data: RunData, every: list[Layer]) -> bool:
    """Whether the training loss rises and never falls below its start.

    The updates must be moderate at first.
    """
    loss = data.longest_loss
    if loss is None or len(loss) < 4 or not loss.values[0] > 0:
        return False
    start = loss.values[:10]
    small = median_of(layer.least for layer in every)[:2]
    rising = (np.diff(start) > 0).mean() >= 0.6 and loss.values.min() >= 0.9 * start[0]
    return bool(rising and start[-1] > 1.5 * start[0] and np.nanmax(small, initial=0) < HIGH_AND_DYING)


def turns(data: RunData) -> tuple[Steps, Floats]:
    """Return the cosine of each gradient and the one saved before it, over all layers."""

    def turn(layer: Layer) -> tuple[Steps, Floats, Floats]:
        assert layer.gradient is not None
        norm, change = layer.gradient["l2"], layer.gradient["update"][1:]
        with np.errstate(all="ignore"):
            weight = norm[1:] * norm[:-1]
            # By the law of cosines.
            cosine = (norm[1:] ** 2 + norm[:-1] ** 2 - change**2) / (2 * weight)
            return layer.gradient.steps[1:], np.clip(cosine, -1.0, 1.0), weight

    return _overall(_with_turns(data), turn)


def _with_turns(data: RunData) -> list[Layer]:
    return [layer for layer in layers(data) if layer.gradient is not None and "update" in layer.gradient]


def are_reset(data: RunData) -> bool | None:
    """Whether gradients of successive steps differ, so that they do not add up.

    None if gradients of successive steps were not saved, or are similar, which full-batch training shows, too.
    """
    every = _with_turns(data)
    if not every:
        return None
    assert every[0].gradient is not None
    gaps = np.diff(every[0].gradient.mode_steps)
    if not len(gaps) or np.median(gaps) > 1:
        return None
    _, cosine = turns(data)
    return True if len(cosine) >= 3 and median(cosine) < TURNED else None


def adding_up(data: RunData) -> Iterator[Finding]:
    """Find successive gradients that are similar and grow, as if never reset."""
    every = _with_turns(data)
    if not every:
        return
    steps, cosine = turns(data)
    if len(cosine) < 3 or median(cosine) <= TURN:
        return
    norms = median_of(layer.gradient["l2"] for layer in every if layer.gradient is not None)
    norms = norms[np.isfinite(norms)]
    if len(norms) < 3 or np.median(norms[1:]) < 3 * norms[0]:
        return
    value = median(cosine)
    gradient = every[0].gradient
    assert gradient is not None
    yield Finding.of(
        "gradients_add_up",
        "problem",
        "medium",
        int(gradient.steps[0]),
        None,
        (gradient.name,),
        {
            "what": "Successive gradients are almost the same",
            "detail": f"cosine {value:.2f} in `{gradient.name}`",
            "tensor": gradient.name,
            "cosine": value,
        },
        (Evidence(f"cosine of successive gradients {value:.2f}", gradient.name, curve=curve(gradient, steps, cosine)),),
    )
