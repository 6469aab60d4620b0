"""Frames: summaries of a tensor at one step, small enough to keep for all steps.

A frame holds eighteen reductions, five counts, a histogram, a few percentiles and a small image. Widgets, plots and
exported pages draw from frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError, StepUnavailable, TensorUnavailableForStep
from smdwidgets.pictures.edges import SharedEdges, compute_edges
from smdwidgets.pictures.logged import ascending_buckets, near_zero, percentiles, rebin, statistics, value_limits
from smdwidgets.pictures.packet import pack
from smdwidgets.pictures.plane import ImageWanted, Plane, plane_of
from smdwidgets.pictures.view import TensorView, as_numbers

OPS = ("min", "max", "mean", "prod", "std", "sum", "variance", "l1", "l2")
REDUCTIONS = [(op, magnitudes) for magnitudes in (False, True) for op in OPS]
"""The columns of ``stats``, as (reduction, whether it is of magnitudes)."""
PERCENTILES = (1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0)
MOST_CELLS = 1 << 16
_PIECE = 1 << 17


@dataclass(frozen=True)
class HistogramWanted:
    """Histogram options.

    ``scale`` is linear, log (of magnitudes) or symlog. ``edges`` are shared by all steps or computed per step. ``over``
    names (run, worker, tensor) whose values the shared edges cover; an empty tensor is that of the frames.
    """

    scale: str = "linear"
    bins: int = 128
    edges: str = "shared"
    over: tuple[tuple[int, str, str], ...] = ()


@dataclass(frozen=True)
class Wanted:
    """Sections of frames to compute.

    Sections are separate so that a change of bins does not recompute images.
    """

    stats: bool = True
    update: bool = False
    histogram: HistogramWanted | None = field(default_factory=HistogramWanted)
    image: ImageWanted | None = field(default_factory=ImageWanted)
    percentiles: bool = True

    @classmethod
    def from_json(cls, want: dict[str, Any]) -> Wanted:
        """Parse the ``want`` of a request."""
        hist, image = want.get("hist"), want.get("image")
        return cls(
            stats=bool(want.get("stats", True)),
            update=bool(want.get("update", False)),
            percentiles=bool(want.get("percentiles", True)),
            histogram=None
            if not hist
            else HistogramWanted(
                str(hist.get("scale", "linear")),
                min(1024, max(1, int(hist.get("bins", 128)))),
                str(hist.get("edges", "shared")),
                tuple(
                    (int(place["run"]), str(place["worker"]), str(place.get("tensor", "")))
                    for place in (hist.get("over") or ())[:8]
                ),
            ),
            image=None
            if not image
            else ImageWanted(
                tuple(int(axis) for axis in image.get("axes", ())),
                tuple(int(at) for at in image.get("fixed", ())),
                str(image.get("pool", "maxabs")),
                min(MOST_CELLS, max(1, int(image.get("cells", 4096)))),
            ),
        )


@dataclass
class Frame:
    """One step of a frames packet.

    Sections that are not requested or not available are None.
    """

    step: int
    stats: NDArray[np.float64]
    counts: NDArray[np.float64]
    update: float = np.nan
    percentiles: NDArray[np.float64] | None = None
    edges: NDArray[np.float64] | None = None
    hist: NDArray[np.uint32] | None = None
    hist_out: tuple[float, float] = (0.0, 0.0)
    image: Plane | None = None
    shape: tuple[int, ...] = ()
    #: Number of sampled elements where the whole value is missing; else 0. The histogram is an estimate of the whole.
    sampled: int = 0
    #: Whether statistics and counts are estimates from the sample, too.
    estimated: bool = False
    error: dict[str, str] | None = None


def make_frame(
    view: TensorView, step: int, wanted: Wanted, edges: SharedEdges | None = None, previous: int | None = None
) -> Frame:
    """Compute the requested sections of one step.

    Where the value is missing, the histogram and percentiles are estimates from a sample, if there is one. A read
    failure sets the frame's ``error`` and raises no exception.
    """
    frame = Frame(step, np.full(len(REDUCTIONS), np.nan), np.zeros(5))
    try:
        value = view.numbers(step)
    except SMDebugError as error:
        if isinstance(error, TensorUnavailableForStep | StepUnavailable) and _fill_sampled(frame, view, wanted, edges):
            return frame
        with suppress(SMDebugError):
            _fill_stats(frame, view.stored_reductions(step))
        if not any(np.isfinite(frame.stats)):
            frame.error = {"type": type(error).__name__, "message": str(error)}
        return frame
    frame.shape = value.shape
    if value.dtype.kind in "USO":
        return frame
    try:
        if view.kind == "histogram" and value.ndim == 2 and value.shape[1] == 3:
            _fill_from_buckets(frame, ascending_buckets(np.asarray(value, np.float64)), wanted, edges)
            return frame
        if wanted.stats:
            _fill_stats(frame, _core.reduce(value))
        _fill_counts(frame, value)
        if wanted.percentiles and value.size:
            frame.percentiles = np.asarray(_core.percentiles(even_sample(value), PERCENTILES), np.float64)
        if wanted.histogram is not None and value.size:
            _fill_histogram(frame, value, wanted.histogram, edges)
        if wanted.image is not None and value.size:
            frame.image = plane_of(value, wanted.image, wanted.image.cells, image=view.kind == "image")
        if wanted.update and previous is not None:
            frame.update = update_ratio(view, previous, value)
    except (SMDebugError, ValueError) as error:
        frame.error = {"type": type(error).__name__, "message": str(error)}
    return frame


def even_sample(value: NDArray[Any]) -> NDArray[Any]:
    """Return an even sample of a large value; a small value is returned whole.

    The sample is large enough for percentiles that are right to less than one. The stride is a prime that divides no
    axis, so that no row or column is sampled more often than others.

    >>> even_sample(np.zeros((4096, 4096), np.float32)).shape
    (65281,)
    """
    apart = -(-value.size // MOST_CELLS)
    if apart < 4:
        return value
    while any(apart % d == 0 for d in range(2, int(apart**0.5) + 1)) or any(size % apart == 0 for size in value.shape):
        apart += 1
    return np.ascontiguousarray(value.reshape(-1)[::apart])


def _fill_stats(frame: Frame, reductions: dict[tuple[str, bool], Any]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for i, key in enumerate(REDUCTIONS):
            number = reductions.get(key)
            if isinstance(number, float | np.floating):
                frame.stats[i] = number
            elif number is not None:
                number = np.asarray(number).reshape(-1)
                number = np.abs(number) if number.dtype.kind == "c" else number
                frame.stats[i] = np.float64(number[0]) if number.size else np.nan


def _fill_counts(frame: Frame, value: NDArray[Any]) -> None:
    counts = _core.stats(value)
    frame.counts[:] = [counts[key] for key in ("n", "nan", "pos_inf", "neg_inf", "zeros")]


def _fill_histogram(frame: Frame, value: NDArray[Any], wanted: HistogramWanted, shared: SharedEdges | None) -> None:
    magnitude = wanted.scale == "log"
    given: Any = wanted.bins
    if shared is not None:
        given = shared.edges
    made = _core.histogram(value, given, scale="linear" if shared is not None else wanted.scale, magnitude=magnitude)
    if shared is None:
        frame.edges = np.asarray(made["edges"], np.float64)
    frame.hist = np.minimum(made["counts"], np.iinfo(np.uint32).max).astype(np.uint32)
    # On a logarithmic scale zeros lie below every edge; they are counted separately.
    zeros = float(made["zeros"]) if magnitude else 0.0
    frame.hist_out = (float(made["under"]) - zeros, float(made["over"]))


#: Reductions of a whole tensor for which those of a sample are good estimates.
_ESTIMATED = {"mean", "std", "variance"}


def _fill_sampled(frame: Frame, view: TensorView, wanted: Wanted, edges: SharedEdges | None) -> bool:
    """Fill a frame from a sample; return whether there is one that can be read.

    Counts of the histogram are scaled to the whole tensor, so that steps with values and with samples compare.
    """
    try:
        sample = view.sample_at(frame.step)
    except SMDebugError as error:
        frame.error = {"type": type(error).__name__, "message": str(error)}
        return True
    if sample is None or not sample.elements.size:
        return _fill_recorded(frame, view)
    value = as_numbers(sample.elements)
    frame.shape, frame.sampled = sample.shape, value.size
    times = max(1.0, prod(sample.shape) / value.size)
    if wanted.percentiles:
        frame.percentiles = np.asarray(_core.percentiles(value, PERCENTILES), np.float64)
    if wanted.histogram is not None:
        _fill_histogram(frame, value, wanted.histogram, edges)
    if frame.hist is not None:
        frame.hist = np.minimum(np.rint(frame.hist * times), np.iinfo(np.uint32).max).astype(np.uint32)
        frame.hist_out = (round(frame.hist_out[0] * times), round(frame.hist_out[1] * times))
    if sample.elements.dtype.kind != "c" and _fill_recorded(frame, view):
        return True
    frame.estimated = value.size < prod(sample.shape)
    reduced = _core.reduce(value)
    _fill_stats(frame, {key: reduced[key] for key in reduced if not frame.estimated or key[0] in _ESTIMATED})
    _fill_counts(frame, value)
    frame.counts[:] = np.rint(frame.counts * times)
    return True


def _fill_recorded(frame: Frame, view: TensorView) -> bool:
    """Fill in what the training wrote of all elements; return whether it did."""
    exact = view.recorded(frame.step)
    if not exact or exact["count"] <= 0:
        return False
    frame.counts[:] = [exact[key] for key in ("count", "nan", "pos_inf", "neg_inf", "zeros")]
    if not any(frame.counts[1:4]):
        plain: dict[tuple[str, bool], Any] = {(op, False): np.float64(exact[op]) for op in OPS if op in exact}
        magnitudes = {("max", True): np.float64(exact["abs_max"]), ("l1", True): np.float64(exact["l1"])}
        derived = {
            ("variance", False): np.float64(exact["std"] ** 2),
            ("sum", False): np.float64(exact["mean"] * exact["count"]),
            ("mean", True): np.float64(exact["l1"] / exact["count"]),
            ("sum", True): np.float64(exact["l1"]),
            ("l2", True): np.float64(exact["l2"]),
        }
        _fill_stats(frame, plain | magnitudes | derived)
    return True


def _fill_from_buckets(frame: Frame, buckets: NDArray[np.float64], wanted: Wanted, shared: SharedEdges | None) -> None:
    """Fill a frame from a logged histogram: show the counted values, not the buckets."""
    frame.shape = buckets.shape
    frame.counts[:] = [buckets[:, 2].sum(), 0, 0, 0, np.nan]
    both = value_limits(buckets)
    if both is None:
        return
    if wanted.stats:
        known: dict[tuple[str, bool], Any] = {(name, False): number for name, number in statistics(buckets).items()}
        _fill_stats(frame, {**known, ("max", True): max(map(abs, both))})
    if wanted.percentiles:
        frame.percentiles = percentiles(buckets, PERCENTILES)
    if wanted.histogram is not None:
        scale, bins = wanted.histogram.scale, wanted.histogram.bins
        edges = shared.edges if shared is not None else compute_edges(*both, near_zero(buckets), scale, bins)
        frame.edges = None if shared is not None else edges
        frame.hist, below, above = rebin(buckets, edges, magnitude=scale == "log")
        frame.hist_out = (below, above)


def update_ratio(view: TensorView, previous: int, value: NDArray[Any]) -> float:
    """Return the norm of the change since an earlier step over the earlier norm."""
    try:
        before = view.numbers(previous)
    except SMDebugError:
        return float("nan")
    if before.shape != value.shape or before.dtype.kind not in "fiu":
        return float("nan")
    size = float(_core.reduction(before, "l2"))
    return _distance(value.reshape(-1), before.reshape(-1)) / size if size else float("nan")


def _distance(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the norm of a difference, computed in blocks.

    The whole difference would be a float64 copy, and the allocator would keep its memory.
    """
    norms = []
    for at in range(0, one.size, _PIECE):
        with np.errstate(all="ignore"):
            moved = np.subtract(one[at : at + _PIECE], other[at : at + _PIECE], dtype=np.float64)
        norms.append(float(_core.reduction(moved, "l2")))
    return float(_core.reduction(np.array(norms), "l2"))


