"""A 2-D slice (plane) of a tensor of any rank, and its rendering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.pictures.logged import image_axes, is_image, pixels


@dataclass(frozen=True)
class ImageWanted:
    """Options of an image: plane axes, index on the other axes, pooling, size limit."""

    axes: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    pool: str = "maxabs"
    cells: int = 4096

    def resolve(self, shape: Sequence[int], image: bool = False) -> tuple[list[int], list[int]]:
        """Return the axes and full index to show for a tensor of this shape.

        Requested axes that do not fit the shape are replaced with the last two, or for an ``image`` with its height and
        width. Indices are clamped to the shape.

        >>> ImageWanted().resolve((8, 3, 5)), ImageWanted().resolve((4,))
        (([1, 2], [0, 0, 0]), ([0], [0]))
        >>> ImageWanted((2, 0), (0, 9, 0)).resolve((8, 3, 5))
        ([2, 0], [0, 2, 0])
        """
        rank = len(shape)
        shown = min(2, rank)
        fits = len(self.axes) == shown == len(set(self.axes)) and all(0 <= axis < rank for axis in self.axes)
        axes = list(self.axes) if fits else image_axes(shape) if image else list(range(rank - shown, rank))
        fixed = self.fixed if len(self.fixed) == rank else (0,) * rank
        return axes, [max(0, min(size - 1, at)) for at, size in zip(fixed, shape, strict=True)]


@dataclass(frozen=True)
class Plane:
    """A pooled image of a plane.

    ``codes`` are palette codes: 0 to 252 from low to high, then -inf, +inf, NaN. For pictures they are RGBA, without
    limits.
    """

    codes: NDArray[np.uint8]
    limits: tuple[float, float]
    size: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]
    axes: list[int]
    fixed: list[int]


def as_plane(value: NDArray[Any]) -> NDArray[Any]:
    """Reshape to at least two axes: a scalar becomes one cell, a vector one row."""
    return value.reshape(1, -1) if value.ndim < 2 else value


def row_and_column(axes: Sequence[int]) -> tuple[int, int]:
    """Map the axes of a value to the axes of :func:`as_plane`."""
    return (axes[0], axes[1]) if len(axes) == 2 else (0, 1)


def plane_of(
    value: NDArray[Any],
    wanted: ImageWanted,
    cells: int | tuple[int, int],
    rows: tuple[int, int] | None = None,
    columns: tuple[int, int] | None = None,
    *,
    image: bool = False,
) -> Plane:
    """Render a plane of a value as a pooled image.

    ``cells`` is a maximum number of cells (the aspect ratio is kept) or a maximum (height, width). With ``image``, the
    plane of height and width is rendered in RGBA.
    """
    image = image and is_image(value.shape)
    axes, fixed = wanted.resolve(value.shape, image)
    row_axis, column_axis = row_and_column(axes)
    value = as_plane(value)
    height, width = value.shape[row_axis], value.shape[column_axis]
    rows, columns = _within(rows, height), _within(columns, width)
    h, w = rows[1] - rows[0], columns[1] - columns[0]
    out = _pixels(h, w, cells) if isinstance(cells, int) else (max(1, min(h, cells[0])), max(1, min(w, cells[1])))
    if image and axes == image_axes(value.shape):
        picture = pixels(value[tuple(fixed[: axes[0]])], out, rows, columns)
        return Plane(picture, (np.nan, np.nan), (height, width), rows, columns, axes, fixed)
    made = _core.pooled(
        value,
        size=out,
        pool=wanted.pool,
        row_axis=row_axis,
        column_axis=column_axis,
        fixed=[at for axis, at in enumerate(fixed) if axis not in axes],
        rows=rows,
        columns=columns,
        codes="uint8",
    )
    low, high = made["limits"]
    return Plane(np.asarray(made["image"]), (float(low), float(high)), (height, width), rows, columns, axes, fixed)


def _pixels(h: int, w: int, cells: int) -> tuple[int, int]:
    """Return a height and width of at most ``cells``, with the plane's aspect ratio.

    >>> _pixels(1000, 1000, 4096), _pixels(2, 100_000, 4096)
    ((64, 64), (1, 4096))
    """
    shrink = max(1.0, (h * w / cells) ** 0.5)
    out = (max(1, min(h, int(h / shrink))), max(1, min(w, int(w / shrink))))
    # In a long thin plane one side cannot shrink below 1, so the other side must shrink more.
    return (min(out[0], max(1, cells // out[1])), min(out[1], cells)) if out[0] * out[1] > cells else out


def _within(cut: tuple[int, int] | None, size: int) -> tuple[int, int]:
    if cut is None:
        return 0, size
    start = min(max(0, cut[0]), max(0, size - 1))
    return start, min(max(start + 1, cut[1]), size)
