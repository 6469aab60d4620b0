"""Histogram edges shared by all steps of a tensor or of overlaid tensors.

Shared edges make counts comparable across steps and tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError
from smdwidgets.pictures.logged import ascending_buckets, near_zero, value_limits
from smdwidgets.pictures.view import TensorView

SAMPLED_STEPS = 24
"""Number of steps sampled to find the range. Values of other steps outside the edges are counted as outside."""

#: The least and the greatest value and the smallest magnitude, by step.
Ranges = dict[int, tuple[float, float, float]]

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True)
class SharedEdges:
    """Ascending edges, shared by the steps of a tensor."""

    edges: NDArray[np.float64]
    scale: str

    def outgrown_by(self, low: float, high: float) -> bool:
        """Return whether values lie so far outside that the edges should be recomputed."""
        first, last = float(self.edges[0]), float(self.edges[-1])
        slack = 0.5 * (last - first)
        if self.scale == "log":
            high, low = max(abs(low), abs(high)), last
        return low < first - slack or high > last + slack


class Bins:
    """Histogram bins shared by all steps of some tensors.

    The edges are computed on first use, and recomputed when values outgrow them. Each computation has an edition
    number; a client that shows an older edition must redraw all steps. ``swept`` has ranges of :func:`swept_ranges`
    that were read before.
    """

    def __init__(
        self, views: Sequence[TensorView], scale: str, bins: int, swept: Mapping[TensorView, Ranges] | None = None
    ) -> None:
        self.views = list(views)
        self._swept = swept
        self._scale = scale
        self._bins = bins
        self._edition = 0
        self._edges: SharedEdges | None = None
        self._lock = threading.Lock()

    def current(self) -> tuple[SharedEdges | None, int]:
        """Return the edges and their edition; the edges are None without finite values."""
        with self._lock:
            if not self._edition:
                self._compute()
            return self._edges, self._edition

    def recompute(self, edition: int) -> None:
        """Recompute the edges, unless a newer edition already exists."""
        with self._lock:
            if edition == self._edition:
                self._compute()

    def _compute(self) -> None:
        self._edges = shared_edges(self.views, self._scale, self._bins, self._swept)
        self._swept = None  # of the steps until now
        self._edition += 1


def shared_edges(
    views: Sequence[TensorView], scale: str, bins: int, swept: Mapping[TensorView, Ranges] | None = None
) -> SharedEdges | None:
    """Return edges over the range of the tensors, or None without finite values.

    Steps that cannot be read are ignored. ``swept`` has ranges of :func:`swept_ranges` that were read before.
    """
    # Logarithmic scales need the values; for linear ones the reductions are enough.
    read = swept_ranges(views) if swept is None and scale == "linear" else swept or {}
    low, high, smallest = _range(found for view in views for found in _ranges(view, read.get(view, {})))
    if low > high:
        return None
    return SharedEdges(compute_edges(low, high, smallest, scale, bins), scale)


def swept_ranges(views: Iterable[TensorView]) -> dict[TensorView, Ranges]:
    """Return the ranges at sampled steps with finite real values.

    Tensors of a run that have the same steps are read in one call.
    """
    together: dict[Hashable, list[TensorView]] = {}
    for view in views:
        if not view.kind:
            key = id(view.trial), view.worker, type(view), tuple(_sampled_steps(view))
            together.setdefault(key, []).append(view)
    ranges: dict[TensorView, Ranges] = {}
    for group in together.values():
        try:
            ranges |= _swept(group)
        except SMDebugError:  # one of them cannot be read
            for view in group if len(group) > 1 else ():
                with suppress(SMDebugError):
                    ranges |= _swept([view])
    return ranges


def _swept(views: list[TensorView]) -> dict[TensorView, Ranges]:
    """Return the ranges of tensors of one run and worker that have the same steps."""
    columns = views[0].reductions(_sampled_steps(views[0]), ["min", "max"], views[1:])
    low, high = columns["min"], columns["max"]
    if low.dtype.kind not in "biuf":
        return {}
    by_name: dict[str, Ranges] = {view.name: {} for view in views}
    named = columns["name"].tolist(), columns["step"].tolist(), low.tolist(), high.tolist()
    for name, step, least, most in zip(*named, strict=True):
        if isfinite(least) and isfinite(most):
            by_name[name][step] = float(least), float(most), np.inf
    return {view: by_name[view.name] for view in views}


def _sampled_steps(view: TensorView) -> list[int]:
    """Return the steps at which the range is read; none if the run lacks the tensor."""
    try:
        steps = view.steps_shown()
    except SMDebugError:  # a compared run may lack this tensor
        return []
    if len(steps) <= SAMPLED_STEPS:
        return steps
    return [steps[i] for i in np.linspace(0, len(steps) - 1, SAMPLED_STEPS).astype(int)]


def _ranges(view: TensorView, swept: Ranges) -> Iterable[tuple[float, float, float]]:
    """Return the ranges of the sampled steps that can be read."""
    return [*swept.values(), *_finite_ranges(view, [step for step in _sampled_steps(view) if step not in swept])]


def _finite_ranges(view: TensorView, steps: Iterable[int]) -> Iterable[tuple[float, float, float]]:
    for step in steps:
        try:
            value = view.shown_numbers(step)
        except SMDebugError:
            continue
        if value.dtype.kind in "USO" or not value.size:
            continue
        if view.kind == "histogram" and value.ndim == 2 and value.shape[1] == 3:
            buckets = ascending_buckets(value)
            both = value_limits(buckets)
            if both is not None:
                yield *both, near_zero(buckets)
            continue
        made = _core.histogram(value, 1)
        edges = made["edges"]
        if made["counts"].sum():
            low, high = float(edges[0]), float(edges[-1])
            smallest = float(np.abs(_core.sample(value, 512)[0]).min(initial=np.inf, where=_nonzero(value)))
            yield low, high, smallest


def _nonzero(value: NDArray[np.generic]) -> NDArray[np.bool_]:
    sampled = _core.sample(value, 512)[0]
    nonzero: NDArray[np.bool_] = np.isfinite(sampled) & (sampled != 0)
    return nonzero


def _range(ranges: Iterable[tuple[float, float, float]]) -> tuple[float, float, float]:
    low, high, smallest = np.inf, -np.inf, np.inf
    for a, b, least in ranges:
        low, high, smallest = min(low, a), max(high, b), min(smallest, least)
    return low, high, smallest


def compute_edges(low: float, high: float, smallest: float, scale: str, bins: int) -> NDArray[np.float64]:
    """Compute edges from the least to the greatest value.

    Logarithmic scales start near the smallest magnitude seen.

    >>> compute_edges(0.0, 4.0, 1.0, "linear", 4).tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0]
    """
    top = max(abs(low), abs(high))
    # Bins narrower than the float spacing would have equal edges.
    narrow = high / 2 - low / 2 <= float(np.spacing(top)) * bins
    if scale == "linear" or top == 0 or narrow:
        if narrow:
            widening = abs(low) * 0.5 or 0.5
            low, high = max(low - widening, -_LARGEST), min(high + widening, _LARGEST)
        # Halve first: the full width can overflow.
        edges = low / 2 + (high / 2 - low / 2) * np.linspace(0.0, 1.0, bins + 1)
        return np.maximum.accumulate(edges * 2)
    smallest = min(max(smallest, top * 1e-12), top / 2) if np.isfinite(smallest) else top * 1e-6
    if scale == "log":
        return np.geomspace(smallest / 2, min(top * (1 + 1e-12), _LARGEST), bins + 1)
    linear = smallest
    places = np.linspace(_bend(low, linear), _bend(high, linear), bins + 1)
    edges = np.sign(places) * linear * np.expm1(np.abs(places))
    edges[0], edges[-1] = low, high
    return np.maximum.accumulate(edges)


def _bend(x: float, linear: float) -> float:
    return float(np.sign(x) * np.log1p(abs(x) / linear))
