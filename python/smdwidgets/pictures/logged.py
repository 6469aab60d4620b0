"""What a log's images and histograms look like: pixels as they are, and buckets laid on the edges of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rows of the statistics that buckets tell of, in the order of the columns of frames.
_OF_BUCKETS = ("min", "max", "mean", "std", "sum", "variance", "l1", "l2")


def image_axes(shape: Sequence[int]) -> list[int]:
    """The axes of an image's height and width: the last one holds its channels.

    >>> image_axes((64, 48, 3)), image_axes((8, 64, 48, 4))
    ([0, 1], [1, 2])
    """
    return [len(shape) - 3, len(shape) - 2]


def is_image(shape: Sequence[int]) -> bool:
    """Whether a shape is that of images: height, width and one to four channels last.

    >>> is_image((64, 48, 3)), is_image((64, 48)), is_image((5, 64, 48, 12))
    (True, False, False)
    """
    return len(shape) >= 3 and 1 <= shape[-1] <= 4


def pixels(
    value: NDArray[Any], size: tuple[int, int], rows: tuple[int, int], columns: tuple[int, int]
) -> NDArray[np.uint8]:
    """A cut of an image (height, width, channels) as RGBA of this size, or its own where that is less; a pixel is a mean.

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


def rising(buckets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Buckets (left, right, count) whose edges rise from the least value to the greatest.

    Writers begin and end with an empty bucket, whose edge may lie beyond those values.

    >>> rising(np.array([[0.5, 0.0, 0.0], [0.0, 1.0, 3.0], [1.0, 0.9, 0.0]])).tolist()
    [[0.5, 0.5, 0.0], [0.5, 0.9, 3.0], [0.9, 0.9, 0.0]]
    """
    if not len(buckets):
        return buckets
    edges = np.concatenate([buckets[:1, 0], buckets[:, 1]])
    edges = np.maximum.accumulate(np.clip(edges, edges[0], max(edges[0], edges[-1])))
    return np.column_stack([edges[:-1], edges[1:], buckets[:, 2]])


def ends(buckets: NDArray[np.float64]) -> tuple[float, float] | None:
    """The least and the greatest value that buckets (left, right, count) hold, as far as they tell; None where there is none.

    >>> ends(np.array([[0.0, 1.0, 0.0], [1.0, 2.0, 5.0], [2.0, 4.0, 1.0]]))
    (1.0, 4.0)
    """
    held = buckets[(buckets[:, 2] > 0) & np.isfinite(buckets[:, :2]).all(1)]
    return (float(held[0, 0]), float(held[-1, 1])) if len(held) else None


def near_zero(buckets: NDArray[np.float64]) -> float:
    """The smallest magnitude that an edge of buckets has, zero left out."""
    magnitudes = np.abs(buckets[:, :2])
    return float(magnitudes.min(initial=np.inf, where=magnitudes > 0))


def laid_on(
    buckets: NDArray[np.float64], edges: NDArray[np.float64], magnitude: bool = False
) -> tuple[NDArray[np.uint32], float, float]:
    """Counts of buckets, or of their magnitudes, between other edges, and those below and above.

    A bucket's values are taken to lie evenly in it.

    >>> laid_on(np.array([[0.0, 2.0, 4.0], [2.0, 4.0, 8.0]]), np.array([0.0, 1.0, 2.0, 3.0]))
    (array([2, 2, 4], dtype=uint32), 0.0, 4.0)
    >>> laid_on(np.array([[-2.0, 2.0, 8.0]]), np.array([0.0, 1.0, 2.0]), magnitude=True)
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
    """Values below which so many hundredths of all lie.

    >>> percentiles(np.array([[0.0, 2.0, 4.0], [2.0, 4.0, 4.0]]), [25, 50]).tolist()
    [1.0, 2.0]
    """
    cumulated = np.concatenate([[0.0], np.cumsum(buckets[:, 2])])
    places = np.concatenate([buckets[:1, 0], buckets[:, 1]])
    found: NDArray[np.float64] = np.interp(np.asarray(wanted) / 100 * cumulated[-1], cumulated, places)
    return found


def statistics(buckets: NDArray[np.float64]) -> dict[str, float]:
    """What buckets tell of the values in them; all of a bucket's are taken to lie in its middle.

    >>> statistics(np.array([[0.0, 2.0, 1.0], [2.0, 4.0, 3.0]]))["mean"]
    2.5
    """
    both = ends(buckets)
    if both is None:
        return {}
    middle, count = buckets[:, :2].mean(1), buckets[:, 2]
    with np.errstate(all="ignore"):
        total, squares = float(middle @ count), float(middle**2 @ count)
        mean = total / float(count.sum())
        variance = float((middle - mean) ** 2 @ count / count.sum())
        size = float(np.abs(middle) @ count)
    told = (*both, mean, variance**0.5, total, variance, size, squares**0.5)
    return dict(zip(_OF_BUCKETS, told, strict=True))
