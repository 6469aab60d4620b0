"""Checks whether reading a data set changes the data that it keeps."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["StoredChecks"]

#: Arrays and rows of each that are watched, elements of a row that are read, and fewest values that a row has.
_ARRAYS, _ROWS, _ELEMENTS, _FEWEST = 2, 6, 97, 4
#: Rows that must change, each so often, and batches after which no more are read.
_CHANGED, _TIMES, _MOST_BATCHES = 3, 2, 4096
#: Epochs in which nothing changes, after which nothing will.
_EPOCHS = 2


@dataclass(slots=True)
class _Row:
    """A row of an array of a data set, as it was after the last batch."""

    attribute: str
    number: int
    values: NDArray[Any]


class StoredChecks:
    """Watches rows that data sets keep as arrays or tensors.

    A row that changes each time that it is read is given in the form that it has then: code such as `row -= mean` has
    changed the data themselves. A cache changes a row once.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._data: Any = None
        self._rows: list[_Row] = []
        self._times: Counter[tuple[str, int]] = Counter()
        self._batches = self._epochs = 0
        self._ended = False

    def batch(self, iterator: Any, tensors: list[torch.Tensor], gradients: bool) -> None:
        """A data loader has given a batch with these tensors.

        ``gradients``: whether for the training. An evaluation may read other rows of the same data.
        """
        if self._ended or getattr(iterator, "_num_workers", 0) > 0:  # a worker process has other data
            return
        data = _whole(getattr(iterator, "_dataset", None))
        if data is not self._data and not gradients:
            return
        if data is not self._data:
            self._data, self._times, self._epochs = data, Counter(), 0
            self._rows = list(_rows_of(data))
        if gradients and getattr(iterator, "_num_yielded", 0) == 1:
            self._epochs += 1
        self._batches += 1
        changed = [row for row in self._rows if self._has_changed(row)]
        if changed:
            self._judge(changed, tensors)
        self._ended |= self._batches > _MOST_BATCHES or (self._epochs > _EPOCHS and not self._times)

    def _has_changed(self, row: _Row) -> bool:
        """Whether a row differs from what it was; remember what it is."""
        before, now = row.values, _values_of(self._data, row.attribute, row.number)
        if now is None or now.shape != before.shape:
            self._ended = True
            return False
        row.values = now
        return not np.array_equal(before, now, equal_nan=True)

    def _judge(self, changed: list[_Row], tensors: list[torch.Tensor]) -> None:
        log = self._context.log
        for row in changed:
            if not _is_in(row.values, tensors):  # the script changes its data, or keeps something beside them
                self._ended = True
                log.unseen("inputs_changed")
                return
            self._times[row.attribute, row.number] += 1
        often = [number for (_, number), times in self._times.items() if times >= _TIMES]
        if len(often) >= _CHANGED:
            what = f"row {often[0]:,} of `{changed[0].attribute}` of the data set changes each time that it is read"
            log.say("inputs_changed", self._context.step, {"what": what})
            self._ended = True


def _whole(data: Any) -> Any:
    """Return the data set that a subset is taken from."""
    while isinstance(getattr(data, "dataset", None), torch.utils.data.Dataset):
        data = data.dataset
    return data


def _rows_of(data: Any) -> Iterator[_Row]:
    """Yield rows of the arrays that a data set keeps, evenly spread."""
    arrays = 0
    for attribute, kept in getattr(data, "__dict__", {}).items():
        count = len(kept) if isinstance(kept, list) or (_is_array(kept) and kept.ndim > 1) else 0
        numbers = sorted({place * (count - 1) // (_ROWS - 1) for place in range(_ROWS)}) if count >= _ROWS else []
        rows = [(number, _values_of(data, attribute, number)) for number in numbers]
        if not rows or any(values is None for _, values in rows):
            continue
        yield from (_Row(attribute, number, values) for number, values in rows if values is not None)
        arrays += 1
        if arrays == _ARRAYS:
            return


def _is_array(kept: Any) -> bool:
    """Whether something is an array of floating-point numbers in memory."""
    if isinstance(kept, torch.Tensor):
        return is_plain(kept) and kept.is_cpu and kept.is_floating_point()
    return type(kept) is np.ndarray and kept.dtype in (np.float16, np.float32, np.float64)


def _values_of(data: Any, attribute: str, number: int) -> NDArray[Any] | None:
    """Return a sample of a row; None: there is no such row of numbers."""
    try:
        row = data.__dict__[attribute][number]
    except (KeyError, IndexError, TypeError):
        return None
    if not _is_array(row) or row.ndim < 1 or math.prod(row.shape) < _FEWEST:
        return None
    return _sample(row if isinstance(row, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(row))).copy()


def _sample(row: torch.Tensor) -> NDArray[Any]:
    values: NDArray[Any] = sampled(row, _ELEMENTS).to(torch.float64).numpy()
    return values


def _is_in(values: NDArray[Any], tensors: list[torch.Tensor]) -> bool:
    """Whether a row of a batch has these values."""
    for tensor in tensors:
        if not is_plain(tensor) or not tensor.is_cpu or tensor.ndim < 2 or not tensor.is_floating_point():
            continue
        rows = map(_sample, tensor.detach())
        if any(row.shape == values.shape and np.allclose(row, values, rtol=1e-5, equal_nan=True) for row in rows):
            return True
    return False