def pack_frames(
    about: dict[str, Any], frames: Sequence[Frame], wanted: Wanted, edges: SharedEdges | None, edition: int = 1
) -> bytes:
    """Pack frames. ``about`` names run, tensor and worker."""
    head: dict[str, Any] = {
        "kind": "frames",
        **about,
        "edition": edition,
        "errors": {str(frame.step): frame.error for frame in frames if frame.error is not None},
    }
    arrays: dict[str, Any] = {"step": np.array([frame.step for frame in frames], np.float64)}
    if any(frame.shape for frame in frames):
        rank = max(len(frame.shape) for frame in frames)
        arrays["shapes"] = np.array([frame.shape + (-1,) * (rank - len(frame.shape)) for frame in frames], np.float64)
    if wanted.stats:
        arrays["stats"] = np.array([frame.stats for frame in frames]).reshape(len(frames), len(REDUCTIONS))
        arrays["counts"] = np.array([frame.counts for frame in frames]).reshape(len(frames), 5)
    if any(frame.sampled for frame in frames):
        arrays["sampled"] = np.array([(frame.sampled, frame.estimated) for frame in frames], np.float64)
    if wanted.update:
        arrays["update"] = np.array([frame.update for frame in frames])
    if wanted.percentiles and any(frame.percentiles is not None for frame in frames):
        head["percentiles"] = list(PERCENTILES)
        nothing = np.full(len(PERCENTILES), np.nan)
        arrays["percentiles"] = np.array([nothing if f.percentiles is None else f.percentiles for f in frames])
    if wanted.histogram is not None:
        _pack_histograms(head, arrays, frames, wanted.histogram, edges)
    if wanted.image is not None:
        _pack_images(head, arrays, frames, wanted.image)
    return pack(head, arrays)


