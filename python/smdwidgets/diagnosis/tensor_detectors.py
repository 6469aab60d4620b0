"""Detectors of faults in inputs, activations, outputs and non-finite values.

`DETECTORS` lists all detectors that read tensors, with those of `tensor_updates` and `tensor_gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from smdwidgets.diagnosis import tensor_gradients, tensor_updates
from smdwidgets.diagnosis.detectors.incidents import NOT_FINITE
from smdwidgets.diagnosis.findings import Candidate, Evidence
from smdwidgets.diagnosis.inputs import Kind, Role, RunData, TensorColumn, quoted
from smdwidgets.diagnosis.tensor_layers import broken_at, curve, median, not_finite, training, training_loss
from smdwidgets.incident import Incident

__all__ = ["DETECTORS"]

#: Mean or standard deviation of inputs, and ratio between features' standard deviations.
UNSCALED, SPREAD = 20, 100
#: Standard deviation of a batch relative to the median of those before it.
BURST = 8
#: Fewest saves before it.
FEWEST_BEFORE = 5
#: Saves with the same batch, and the least share of the run.
SAME_SAVES, SAME_SHARE = 10, 0.2
#: Share of dead units, and of saturated values.
DEAD, SATURATED = 0.7, 0.7
#: Share of one class.
ONE_CLASS = 0.9
#: Loss relative to guessing: of training that learned, and of validation that did not.
LEARNED, GUESSING = 0.88, 0.93
#: Training loss at the step of the best validation loss, relative to guessing, above which training has hardly learned.
UNLEARNED = 0.62


def input_not_scaled(data: RunData) -> Iterator[Candidate]:
    """Find inputs with a large mean or deviation, or features of very different scale."""
    for tensor in training(data, "input", having="spread"):
        mean, deviation = (median(np.abs(tensor[column])) for column in ("mean", "std"))
        spread = tensor["spread"][np.isfinite(tensor["spread"])]
        ratio = float(np.median(spread)) if len(spread) else 1.0
        if max(mean, deviation) > UNSCALED or ratio > SPREAD:
            yield Candidate(
                "input_not_scaled",
                "problem",
                "high",
                int(tensor.steps[0]),
                int(tensor.steps[-1]),
                (tensor.name,),
                {"tensor": tensor.name, "mean": mean, "std": deviation},
                (Evidence(f"standard deviation {deviation:.3g}; {ratio:.3g}-fold between features", tensor.name),),
            )
            return


def bad_batch(data: RunData) -> Iterator[Candidate]:
    """Find single batches whose inputs are far larger than those before."""
    for tensor in training(data, "input"):
        deviation = tensor["std"]
        # Few saves exceed even the smallest one before them so far; only those are compared with the median.
        least = np.fmin.accumulate(deviation)
        for at in np.flatnonzero(deviation > BURST * least):
            if at < FEWEST_BEFORE:
                continue
            usual = median(deviation[max(0, at - 50) : at])
            if usual > 0 and deviation[at] > BURST * usual:
                step = int(tensor.steps[at])
                yield Candidate(
                    "bad_batch",
                    "problem",
                    "high",
                    step,
                    step,
                    (tensor.name,),
                    {"tensor": tensor.name, "std": float(deviation[at]), "ratio": float(deviation[at] / usual)},
                    (
                        Evidence(
                            f"standard deviation {usual:.3g} → {deviation[at]:.3g}",
                            tensor.name,
                            curve(tensor, tensor.steps, deviation, step),
                        ),
                    ),
                )
                return


def same_batch(data: RunData) -> Iterator[Candidate]:
    """Find inputs that are the same at every save."""
    for tensor in training(data, "input"):
        table = np.array([tensor[column] for column in ("l2", "mean", "std", "min", "max")])
        equal = (table[:, 1:] == table[:, :-1]).all(axis=0)
        if not len(equal) or not equal[-1] or not tensor["std"][-1] > 0:
            continue
        saves = len(equal) if equal.all() else int(np.argmin(equal[::-1]))
        if saves + 1 < SAME_SAVES or saves < SAME_SHARE * len(equal):
            continue
        onset = int(tensor.steps[len(equal) - saves])
        yield Candidate(
            "same_batch",
            "problem",
            "medium",
            onset,
            int(tensor.steps[-1]),
            (tensor.name,),
            {"tensor": tensor.name, "saves": saves + 1},
            (Evidence(f"the same statistics at {saves + 1} saves", tensor.name),),
        )
        return


def dead(data: RunData) -> Iterator[Candidate]:
    """Find ReLU layers most of whose units are 0 for every sample."""
    found, broken = [], broken_at(data)
    for tensor in training(data, "activation", having="dead"):
        known = np.flatnonzero(np.isfinite(tensor["dead"]) & (tensor.steps < broken))
        if not len(known) or (tensor["min"] < 0).any():
            continue
        share = tensor["dead"][known]
        if not np.median(share[-max(1, len(share) // 5) :]) >= DEAD:
            continue
        begin = _begin_of(share >= DEAD)
        found.append((tensor, known, share, begin))
    if not found:
        return
    tensor, known, share, begin = min(found, key=lambda one: int(one[0].steps[one[1][one[3]]]))
    # Units that are dead in the first window of saves were so at the first save.
    from_start = begin == 0
    onset = _begin_of_window(tensor, int(known[begin]))
    reason, advice = (
        (
            "They were so from the first saves: probably the initialization.",
            "Initialize biases with 0 and weights as suits ReLU (He), or use LeakyReLU or GELU.",
        )
        if from_start
        else (
            "They died during the training: probably the learning rate is too high.",
            "Reduce the learning rate or clip gradients; or use LeakyReLU or GELU.",
        )
    )
    yield Candidate(
        "dead",
        "problem",
        "high",
        onset,
        int(tensor.steps[-1]),
        tuple(one[0].name for one in found),
        {"tensor": tensor.name, "share": float(share[-1]), "reason": reason, "advice": advice},
        (
            Evidence(
                f"{share[-1]:.0%} of the units are 0", tensor.name, curve(tensor, tensor.steps, tensor["dead"], onset)
            ),
        ),
    )


def _begin_of(high: NDArray[np.bool_]) -> int:
    """Return where a stretch to the end begins in which four of five saves are high."""
    share = np.cumsum(high[::-1])[::-1] / np.arange(len(high), 0, -1)
    return int(np.argmax(high & (share >= 0.8)))


def _begin_of_window(tensor: TensorColumn, at: int) -> int:
    """Return the first step of the saves that were judged together at a save."""
    return int(tensor["since"][at])


def saturated(data: RunData) -> Iterator[Candidate]:
    """Find tanh and sigmoid layers most of whose values are at their limits."""
    broken = broken_at(data)
    for tensor in training(data, "activation", having="saturated"):
        share = tensor["saturated"]
        known = np.flatnonzero(np.isfinite(share) & (tensor.steps < broken))
        if not len(known) or not np.median(share[known[-max(1, len(known) // 5) :]]) >= SATURATED:
            continue
        onset = int(tensor.steps[known[_begin_of(share[known] >= SATURATED)]])
        yield Candidate(
            "saturated",
            "problem",
            "medium",
            onset,
            int(tensor.steps[-1]),
            (tensor.name,),
            {"tensor": tensor.name, "share": float(share[known[-1]])},
            (
                Evidence(
                    f"{share[known[-1]]:.0%} of the values are saturated",
                    tensor.name,
                    curve(tensor, tensor.steps, share, onset),
                ),
            ),
        )
        return


def one_class(data: RunData) -> Iterator[Candidate]:
    """Find outputs of which one class is the largest for almost all samples."""
    for tensor in training(data, "output", having="majority"):
        share = tensor["majority"]
        late = share[len(share) // 2 :]
        late = late[np.isfinite(late)]
        if len(late) < 3 or np.median(late) < ONE_CLASS or (late >= ONE_CLASS).mean() < 0.8:
            continue
        known = np.flatnonzero(np.isfinite(share))
        onset = _begin_of_window(tensor, int(known[_begin_of(share[known] >= ONE_CLASS)]))
        yield Candidate(
            "one_class",
            "problem",
            "medium",
            onset,
            int(tensor.steps[-1]),
            (tensor.name,),
            {"tensor": tensor.name, "share": float(np.median(late))},
            (Evidence(f"one class has {np.median(late):.0%}", tensor.name, curve(tensor, tensor.steps, share, onset)),),
        )
        return


def labels_unrelated(data: RunData) -> Iterator[Candidate]:
    """Find a validation loss that never falls below guessing.

    The training loss does fall below it.
    """
    classes = [one["classes"] for one in training(data, "output", having="classes")]
    loss = training_loss(data)
    validation = max(data.of(Kind.LOSS, role=Role.VALIDATION), key=len, default=None)
    if not classes or loss is None or validation is None or len(validation) < 5 or len(loss) < 10:
        return
    number = np.nanmax(classes[-1], initial=0)
    if number < 2:
        return
    chance = float(np.log(number))
    part = max(1, len(loss) // 10)
    first, end = float(np.median(loss.values[:part])), float(np.median(loss.values[-part:]))
    level = float(validation.values.min())
    # Few samples are learned by heart too, but then training has learned when the validation loss is lowest.
    at_best = np.interp(validation.steps[validation.values.argmin()], loss.steps, loss.values)
    if at_best < UNLEARNED * chance:
        return
    if end < LEARNED * chance and end < 0.9 * first and level > GUESSING * chance:
        yield Candidate(
            "labels_unrelated",
            "problem",
            "medium",
            int(loss.steps[0]),
            int(loss.steps[-1]),
            (loss.name, validation.name),
            {
                "training": loss.quoted,
                "validation": validation.quoted,
                "first": first,
                "end": end,
                "level": level,
                "classes": int(number),
                "chance": chance,
            },
        )


#: Order in which a value that is not finite spreads within a step.
_SPREADING = ("input", "activation", "output", "", "gradient", "weight", "bias")


def first_not_finite(data: RunData) -> Iterator[Candidate]:
    """Find the first tensor with values that are not finite.

    An incident names it, if a flight recorder has seen every step. Otherwise it is the first among those that were saved.
    """
    incident = next((one for one in data.incidents if one.trigger and one.trigger.column in NOT_FINITE), None)
    found: list[tuple[int, int, int, TensorColumn, int]] = []
    for tensor in data.tensors:
        bad = np.flatnonzero(not_finite(tensor))
        if len(bad) and tensor.role in _SPREADING:
            place = _SPREADING.index(tensor.role)
            found.append((int(tensor.steps[bad[0]]), place, tensor.order, tensor, int(bad[0])))
    lost = [int(one.lost_steps[0]) for one in data.training_losses() if len(one.lost_steps)]
    if incident is not None and all(step > incident.step for step in (*lost, *(one[0] for one in found))):
        yield _recorded(incident)
        return
    if not found:
        return
    named = incident is not None and incident.trigger is not None and incident.trigger.tensor
    of_incident = [one for one in found if incident is not None and one[0] == incident.step and one[3].name == named]
    step, place, _, tensor, at = min(of_incident or found, key=lambda one: one[:3])
    before = [one for one in lost if one <= step]
    if not of_incident and before and (before[0] < step or place > 2):
        return  # the loss came first, which its own detector tells
    count = int(not_finite(tensor)[at])
    total = int(np.nan_to_num(tensor["count"][at])) or count
    yield Candidate(
        "input_not_finite" if tensor.role == "input" else "not_finite",
        "problem",
        "high",
        step,
        None,
        (tensor.name,),
        {
            "tensor": tensor.name,
            "series": tensor.quoted,
            "what": "not finite",
            "when": f"since step {step:,}",
            "count": count,
            "total": total,
            "share": f"{count:,} of {total:,} values",
        },
        (
            Evidence(f"first in `{tensor.name}`", tensor.name),
            *((Evidence(f"incident at {incident}", tensor.name),) if of_incident else ()),
        ),
    )


def _recorded(incident: Incident) -> Candidate:
    """Return the candidate of an incident whose tensor is not in the statistics."""
    assert incident.trigger is not None
    name, count = incident.trigger.tensor, incident.trigger.value
    return Candidate(
        "not_finite",
        "problem",
        "high",
        incident.step,
        None,
        (name,),
        {
            "tensor": name,
            "series": quoted(name),
            "what": "not finite",
            "when": f"since step {incident.step:,}",
            "share": f"{int(count):,} values" if math.isfinite(count) else "",
        },
        (Evidence(f"incident at {incident}", name),),
    )


#: All detectors of tensors.
DETECTORS: tuple[Callable[[RunData], Iterable[Candidate]], ...] = (
    input_not_scaled,
    tensor_updates.workers_apart,
    same_batch,
    tensor_gradients.loss_sign,
    tensor_gradients.adding_up,
    bad_batch,
    tensor_gradients.exploding,
    tensor_updates.strong_decay,
    tensor_updates.rate_too_high,
    saturated,
    dead,
    tensor_gradients.vanishing,
    tensor_updates.rate_too_low,
    tensor_updates.rate_zero,
    first_not_finite,
    labels_unrelated,
    one_class,
    tensor_updates.frozen,
)
