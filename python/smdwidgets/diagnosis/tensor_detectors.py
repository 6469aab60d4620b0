"""Detectors of faults in inputs, activations, outputs and non-finite values.

`DETECTORS` lists all detectors that read tensors, with those of `tensor_updates` and `tensor_gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from smdwidgets._text import quoted
from smdwidgets.diagnosis import tensor_gradients, tensor_updates
from smdwidgets.diagnosis.detectors._show import guessing
from smdwidgets.diagnosis.detectors.incidents import NOT_FINITE, with_rows
from smdwidgets.diagnosis.inputs import Kind, RunData, Series, TensorColumn
from smdwidgets.diagnosis.tensor_layers import (
    DEAD,
    broken_at,
    curve,
    dying,
    faults,
    layers,
    median,
    not_finite,
    training,
)
from smdwidgets.diagnosis.tensor_precision import beyond_range
from smdwidgets.finding import Evidence, Finding
from smdwidgets.incident import Incident

__all__ = ["DETECTORS"]

#: Mean or standard deviation of inputs, ratio between features' standard deviations, and the largest value from which
#: on that matters.
UNSCALED, SPREAD, BOUNDED = 20, 100, 3
#: Largest value of inputs that are small, and their standard deviation.
SMALL, LITTLE_SPREAD = 0.03, 0.01
#: Standard deviation of a batch relative to the median of those before it.
BURST = 8
#: Fewest saves before it.
FEWEST_BEFORE = 5
#: Values of a batch that must all be equal, and the largest share of such batches.
EMPTY_VALUES, RARELY_EMPTY = 256, 0.3
#: Saves with the same batch, and the least share of the run.
SAME_SAVES, SAME_SHARE = 10, 0.2
#: Relative differences of statistics that are rounding.
ROUNDING = 1e-6
#: Share of saturated values.
SATURATED = 0.7
#: Differences of outputs that are rounding, and the fewest outputs of a save.
EQUAL, FEWEST_OUTPUTS = 1e-6, 8
#: Size of latent variables that carry nothing.
CARRIES_NOTHING = 0.03
#: Fewest saves of a layer with symmetric units.
SYMMETRIC_SAVES = 3
#: Training loss relative to guessing that is at its level, and the update of one step that healthy trainings show.
AT_CHANCE, HEALTHY_UPDATE = (0.96, 1.06), (5e-4, 0.05)
#: Trend statistic below which a loss at the level of guessing falls.
FALLING = -3
#: Share of one class.
ONE_CLASS = 0.9
#: Loss relative to guessing: of training that learned, and of validation that did not.
LEARNED, GUESSING = 0.88, 0.93
#: The same where the validation loss was never below guessing, and what that means.
LEARNED_LITTLE, NEVER_LEFT = 0.95, 0.98
#: Training loss at the step of the best validation loss, relative to guessing, above which training has hardly learned.
UNLEARNED = 0.62


def input_not_scaled(data: RunData) -> Iterator[Finding]:
    """Find inputs near 0, far from it, or with features of very different scale."""
    for tensor in training(data, "input", having="spread"):
        mean, deviation = (median(np.abs(tensor[column])) for column in ("mean", "std"))
        spread = tensor["spread"][np.isfinite(tensor["spread"])]
        ratio = float(np.median(spread)) if len(spread) else 1.0
        largest = median(np.maximum(np.abs(tensor["min"]), np.abs(tensor["max"]))) if "max" in tensor else np.inf
        is_small = 0 < largest < SMALL and 0 < deviation < LITTLE_SPREAD
        # Features of small numbers, such as pixels, of which those at the border hardly vary, do no harm.
        differ = ratio > SPREAD and largest > BOUNDED
        if max(mean, deviation) > UNSCALED or differ or is_small:
            yield Finding.of(
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


def bad_batch(data: RunData) -> Iterator[Finding]:
    """Find batches whose inputs are far larger than before, or all equal."""
    for tensor in training(data, "input"):
        found = next((one for one in (_burst(tensor), _empty(tensor)) if one is not None), None)
        if found is not None:
            yield found
            return


def _burst(tensor: TensorColumn) -> Finding | None:
    """Return a batch that is far larger than those before."""
    deviation = tensor["std"]
    # Few saves exceed even the smallest one before them so far; only those are compared with the median.
    least = np.fmin.accumulate(deviation)
    for at in np.flatnonzero(deviation > BURST * least):
        usual = median(deviation[max(0, at - 50) : at]) if at >= FEWEST_BEFORE else 0.0
        if usual > 0 and deviation[at] > BURST * usual:
            what, then = "are far larger than before", "clip gradients so that one batch cannot harm the model"
            return _of_batch(tensor, int(at), usual, what, then, deviation[at:] > BURST * usual)
    return None


def _empty(tensor: TensorColumn) -> Finding | None:
    """Return the first batch without variation, if other batches vary."""
    deviation, count = tensor["std"], tensor["count"]
    empty = np.flatnonzero((deviation == 0) & (count >= EMPTY_VALUES))
    if not len(empty) or len(empty) > RARELY_EMPTY * len(deviation) or len(deviation) < SAME_SAVES:
        return None
    others = deviation[deviation > 0]
    usual = float(np.median(others))
    if others.min() < 0.3 * usual:
        return None
    what = "are all equal" if len(empty) == 1 else f"are all equal, as at {len(empty):,} of {len(deviation):,} saves"
    then = "check how batches are copied between processes and devices"
    return _of_batch(tensor, int(empty[0]), usual, what, then, deviation[empty[0] :] == 0)


def _of_batch(tensor: TensorColumn, at: int, usual: float, what: str, then: str, bad: NDArray[np.bool_]) -> Finding:
    """Return the finding of a batch; it ends at the last bad save."""
    deviation, step = float(tensor["std"][at]), int(tensor.steps[at])
    last = int(tensor.steps[at + np.flatnonzero(bad)[-1]])
    facts = {
        "tensor": tensor.name,
        "std": deviation,
        "ratio": deviation / usual,
        "what": f"The inputs at step {step:,} {what}",
        "then": then,
    }
    shown = Evidence(
        f"standard deviation {usual:.3g} → {deviation:.3g}",
        tensor.name,
        step,
        deviation,
        BURST * usual,
        curve=curve(tensor, tensor.steps, tensor["std"], step),
    )
    return Finding.of("bad_batch", "problem", "high", step, last, (tensor.name,), facts, (shown,))


def same_batch(data: RunData) -> Iterator[Finding]:
    """Find inputs that are the same at every save."""
    for tensor in training(data, "input"):
        table = np.array([tensor[column] for column in ("l2", "mean", "std", "min", "max")])
        # The order of the samples changes how sums are rounded.
        equal = np.isclose(table[:, 1:], table[:, :-1], rtol=ROUNDING, atol=0).all(axis=0)
        if not len(equal) or not equal[-1] or not tensor["std"][-1] > 0 or _is_one_hot(*table[1:, -1]):
            continue
        saves = len(equal) if equal.all() else int(np.argmin(equal[::-1]))
        if saves + 1 < SAME_SAVES or saves < SAME_SHARE * len(equal):
            continue
        onset = int(tensor.steps[len(equal) - saves])
        yield Finding.of(
            "same_batch",
            # Checks of loaders prove it. What they do not find is the full data set.
            "note" if equal.all() and data.checked else "problem",
            # The full data set is the same at every step, too, but from the first step on.
            "medium" if equal.all() else "high",
            onset,
            int(tensor.steps[-1]),
            (tensor.name,),
            {"tensor": tensor.name, "saves": saves + 1},
            (Evidence(f"the same statistics at {saves + 1} saves", tensor.name),),
        )
        return


def _is_one_hot(mean: float, deviation: float, least: float, largest: float) -> bool:
    """Whether the rows of a batch may have a single 1 each.

    All batches of a size then have the same statistics.

    >>> _is_one_hot(0.125, 0.3307, 0.0, 1.0), _is_one_hot(0.13, 0.3363, 0.0, 1.0)
    (True, False)
    """
    if (least, largest) != (0, 1) or not math.isclose(deviation, math.sqrt(mean * (1 - mean)), rel_tol=1e-2):
        return False
    return abs(1 / mean - round(1 / mean)) < ROUNDING / mean


def dead(data: RunData) -> Iterator[Finding]:
    """Find ReLU layers most of whose units are 0 for every sample."""
    found = []
    for tensor, known in dying(data):
        share = tensor["dead"][known]
        if not np.median(share[-max(1, len(share) // 5) :]) >= DEAD:
            continue
        begin = _begin_of(share >= DEAD)
        found.append((tensor, known, share, begin))
    if not found:
        return
    tensor, known, share, begin = min(found, key=lambda one: int(one[0].steps[one[1][one[3]]]))
    # Units that are dead in the first window of saves were so at the first save.
    onset = _begin_of_window(tensor, int(known[begin]))
    from_start = begin == 0 and (known[0] == 0 or onset < int(tensor.steps[known[0]]))
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
    yield Finding.of(
        "dead",
        "problem",
        # Units also die of labels or inputs that give nothing to learn.
        "high" if from_start else "medium",
        onset,
        int(tensor.steps[-1]),
        tuple(one[0].name for one in found),
        {"tensor": tensor.name, "share": float(share[-1]), "reason": reason, "advice": advice},
        (
            Evidence(
                f"{share[-1]:.0%} of the units are 0",
                tensor.name,
                curve=curve(tensor, tensor.steps, tensor["dead"], onset),
            ),
        ),
    )


def _begin_of(high: NDArray[np.bool_]) -> int:
    """Return where a stretch to the end begins in which most saves are high.

    Most are four of five, or half if the last saves are not.
    """
    share = np.cumsum(high[::-1])[::-1] / np.arange(len(high), 0, -1)
    is_begin = next((each for least in (0.8, 0.5) if (each := high & (share >= least)).any()), high)
    return int(np.argmax(is_begin))


def _begin_of_window(tensor: TensorColumn, at: int) -> int:
    """Return the first step of the saves that were judged together at a save."""
    return int(tensor["since"][at])


def saturated(data: RunData) -> Iterator[Finding]:
    """Find tanh and sigmoid layers most of whose values are at their limits."""
    broken = broken_at(data)
    for tensor in training(data, "activation", having="saturated"):
        share = tensor["saturated"]
        known = np.flatnonzero(np.isfinite(share) & (tensor.steps < broken))
        if not len(known) or not np.median(share[known[-max(1, len(known) // 5) :]]) >= SATURATED:
            continue
        onset = int(tensor.steps[known[_begin_of(share[known] >= SATURATED)]])
        yield Finding.of(
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
                    curve=curve(tensor, tensor.steps, share, onset),
                ),
            ),
        )
        return


def one_class(data: RunData) -> Iterator[Finding]:
    """Find outputs of which one class is the largest for almost all samples.

    Outputs of adversaries, such as samples of a generator, are no classes; nor are those of a regression.
    """
    is_regression = any(one.id == "no_better_than_mean" for one in data.checks)
    if is_regression or (data.of(Kind.UNDIRECTED) and not data.training_losses()):
        return
    number = data.settings.get("loss.classes")
    # Without checks the loss is unknown.
    losses = str(data.settings.get("loss", "" if "parameters.type" in data.settings else "cross_entropy")).split(", ")
    if {"cross_entropy", "nll_loss"}.isdisjoint(losses):
        return  # the checks have seen that the loss is none of classes
    for tensor in training(data, "output", having="majority"):
        if number is not None and np.nanmax(tensor["classes"], initial=0) != number:
            continue  # such as embeddings, of which similarities are the classes
        share = tensor["majority"]
        late = share[len(share) // 2 :]
        late = late[np.isfinite(late)]
        if len(late) < 3 or np.median(late) < ONE_CLASS or (late >= ONE_CLASS).mean() < 0.8:
            continue
        known = np.flatnonzero(np.isfinite(share))
        onset = _begin_of_window(tensor, int(known[_begin_of(share[known] >= ONE_CLASS)]))
        yield Finding.of(
            "one_class",
            "problem",
            "medium",
            onset,
            int(tensor.steps[-1]),
            (tensor.name,),
            {
                "tensor": tensor.name,
                "share": float(np.median(late)),
                "title": f"The model predicts one class for {np.median(late):.0%} of the samples",
                "subject": quoted(tensor.name),
            },
            (
                Evidence(
                    f"one class has {np.median(late):.0%}", tensor.name, curve=curve(tensor, tensor.steps, share, onset)
                ),
            ),
        )
        return


def labels_unrelated(data: RunData) -> Iterator[Finding]:
    """Find losses that never leave the level of guessing.

    They are those of validation, or of training although weights move.
    """
    loss, number = data.longest_loss, classes_of(data)
    if loss is None or len(loss) < 10 or number < 2:
        return
    found = _learned_by_heart(data, loss, number) or _learns_nothing(data, loss, number)
    if found is not None:
        yield found


def classes_of(data: RunData) -> int:
    """Return the number of classes of the loss function, else of the output.

    It is 0 if it is unknown.
    """
    recorded = data.settings.get("loss.classes")
    if isinstance(recorded, int) and recorded > 1:
        return recorded
    known = [one["classes"] for one in training(data, "output", having="classes")]
    return int(np.nanmax(known[-1], initial=0)) if known else 0


def _learned_by_heart(data: RunData, loss: Series, number: int) -> Finding | None:
    """Return the finding of labels that are learned by heart."""
    validation = max(data.held_out(Kind.LOSS), key=len, default=None)
    if validation is None or len(validation) < 5:
        return None
    chance = math.log(number)
    part = max(1, len(loss) // 10)
    first, end = float(np.median(loss.values[:part])), float(np.median(loss.values[-part:]))
    level = float(validation.values.min())
    # Few samples are learned by heart too, but then training has learned when the validation loss is lowest.
    at_best = np.interp(validation.steps[validation.values.argmin()], loss.steps, loss.values)
    if at_best < UNLEARNED * chance or level <= GUESSING * chance:
        return None
    # A loss that hardly fell is enough where that of validation has not fallen at all.
    falls = loss.trend is not None and loss.trend.z < FALLING
    never = level >= NEVER_LEFT * chance and validation.values[-1] >= validation.values[0]
    rises = validation.trend is not None and validation.trend.z > -FALLING / 2
    limit, share = (
        (1.0, 0.98) if falls and never and rises else (LEARNED_LITTLE, 0.95) if falls and never else (LEARNED, 0.9)
    )
    if end >= limit * chance or end >= share * first:
        return None
    facts = {
        "what": "The training loss falls but the validation loss never leaves chance",
        "numbers": f"{loss.quoted} {first:.3g} → {end:.3g}; {validation.quoted} stays at {level:.3g}; {guessing(number)}",
        "why": "Probably the labels do not belong to the inputs, and the model learns them by heart.",
    }
    names = loss.name, validation.name
    return Finding.of("labels_unrelated", "problem", "medium", int(loss.steps[0]), int(loss.steps[-1]), names, facts)


def _learns_nothing(data: RunData, loss: Series, number: int) -> Finding | None:
    """Return the finding of a loss at guessing while weights move."""
    chance = math.log(number)
    low, high = AT_CHANCE
    part = max(1, len(loss) // 5)
    start, end = float(np.median(loss.values[:part])), float(np.median(loss.values[-part:]))
    moved = [median(layer.typical) for layer in layers(data)]
    # Slowly, it learns. A loss that comes down to guessing and stays above it need not.
    if loss.trend is not None and loss.trend.z < (FALLING if end < chance else 2 * FALLING):
        return None
    if len(loss) < 2 * part + 10 or not all(low * chance <= one <= high * chance for one in (start, end)) or not moved:
        return None
    if not HEALTHY_UPDATE[0] < np.median(moved) < HEALTHY_UPDATE[1]:
        return None
    facts = {
        "what": f"{loss.quoted} stays at guessing although the weights move",
        "numbers": f"{start:.3g} → {end:.3g}; one step changes the weights by {np.median(moved):.2g} of their norm; "
        f"{guessing(number)}",
        "why": "Probably the labels do not belong to the inputs, or the inputs do not reach the model.",
    }
    return Finding.of(
        "labels_unrelated", "problem", "medium", int(loss.steps[0]), int(loss.steps[-1]), (loss.name,), facts
    )


def output_constant(data: RunData) -> Iterator[Finding]:
    """Find outputs of the model that are one number for every sample."""
    for tensor in training(data, "output"):
        deviation, mean = tensor["std"], tensor["mean"]
        known = np.isfinite(deviation) & np.isfinite(mean)
        constant = known & (deviation <= EQUAL * np.abs(mean)) & (tensor["count"] >= FEWEST_OUTPUTS)
        if not len(constant) or not constant[-1]:
            continue
        begin = len(constant) - int(np.argmin(constant[::-1])) if not constant.all() else 0
        saves = len(constant) - begin
        if saves < SAME_SAVES or saves < SAME_SHARE * len(constant):
            continue
        value = float(mean[-1])
        # A value that moves is that of a bias; one that never moves is that of an activation.
        fixed = float(np.ptp(mean[begin:])) <= EQUAL * abs(value)
        why = {
            True: "Probably the last activation can give only this value: softmax over one unit is always 1.",
            False: "The output does not depend on the inputs: units before it are dead or saturated, or inputs do not reach it.",
        }[fixed]
        if value == 0:
            why = "Probably the units of a ReLU before it are dead, so that no gradient passes."
        onset, last = int(tensor.steps[begin]), int(tensor.steps[-1])
        shown = Evidence(f"one value at {saves:,} saves", tensor.name, onset, value)
        facts = {
            "what": f"The output {tensor.quoted} is {value:.4g} for every sample since step {onset:,}",
            "where": f"at {saves:,} saves",
            "why": why,
        }
        yield Finding.of("output_constant", "problem", "high", onset, last, (tensor.name,), facts, (shown,))
        return


def latent_outputs(data: RunData) -> Iterator[Finding]:
    """Find two outputs of an autoencoder, mean and variance, that are nearly 0."""
    for output in training(data, "output"):
        prefix = output.name.rpartition("_output_")[0]
        others = [one for one in training(data, "activation") if one.name.startswith(f"{prefix}_output_")]
        sizes = {one.name: np.hypot(one["std"], one["mean"]) for one in (*others, output) if len(one) >= SAME_SAVES}
        by_count: dict[int, list[TensorColumn]] = {}
        for one in (*others, output):
            if one.name in sizes and sizes[one.name][-(len(one) // 3) :].max() < CARRIES_NOTHING:
                by_count.setdefault(int(one["count"][-1]), []).append(one)
        empty = next((some for some in by_count.values() if len(some) == 2), None)
        if prefix and empty is not None and len(sizes) > 2:
            first, last = int(empty[0].steps[0]), int(empty[0].steps[-1])
            names = tuple(one.name for one in empty)
            facts = {
                "series": f"the size of {empty[0].quoted} and {empty[1].quoted}",
                "value": float(max(sizes[name][-1] for name in names)),
                "recon": "in the last third of the run; means usually have a size of about 1",
            }
            yield Finding.of("posterior_collapse", "problem", "medium", first, last, names, facts)
            return


def symmetric_units(data: RunData) -> Iterator[Finding]:
    """Find layers whose units all keep the same weights."""
    for layer in layers(data):
        if "units" not in layer.weight:
            continue
        units = layer.weight["units"]
        known = np.flatnonzero(np.isfinite(units))
        # Weights that start with 0 or a constant are usual where the gradient tells units apart at the first step.
        changed = np.flatnonzero(np.nan_to_num(layer.moved) > 0)
        late = known[known > changed[0]] if len(changed) else known[:0]
        if len(late) < SYMMETRIC_SAVES or not (units[late] > 1).all():
            continue
        onset, last = int(layer.weight.steps[0]), int(layer.weight.steps[late[-1]])
        facts = {"tensor": layer.name, "units": int(units[late[-1]]), "saves": len(late)}
        shown = Evidence(f"{facts['units']} units have equal weights", layer.name, onset)
        yield Finding.of("symmetric_units", "problem", "proof", onset, last, (layer.name,), facts, (shown,))
        return


#: Order in which a value that is not finite spreads within a step.
_SPREADING = ("input", "activation", "output", "", "gradient", "weight", "bias")


def first_not_finite(data: RunData) -> Iterator[Finding]:
    """Find the first tensor with values that are not finite.

    An incident names it, if a flight recorder has seen every step. Otherwise it is the first among those that were
    saved.
    """
    incident = next((one for one in data.incidents if one.trigger and one.trigger.column in NOT_FINITE), None)
    found: list[tuple[int, int, int, TensorColumn, int]] = []
    for tensor in data.tensors:
        bad = np.flatnonzero(faults(tensor))
        if len(bad) and tensor.role in _SPREADING:
            place = _SPREADING.index(tensor.role)
            found.append((int(tensor.steps[bad[0]]), place, tensor.order, tensor, int(bad[0])))
    lost = [int(one.lost_steps[0]) for one in data.training_losses() if len(one.lost_steps)]
    # Inputs that are never finite do not follow from others, which may have been saved a step earlier.
    always = [one for one in found if one[3].role == "input" and bool(faults(one[3]).all())]
    if (
        not always
        and incident is not None
        and all(step > incident.step for step in (*lost, *(one[0] for one in found)))
    ):
        yield with_rows(_recorded(incident), data.incidents)
        return
    if not found:
        return
    named = incident is not None and incident.trigger is not None and incident.trigger.tensor
    # A recorder that is still writing an earlier incident begins none: a tensor may have broken before this one.
    onset = min(one[0] for one in found)
    of_incident = [
        one
        for one in found
        if incident is not None and one[0] == incident.step == onset and one[3].name == named and not always
    ]
    step, place, _, tensor, at = min(always or of_incident or found, key=lambda one: one[:3])
    before = [one for one in lost if one <= step]
    if not (of_incident or always) and before and (before[0] < step or place > 2):
        return  # the loss came first, which its own detector tells
    count = int(not_finite(tensor)[at])
    total = int(np.nan_to_num(tensor["count"][at])) or count
    same = len({one[3].name for one in found if one[0] == step}) - 1
    tie = (
        f"; {same:,} more {'tensor is' if same == 1 else 'tensors are'} not finite from the same step on"
        if same
        else ""
    )
    finding = Finding.of(
        "input_not_finite" if tensor.role == "input" else "not_finite",
        "problem",
        "proof",
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
            "share": f"{count:,} of {total:,} values{tie}",
        },
        (
            Evidence(f"first in `{tensor.name}`", tensor.name),
            *((Evidence(f"incident at {incident}", tensor.name),) if of_incident else ()),
        ),
        rank=data.tensors.workers.index(tensor.worker),
        incident=step if of_incident else None,
    )
    yield with_rows(finding, data.incidents)


def _recorded(incident: Incident) -> Finding:
    """Return the finding for an incident whose tensor is not in the statistics."""
    assert incident.trigger is not None
    name, count = incident.trigger.tensor, incident.trigger.value
    return Finding.of(
        "not_finite",
        "problem",
        "proof",
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
        rank=incident.rank,
        source="trigger",
        incident=incident.step,
    )


#: All detectors of tensors.
DETECTORS: tuple[Callable[[RunData], Iterable[Finding]], ...] = (
    input_not_scaled,
    tensor_updates.workers_apart,
    same_batch,
    symmetric_units,
    tensor_gradients.loss_sign,
    tensor_gradients.adding_up,
    bad_batch,
    beyond_range,
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
    output_constant,
    latent_outputs,
    one_class,
    tensor_updates.frozen,
)
