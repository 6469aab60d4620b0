"""Differences of two values, and cells over steps, for widgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.modes import ModeKeys
from smdwidgets.pictures.packet import pack
from smdwidgets.pictures.plane import ImageWanted, plane_of
from smdwidgets.pictures.view import TensorView
from smdwidgets.trials.difference import Difference, Saved

STATISTICS = (
    "count", "changed", "nan", "neg_inf", "pos_inf", "zeros", "min", "max", "mean", "std", "l1", "l2", "abs_max"
)  # fmt: skip
"""The order of the numbers in a packet; DIFFERENCE_STATISTICS of the protocol."""
MOST_CHANGED = 64
MOST_CELLS = 8
"""Cells of one request, all of whose steps are read."""
_MOST_PIXELS = 1 << 16
_MOST_BINS = 1024
PART_SECONDS = 0.05
"""Steps of cells are sent at least this often."""


def saved(view: TensorView, step: int) -> Saved:
    """Return the value at a step, with its place for error messages."""
    return Saved(view.name, step, view.value(step), ModeKeys.GLOBAL, view.worker or None, str(view.trial.path))


def difference(a: Saved, b: Saved, want: dict[str, Any], about: dict[str, Any]) -> bytes:
    """Pack ``a - b``.

    The packet has statistics, a histogram, a pooled image and the cells that changed most. ``about`` names both places,
    as requested.
    """
    found = Difference(a, b)
    value = found.value()
    head: dict[str, Any] = {"kind": "diff", **about, "shape": list(value.shape)}
    statistics = found.statistics
    arrays: dict[str, Any] = {"statistics": np.array([statistics[name] for name in STATISTICS], np.float64)}
    if bins := min(_MOST_BINS, int(want.get("bins") or 0)):
        histogram = _core.histogram(value, bins)
        arrays["edges"], arrays["hist"] = histogram["edges"], histogram["counts"].astype(np.uint32)
    if (image := want.get("image")) and value.size:
        _add_image(head, arrays, value, image)
    changed = found.changed(min(MOST_CHANGED, max(0, int(want.get("changed") or 0))))
    arrays["index"] = np.array(list(changed["index"]), np.uint32).reshape(changed.num_rows, value.ndim)
    for name in "ab":
        arrays[name] = _real(changed[name])
    return pack(head, arrays)


def _add_image(head: dict[str, Any], arrays: dict[str, Any], value: NDArray[Any], image: dict[str, Any]) -> None:
    wanted = ImageWanted(tuple(map(int, image["axes"])), tuple(map(int, image["fixed"])), "maxabs")
    rows, columns = (tuple(map(int, image[name])) if name in image else None for name in ("rows", "cols"))
    real = np.abs(value) if value.dtype.kind == "c" else value
    made = plane_of(real, wanted, min(_MOST_PIXELS, max(1, int(image["cells"]))), rows, columns)  # type: ignore[arg-type]
    head["image"] = {
        "axes": made.axes,
        "fixed": made.fixed,
        "rows": list(made.rows),
        "cols": list(made.columns),
        "shape": list(made.size),
    }
    arrays["image"], arrays["image_range"] = made.codes, np.array(made.limits, np.float64)


def _real(values: NDArray[Any]) -> NDArray[np.float64]:
    """Convert to numbers of the browser; complex ones to their magnitude."""
    with np.errstate(all="ignore"):
        return (np.abs(values) if values.dtype.kind == "c" else values).astype(np.float64)


def checked_cells(cells: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """Return the cells of a request, which all have the same number of axes."""
    if not 0 < len(cells) <= MOST_CELLS:
        raise SMDebugValueError(f"invalid number of cells {len(cells)}; needs 1 to {MOST_CELLS}")
    if len({len(cell) for cell in cells}) > 1 or any(at < 0 for cell in cells for at in cell):
        raise SMDebugValueError("invalid cells: every cell needs one index >= 0 for each axis of the tensor")
    return [tuple(cell) for cell in cells]


def lives(
    view: TensorView,
    order: Sequence[int],
    cells: Sequence[tuple[int, ...]],
    about: dict[str, Any],
    cancelled: Callable[[], bool],
) -> Iterator[tuple[bytes, int]]:
    """Yield packets with the values of cells, and the number of steps done.

    The steps are read in this order. Whole records are read, so that their checksums are verified. A step without a
    numeric value that has all the cells is left out.
    """
    steps: list[int] = []
    numbers: list[NDArray[np.float64]] = []
    last = time.monotonic()

    def part() -> bytes:
        y = np.array(numbers, np.float64).reshape(len(steps), len(cells))
        return pack(
            {"kind": "life", **about, "cells": [list(cell) for cell in cells]}, {"step": np.array(steps, float), "y": y}
        )

    for done, step in enumerate(order, 1):
        if cancelled():
            return
        try:
            found = _cells(view, step, cells)
        except SMDebugError:  # the record is damaged, or only reductions were saved
            found = None
        if found is not None:
            steps.append(step)
            numbers.append(found)
        if time.monotonic() - last >= PART_SECONDS or done == len(order):
            yield part(), done
            steps, numbers, last = [], [], time.monotonic()


def _cells(view: TensorView, step: int, cells: Sequence[tuple[int, ...]]) -> NDArray[np.float64] | None:
    value = view.value(step)
    if value.dtype.kind in "USOT" or any(
        len(cell) != value.ndim or any(at >= size for at, size in zip(cell, value.shape, strict=True)) for cell in cells
    ):
        return None
    return _real(np.array([value[cell] for cell in cells]))
