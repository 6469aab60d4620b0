"""Convert logged images to pixels, and rebin logged histograms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Statistics that can be computed from buckets, in the order of the columns of frames.
_OF_BUCKETS = ("min", "max", "mean", "std", "sum", "variance", "l1", "l2")


def image_axes(shape: Sequence[int]) -> list[int]:
    """Return the axes of an image's height and width; channels are the last axis.

    >>> image_axes((64, 48, 3)), image_axes((8, 64, 48, 4))
    ([0, 1], [1, 2])
    """
    return [len(shape) - 3, len(shape) - 2]


def is_image(shape: Sequence[int]) -> bool:
    """Return whether a shape is (..., height, width, channels) with 1 to 4 channels.

    >>> is_image((64, 48, 3)), is_image((64, 48)), is_image((5, 64, 48, 12))
    (True, False, False)
    """
    return len(shape) >= 3 and 1 <= shape[-1] <= 4


def pixels(
    value: NDArray[Any], size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> NDArray[np.uint8]:
    """Resize a region of an image (height, width, channels) to RGBA by averaging.

    The result is never larger than the region.

    >>> pixels(np.array([[[0], [255]]], np.uint8), (1, 2), (0, 1), (0, 2)).tolist()
    [[[0, 0, 0, 255], [255, 255, 255, 255]]]
    """
    cut = value[slice(*rows), slice(*columns)]
    top = float(np.iinfo(value.dtype).max) if value.dtype.kind in "ui" else 1.0
    starts = [
        np.arange(most) * total // most for most, total in zip(_at_most(size, cut.shape), cut.shape, strict=False)
    ]
    sums = np.add.reduceat(np.add.reduceat(cut.astype(np.float64), starts[0], axis=0), starts[1], axis=1)
    lengths = [np.diff([*start, total]) for start, total in zip(starts, cut.shape, strict=False)]
    mean = sums / (lengths[0][:, None, None] * lengths[1][None, :, None]) * (255 / top)
    coded = np.clip(np.rint(np.nan_to_num(mean)), 0, 255).astype(np.uint8)
    channels = coded.shape[-1]
    colour = coded[..., :3] if channels >= 3 else np.repeat(coded[..., :1], 3, axis=-1)
    opaque = np.full((*coded.shape[:2], 1), 255, np.uint8)
    return np.concatenate([colour, coded[..., -1:] if channels in (2, 4) else opaque], axis=-1)


def _at_most(size: tuple[int, int], shape: Sequence[int]) -> tuple[int, int]:
    return max(1, min(size[0], shape[0])), max(1, min(size[1], shape[1]))


def ascending_buckets(buckets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return buckets (left, right, count) with ascending edges from least to greatest.

    Writers begin and end with an empty bucket whose outer edge can lie beyond those values.

    >>> ascending_buckets(np.array([[0.5, 0.0, 0.0], [0.0, 1.0, 3.0], [1.0, 0.9, 0.0]])).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.9, 3.0], [0.9, 0.9, 0.0]]
    """
    if not len(buckets):
        return buckets
    edges = np.concatenate([buckets[:1, 0], buckets[:, 1]])
    edges = np.maximum.accumulate(np.clip(edges, edges[0], max(edges[0], edges[-1])))
    return np.column_stack([edges[:-1], edges[1:], buckets[:, 2]])


def value_limits(buckets: NDArray[np.float64]) -> tuple[float, float] | None:
    """Return the approximate least and greatest value in buckets (left, right, count).

    The result is None if all buckets are empty.

    >>> value_limits(np.array([[0.0, 1.0, 0.0], [1.0, 2.0, 5.0], [2.0, 4.0, 1.0]]))
    (1.0, 4.0)
    """
    filled = buckets[(buckets[:, 2] > 0) & np.isfinite(buckets[:, :2]).all(1)]
    return (float(filled[0, 0]), float(filled[-1, 1])) if len(filled) else None


def near_zero(buckets: NDArray[np.float64]) -> float:
    """Return the smallest nonzero magnitude of the bucket edges."""
    magnitudes = np.abs(buckets[:, :2])
    return float(magnitudes.min(initial=np.inf, where=magnitudes > 0))


def rebin(
    buckets: NDArray[np.float64], edges: NDArray[np.float64], magnitude: bool = False
) -> tuple[NDArray[np.uint32], float, float]:
    """Rebin buckets, or their magnitudes, to other edges; also count values outside.

    Values are assumed to be distributed evenly within a bucket. Returns the counts, the count below and the count
    above.

    >>> rebin(np.array([[0.0, 2.0, 4.0], [2.0, 4.0, 8.0]]), np.array([0.0, 1.0, 2.0, 3.0]))
    (array([2, 2, 4], dtype=uint32), 0.0, 4.0)
    >>> rebin(np.array([[-2.0, 2.0, 8.0]]), np.array([0.0, 1.0, 2.0]), magnitude=True)
    (array([4, 4], dtype=uint32), 0.0, 0.0)
    """
    places = np.concatenate([buckets[:1, 0], buckets[:, 1]])
    cumulated = np.concatenate([[0.0], np.cumsum(buckets[:, 2])])
    below = np.interp(edges, places, cumulated)
    if magnitude:
        below -= np.interp(-edges, places, cumulated)
    below = np.rint(below)
    counts = np.minimum(np.diff(below), np.iinfo(np.uint32).max).astype(np.uint32)
    return counts, float(below[0]), float(np.rint(cumulated[-1] - below[-1]))


def percentiles(buckets: NDArray[np.float64], wanted: Sequence[float]) -> NDArray[np.float64]:
    """Compute percentiles from buckets.

    >>> percentiles(np.array([[0.0, 2.0, 4.0], [2.0, 4.0, 4.0]]), [25, 50]).tolist()
    [1.0, 2.0]
    """
    cumulated = np.concatenate([[0.0], np.cumsum(buckets[:, 2])])
    places = np.concatenate([buckets[:1, 0], buckets[:, 1]])
    found: NDArray[np.float64] = np.interp(np.asarray(wanted) / 100 * cumulated[-1], cumulated, places)
    return found


def statistics(buckets: NDArray[np.float64]) -> dict[str, float]:
    """Estimate statistics from buckets, with all values in the middle of their bucket.

    >>> statistics(np.array([[0.0, 2.0, 1.0], [2.0, 4.0, 3.0]]))["mean"]
    2.5
    """
    both = value_limits(buckets)
    if both is None:
        return {}
    middle, count = buckets[:, :2].mean(1), buckets[:, 2]
    with np.errstate(all="ignore"):
        total, squares = float(middle @ count), float(middle**2 @ count)
        mean = total / float(count.sum())
        variance = float((middle - mean) ** 2 @ count / count.sum())
        size = float(np.abs(middle) @ count)
    numbers = (*both, mean, variance**0.5, total, variance, size, squares**0.5)
    return dict(zip(_OF_BUCKETS, numbers, strict=True))
