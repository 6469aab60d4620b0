"""Details of a tensor that a widget requests when the slider rests.

These are high-resolution tiles, exact values, and curves of one statistic over steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.logged import is_image
from smdwidgets.pictures.overview import shown_name
from smdwidgets.pictures.packet import LARGEST_STEP, pack
from smdwidgets.pictures.plane import ImageWanted, as_plane, plane_of, row_and_column
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials.run import dtype_named

MOST_VALUES = 4096
MOST_PIXELS = 1 << 20
_TEXT = 1000
#: Characters of a text that is shown alone.
_LONG_TEXT = 101_000
#: Superseded values of a curve that are sent, the latest.
_MOST_VOIDED = 2000


def plan(view: TensorView, about: dict[str, Any]) -> bytes:
    """Pack the metadata of a tensor: steps, dtype, shape, collections and workers."""
    steps = view.steps_shown()
    dtype, shape = view.sample()
    collections = [
        name
        for name, collection in view.trial.collections().items()
        if name not in {"all", "default"} and view.name in collection.tensor_names
    ]
    aliases = [alias for alias, name in view.trial.aliases().items() if name == view.name]
    size = dtype_named(dtype).itemsize if dtype not in {"", "str"} else 2
    return pack(
        {
            "kind": "plan",
            **about,
            "dtype": dtype,
            "shape": list(shape),
            "bytes": int(np.prod(shape, dtype=np.float64)) * size if dtype else 0,
            "collections": collections,
            **({"aliases": [shown_name(alias) for alias in aliases]} if aliases else {}),
            "workers": view.workers(),
            "form": _form(view, dtype, shape),
            "reduced": dtype == "",
            "errors": {},
        },
        {"step": np.array(steps, np.float64)},
    )


def _form(view: TensorView, dtype: str, shape: tuple[int, ...]) -> str:
    if dtype == "str" or dtype.startswith("complex"):
        return "text" if dtype == "str" else "complex"
    if view.kind == "image" and is_image(shape):
        return "image"
    return "histogram" if view.kind == "histogram" else "number"


def tile(view: TensorView, step: int, request: dict[str, Any], about: dict[str, Any]) -> bytes:
    """Pack a region of a plane, pooled to the requested number of pixels."""
    wanted = ImageWanted(_ints(request.get("axes")), _ints(request.get("fixed")), str(request.get("pool", "maxabs")))
    size = _ints(request.get("size")) or (256, 256)
    height = min(max(1, size[0]), 1024)
    made = plane_of(
        view.numbers(step),
        wanted,
        (height, min(max(1, size[1]), MOST_PIXELS // height)),
        _pair(request.get("rows")),
        _pair(request.get("cols")),
        image=view.kind == "image",
    )
    exact = made.codes.shape[:2] == (made.rows[1] - made.rows[0], made.columns[1] - made.columns[0])
    return pack(
        {
            "kind": "tile",
            **about,
            "step": step,
            "axes": made.axes,
            "fixed": made.fixed,
            "pool": wanted.pool,
            "rows": list(made.rows),
            "cols": list(made.columns),
            "shape": list(made.size),
            "exact": exact,
        },
        {"image": made.codes, "image_range": np.array(made.limits, np.float64)},
    )


def values(view: TensorView, step: int, request: dict[str, Any], about: dict[str, Any]) -> bytes:
    """Pack the exact values of a region, each as the shortest text that round-trips."""
    value = view.value(step)
    wanted = ImageWanted(_ints(request.get("axes")), _ints(request.get("fixed")))
    axes, fixed = wanted.resolve(value.shape, view.kind == "image" and is_image(value.shape))
    row_axis, column_axis = row_and_column(axes)
    value = as_plane(value)
    index: list[int | slice] = [*fixed] if value.ndim == len(fixed) else [0, 0]
    shape = (value.shape[row_axis], value.shape[column_axis])
    rows, columns = (_cut(_pair(request.get(key)), size) for key, size in (("rows", shape[0]), ("cols", shape[1])))
    columns = (columns[0], min(columns[1], columns[0] + MOST_VALUES))
    rows = (rows[0], min(rows[1], rows[0] + max(1, MOST_VALUES // max(1, columns[1] - columns[0]))))
    index[row_axis], index[column_axis] = slice(*rows), slice(*columns)
    cells = value[tuple(index)] if value.size else value.reshape(0, 0)
    if row_axis > column_axis:
        cells = cells.T
    return pack(
        {
            "kind": "values",
            **about,
            "step": step,
            "axes": axes,
            "fixed": fixed,
            "rows": list(rows),
            "cols": list(columns),
            "shape": list(shape),
            "cells": [[shortest(cell, _LONG_TEXT if cells.size == 1 else _TEXT) for cell in row] for row in cells],
        },
        _numbers(cells),
    )


def shortest(cell: Any, most: int = _TEXT) -> str:
    """Return the shortest text that round-trips to a number; strings are truncated.

    >>> shortest(np.float32(0.1))
    '0.1'
    """
    if isinstance(cell, str):
        return cell[:most]
    if isinstance(cell, (np.bool_, bool)):
        return str(bool(cell))
    if isinstance(cell, np.complexfloating):
        return str(cell).strip("()")
    return str(cell)


def _numbers(cells: NDArray[Any]) -> dict[str, NDArray[np.float64]]:
    if cells.dtype.kind in "USO":
        return {}
    with np.errstate(all="ignore"):
        real = np.abs(cells) if cells.dtype.kind == "c" else cells
        return {"number": real.astype(np.float64)}


def series(view: TensorView, stat: str, mode: str, about: dict[str, Any], clock: bool = False) -> bytes:
    """Pack one reduction of a tensor, or a scalar's value, at each of its steps.

    With ``clock``, also when the values were written.
    """
    steps, numbers = curve(view, stat, mode)
    head: dict[str, Any] = {"kind": "series", **about, "mode": mode, "stat": stat}
    arrays: dict[str, NDArray[Any]] = {"step": steps, "y": numbers}
    if clock:
        began, seconds = _clock(view, steps)
        head["began"] = began
        if began is not None:
            arrays["seconds"] = seconds
    if stat == "value" and not mode:
        voided = view.course(superseded=True)
        shown = np.flatnonzero(np.abs(voided.steps) <= LARGEST_STEP)[-_MOST_VOIDED:]
        if len(shown):
            arrays |= {"void_step": voided.steps[shown].astype(np.float64), "void_y": voided.values[shown]}
    return pack(head, arrays)


def _clock(view: TensorView, steps: NDArray[np.float64]) -> tuple[float | None, NDArray[np.float32]]:
    """Return the first wall time of the steps, and the seconds since then.

    The result is None if the time of a step is unknown.
    """
    course = view.course()
    if not len(steps) or not len(course.steps):
        return None, np.empty(0, np.float32)
    at = np.minimum(np.searchsorted(course.steps, steps), len(course.steps) - 1)
    times = course.times[at]
    if (course.steps[at] != steps).any() or not np.isfinite(times).all():
        return None, np.empty(0, np.float32)
    return float(times.min()), (times - times.min()).astype(np.float32)


def curve(view: TensorView, stat: str, mode: str = "") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the global steps and a reduction of the tensor at each of them.

    ``"value"`` is the value of a scalar, and the mean of a larger tensor.
    """
    # The mean of a scalar equals its value.
    reduction = "mean" if stat == "value" else stat
    columns = view.curve(reduction)
    steps = np.asarray(columns["step"], np.int64)
    numbers = np.asarray(columns[reduction])
    numbers = (np.abs(numbers) if numbers.dtype.kind == "c" else numbers).astype(np.float64)
    if mode and "mode" in columns:
        modes = np.asarray(
            [ModeKeys(int(number)).name if not isinstance(number, str) else number for number in columns["mode"]]
        )
        steps, numbers = steps[modes == mode], numbers[modes == mode]
    shown = steps <= LARGEST_STEP
    steps, numbers = steps[shown], numbers[shown]
    order = np.argsort(steps, kind="stable")
    return steps[order].astype(np.float64), numbers[order]


def _ints(given: Any) -> tuple[int, ...]:
    return tuple(int(number) for number in given or ())


def _pair(given: Any) -> tuple[int, int] | None:
    numbers = _ints(given)
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None


def _cut(pair: tuple[int, int] | None, size: int) -> tuple[int, int]:
    start, end = pair or (0, size)
    start = min(max(0, start), size)
    return start, min(max(start, end), size)
