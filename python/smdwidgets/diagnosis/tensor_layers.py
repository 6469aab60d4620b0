"""Layers of a run: each weight with its gradient, and how fast it moved."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from smdwidgets import anomalies
from smdwidgets.diagnosis.arrays import Floats, Steps
from smdwidgets.diagnosis.inputs import RunData, Series, TensorColumn
from smdwidgets.finding import Curve

__all__ = [
    "DEAD",
    "Layer",
    "broken_at",
    "curve",
    "dying",
    "faults",
    "layers",
    "loss_between",
    "median",
    "median_of",
    "model_of",
    "not_finite",
    "training",
]

#: Share of dead units from which on a layer is called dead.
DEAD = 0.7
#: Fewest saves of zeros at the end that show that all units are dead.
SILENT_SAVES = 10


def training(data: RunData, role: str, having: str | None = None) -> list[TensorColumn]:
    """Return the tensors of a role in training, in forward order.

    Only those of the first worker that saved any.
    """
    found = [one for one in data.tensors.select(role, having=having) if one.mode in ("TRAIN", "GLOBAL")]
    first = min((one.worker for one in found), default="")
    return [one for one in found if one.worker == first]


@dataclass(frozen=True, eq=False)
class Layer:
    """A weight, its gradient if it was saved, and the steps between its saves."""

    weight: TensorColumn
    gradient: TensorColumn | None

    @property
    def name(self) -> str:
        """Name of the weight."""
        return self.weight.name

    @property
    def starts(self) -> Steps:
        """First step of each interval between saves."""
        return self.weight.steps[:-1]

    @cached_property
    def moved(self) -> Floats:
        """Norm of the change in each interval, relative to the norm before it.

        For a weight that shrinks to nearly nothing, relative to a tenth of its first norm.
        """
        norm = self.weight["l2"]
        first = float(norm[0])
        change, norm = self.weight["update"][1:], np.maximum(norm[:-1], 0.1 * first if math.isfinite(first) else 0.0)
        with np.errstate(all="ignore"):
            return np.where(norm > 0, change / np.where(norm > 0, norm, 1), np.nan)

    @cached_property
    def gaps(self) -> Floats:
        """Number of steps in each interval."""
        return np.maximum(np.diff(self.weight.mode_steps), 1).astype(np.float64)

    @cached_property
    def least(self) -> Floats:
        """Smallest possible mean of the updates in each interval.

        The updates reach it if they all had one direction.
        NaN where the weight only shrank, which is the work of decay.
        """
        norm, change = self.weight["l2"], self.weight["update"][1:]
        shrank = norm[:-1] - norm[1:] > 0.7 * change
        return np.where(shrank & (change > 0), np.nan, self.moved / self.gaps)

    @cached_property
    def typical(self) -> Floats:
        """Size of the updates in each interval if their directions were random."""
        return self.moved / np.sqrt(self.gaps)

    @cached_property
    def relative_gradient(self) -> Floats:
        """Norm of the gradient relative to the weight's, at the saves of the gradient.

        Empty if the weight has no gradient.
        """
        if self.gradient is None:
            return np.empty(0)
        at = np.searchsorted(self.weight.steps, self.gradient.steps)
        at = np.minimum(at, len(self.weight) - 1)
        with np.errstate(all="ignore"):
            ratio: Floats = self.gradient["l2"] / np.maximum(self.weight["l2"][at], 1e-30)
        return ratio


#: The layers of runs that are being judged, which many detectors ask for.
_layers: WeakKeyDictionary[RunData, list[Layer]] = WeakKeyDictionary()


def layers(data: RunData) -> list[Layer]:
    """Return the layers of a run in forward order.

    Layers with fewer than two steps are left out, and those of which only reductions were saved.
    """
    found = _layers.get(data)
    if found is None:
        found = _layers[data] = _paired(data)
    return found


def _paired(data: RunData) -> list[Layer]:
    gradients = {one.order: one for one in training(data, "gradient")}
    return [
        Layer(weight, gradients.get(weight.order))
        for weight in training(data, "weight", having="update")
        if len(weight) > 1 and np.nanmax(weight["count"], initial=0) > 1
    ]


#: A parameter as the hook of PyTorch names it: the class of the model, and the path in it.
_OF_MODEL = re.compile(r"([A-Z][A-Za-z0-9]*(?:_\d+)?)_[\w.]*\.\w+")


def model_of(layer: Layer) -> str:
    """Return the name of the model that has a layer; empty if the name does not tell.

    Gradients of different models are not compared.
    """
    match = _OF_MODEL.fullmatch(layer.name)
    return match[1] if match is not None else ""


def not_finite(column: TensorColumn) -> Floats:
    """Return the number of values that are not finite at each save.

    The number is 0 where it is unknown.
    """
    count = column["nan"] + column["pos_inf"] + column["neg_inf"]
    # Where only reductions were saved, a norm that is missing at some steps was not finite there.
    norm = column["l2"]
    is_lost = np.isinf(norm) | (np.isnan(norm) & np.isfinite(norm).any())
    found: Floats = np.where(np.isnan(count), is_lost, count)
    return found


def faults(column: TensorColumn) -> NDArray[np.bool_]:
    """Return at which saves values are not finite, without those of masks."""
    infinite = (column["pos_inf"] + column["neg_inf"] > 0) | np.isinf(column["l2"])
    nan = (column["nan"] > 0) | ((not_finite(column) > 0) & ~infinite)
    return anomalies.not_finite(np.stack([nan, infinite], axis=1), (False, column.role in ("", "activation", "output")))


def broken_at(data: RunData) -> float:
    """Return the first step at which a weight is not finite; infinity if all are.

    From there on, outputs of layers are meaningless: some frameworks turn NaN into 0.
    """
    first = [
        float(one.steps[bad[0]]) for one in training(data, "weight") if len(bad := np.flatnonzero(not_finite(one)))
    ]
    return min(first, default=math.inf)


def dying(data: RunData) -> list[tuple[TensorColumn, NDArray[np.intp]]]:
    """Return activations with mostly dead units at any save, and the saves judged.

    Units that a ReLU gives are 0 because the values before it are negative. If most units of those are not, zeros have
    another reason, such as padding, masks, or pixels that never vary, and the tensor is left out. So is an input of the
    model, such as a row of zeros with a 1 for its category, which its first module gets.
    """
    most_dead, broken, inputs = [], broken_at(data), training(data, "input")
    before: TensorColumn | None = None
    for each in training(data, "activation", having="dead"):
        if any(_is_same(each, one) for one in inputs):
            continue
        if (each["min"] < 0).any():
            before = each
            continue
        tensor = _with_silence(each)
        judged = np.flatnonzero(np.isfinite(tensor["dead"]) & (tensor.steps < broken))
        high = judged[tensor["dead"][judged] >= DEAD]
        if len(high) and (before is None or not _are_alive(before, int(tensor.steps[high[-1]]))):
            most_dead.append((tensor, judged))
    return most_dead


def _is_same(tensor: TensorColumn, other: TensorColumn) -> bool:
    """Whether two tensors have the same values, by their norms at the steps of both."""
    _, ours, others = np.intersect1d(tensor.steps, other.steps, return_indices=True)
    return len(ours) > 0 and np.array_equal(tensor["l2"][ours], other["l2"][others], equal_nan=True)


def _with_silence(tensor: TensorColumn) -> TensorColumn:
    """Return an activation; if it is 0 to the end, all of its units are dead.

    Its statistics tell this at steps at which its values were not kept.
    """
    silent = (tensor["l2"] == 0) & (tensor["count"] > 0)
    active = np.flatnonzero(~silent)
    begin = int(active[-1]) + 1 if len(active) else 0
    if begin == 0 or len(silent) - begin < SILENT_SAVES:
        return tensor
    dead, since = tensor["dead"].copy(), tensor["since"].copy()
    dead[begin:], since[begin:] = 1.0, tensor.steps[begin:]
    return replace(tensor, columns={**tensor.columns, "dead": dead, "since": since})


def _are_alive(before: TensorColumn, step: int) -> bool:
    """Whether most units of a layer are above 0 for some samples at a step."""
    judged = np.flatnonzero(np.isfinite(before["dead"]) & (before.steps <= step))
    return bool(len(judged)) and float(before["dead"][judged[-1]]) < DEAD


def loss_between(series: Series | None, begin: int, end: int) -> Floats:
    """Return the finite values of a series in an interval of steps, inclusive."""
    if series is None:
        return np.empty(0)
    return series.values[(series.steps >= begin) & (series.steps <= end)]


def curve(column: TensorColumn, steps: Steps, values: Floats, begin: int | None = None) -> Curve:
    """Return at most 60 points of a statistic of a tensor."""
    finite = np.flatnonzero(np.isfinite(values))
    at = finite[np.unique(np.linspace(0, len(finite) - 1, min(60, len(finite))).astype(int))] if len(finite) else finite
    return Curve(column.name, tuple(steps[at].tolist()), tuple(values[at].tolist()), begin)


def median_of(rows: Iterable[Floats]) -> Floats:
    """Return the median over layers at each save, ignoring NaN."""
    table = list(rows)
    length = min((len(row) for row in table), default=0)
    if not length:
        return np.empty(0)
    columns = np.array([row[:length] for row in table])
    known = np.isfinite(columns).any(axis=0)
    found: Floats = np.full(length, np.nan)
    found[known] = np.nanmedian(columns[:, known], axis=0)
    return found


def median(values: Floats) -> float:
    """Return the median of the finite values; NaN without any."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")
