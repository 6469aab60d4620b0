"""A plane through a tensor of any rank: which two axes, where on the others, and its picture."""

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
    """Which plane through the tensor, pooled how, to how many cells at most."""

    axes: tuple[int, ...] = ()
    fixed: tuple[int, ...] = ()
    pool: str = "maxabs"
    cells: int = 4096

    def meant(self, shape: Sequence[int], image: bool = False) -> tuple[list[int], list[int]]:
        """Axes and full index that a tensor of this shape is shown by: what makes sense of what was asked for.

        Unless said they are the last two; of an ``image`` those before its channels.

        >>> ImageWanted().meant((8, 3, 5)), ImageWanted((2, 0), (0, 9, 0)).meant((8, 3, 5)), ImageWanted().meant((4,))
        (([1, 2], [0, 0, 0]), ([2, 0], [0, 2, 0]), ([0], [0]))
        """
        rank = len(shape)
        shown = min(2, rank)
        fits = len(self.axes) == shown == len(set(self.axes)) and all(0 <= axis < rank for axis in self.axes)
        axes = list(self.axes) if fits else image_axes(shape) if image else list(range(rank - shown, rank))
        fixed = self.fixed if len(self.fixed) == rank else (0,) * rank
        return axes, [max(0, min(size - 1, at)) for at, size in zip(fixed, shape, strict=True)]


@dataclass(frozen=True)
class Plane:
    """A pooled image in palette codes: 0 to 252 from low to high, then -inf, +inf, NaN. Of pictures: RGBA, and no limits."""

    codes: NDArray[np.uint8]
    limits: tuple[float, float]
    size: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]
    axes: list[int]
    fixed: list[int]


def as_plane(value: NDArray[Any]) -> NDArray[Any]:
    """A value of two axes at least: a scalar is one cell, a vector one row."""
    return value.reshape(1, -1) if value.ndim < 2 else value


def row_and_column(axes: Sequence[int]) -> tuple[int, int]:
    """The axes of :func:`as_plane` that the axes of a value are."""
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
    """A plane through a value as an image of at most so many cells, the aspect kept, or of at most a height and width.

    Of an ``image`` the plane of its height and width is shown as the picture that it is.
    """
    image = image and is_image(value.shape)
    axes, fixed = wanted.meant(value.shape, image)
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
    """Height and width of a picture of so many cells at most, shaped like the plane.

    >>> _pixels(1000, 1000, 4096), _pixels(2, 100_000, 4096)
    ((64, 64), (1, 4096))
    """
    shrink = max(1.0, (h * w / cells) ** 0.5)
    out = (max(1, min(h, int(h / shrink))), max(1, min(w, int(w / shrink))))
    # A long thin plane: what one side can't shrink further the other must.
    return (min(out[0], max(1, cells // out[1])), min(out[1], cells)) if out[0] * out[1] > cells else out


def _within(cut: tuple[int, int] | None, size: int) -> tuple[int, int]:
    if cut is None:
        return 0, size
    start = min(max(0, cut[0]), max(0, size - 1))
    return start, min(max(start + 1, cut[1]), size)