def _pack_histograms(
    head: dict[str, Any],
    arrays: dict[str, Any],
    frames: Sequence[Frame],
    wanted: HistogramWanted,
    edges: SharedEdges | None,
) -> None:
    bins = max((len(frame.hist) for frame in frames if frame.hist is not None), default=0)
    if not bins:
        return
    head["hist"] = {"scale": wanted.scale, "edges": wanted.edges}
    if wanted.over:
        head["hist"]["over"] = [
            {"run": run, "worker": worker} | ({"tensor": tensor} if tensor else {})
            for run, worker, tensor in wanted.over
        ]
    empty = np.zeros(bins, np.uint32)
    arrays["hist"] = np.array([_padded(frame.hist, bins, empty) for frame in frames], np.uint32)
    arrays["hist_out"] = np.array([frame.hist_out for frame in frames])
    if edges is not None:
        arrays["edges"] = edges.edges
    else:
        nothing = np.linspace(0.0, 1.0, bins + 1)
        arrays["edges"] = np.array(
            [nothing if f.edges is None or len(f.edges) != bins + 1 else f.edges for f in frames], np.float64
        )


def _padded(row: NDArray[np.uint32] | None, bins: int, empty: NDArray[np.uint32]) -> NDArray[np.uint32]:
    if row is None:
        return empty
    return row if len(row) == bins else np.pad(row, (0, bins - len(row)))


def _pack_images(head: dict[str, Any], arrays: dict[str, Any], frames: Sequence[Frame], wanted: ImageWanted) -> None:
    shown = [frame.image for frame in frames if frame.image is not None]
    if not shown:
        return
    # One packet holds images of one size; the caller starts a new packet where the shape changes.
    first = shown[0]
    rows, cols = first.size
    head["image"] = {"axes": first.axes, "fixed": first.fixed, "pool": wanted.pool, "rows": rows, "cols": cols}
    nothing = np.zeros_like(first.codes)
    arrays["image"] = np.array([nothing if f.image is None else f.image.codes for f in frames], np.uint8)
    # Limits that are NaN belong to an image: of a tensor that is NaN throughout.
    arrays["image_range"] = np.array([(np.inf, -np.inf) if f.image is None else f.image.limits for f in frames])
