"""Which rows of its data set a batch of a data loader has.

The functions wrap methods of the iterators of `torch.utils.data`: they note the indices that the sampler gave, so that
epochs, ranks and resumed trainings are right by construction.
"""

from __future__ import annotations

import collections
import numbers
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

__all__ = ["get_data", "next_index", "process_data", "rows_in_batch", "rows_of", "size_of"]

#: Attributes of an iterator: the indices by number of the request, the number of the last answer and its worker, and
#: how many rows each worker of an iterable data set has given.
_SENT: Final = "_smdwidgets_sent"
_RECEIVED: Final = "_smdwidgets_received"
_WORKER: Final = "_smdwidgets_worker"
_COUNTS: Final = "_smdwidgets_counts"
#: Names of columns that identify rows.
_ID_COLUMNS: Final = ("id", "ids", "idx", "index", "indices", "row_id", "row_ids")
_LONGEST_ID: Final = 100
#: The kind of an iterable data set in `torch.utils.data.dataloader`.
_ITERABLE: Final = 1


def next_index(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of ``_BaseDataLoaderIter._next_index``."""

    def wrapper(self: Any) -> Any:
        index = original(self)
        content = self.__dict__
        content.setdefault(_SENT, {})[content.get("_send_idx", 0)] = index
        return index

    return wrapper


def get_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of ``_MultiProcessingDataLoaderIter._get_data``."""

    def wrapper(self: Any) -> Any:
        data = original(self)
        if isinstance(data, tuple) and data:
            self.__dict__[_RECEIVED] = data[0]
        return data

    return wrapper


def process_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of ``_MultiProcessingDataLoaderIter._process_data``."""

    def wrapper(self: Any, data: Any, worker: int = 0, *args: Any, **kwargs: Any) -> Any:
        self.__dict__[_WORKER] = worker
        return original(self, data, worker, *args, **kwargs)

    return wrapper


def rows_of(iterator: Any, batch: Any) -> tuple[Any, ...] | None:
    """Return the rows of the batch that an iterator has just given.

    None: they are not known.
    """
    content = iterator.__dict__
    in_batch = rows_in_batch(batch)
    sent = content.get(_SENT, {})
    if hasattr(iterator, "_rcvd_idx"):
        in_order = content.get("_in_order", True)
        key = content["_rcvd_idx"] - 1 if in_order else content.get(_RECEIVED)
        index, worker = sent.pop(key, None), content.get(_WORKER, 0)
    else:
        index, worker = sent.pop(0, None), 0
    if content.get("_dataset_kind") == _ITERABLE:
        counts = content.setdefault(_COUNTS, collections.Counter())
        size, first = size_of(batch) if content.get("_auto_collation", True) else 1, counts[worker]
        counts[worker] += size
        return in_batch or tuple((worker, first + one) for one in range(size))
    if in_batch is not None or index is None:
        return in_batch
    indices = index if isinstance(index, list | tuple | torch.Tensor | range) else [index]
    return tuple(_plain(one) for one in indices)


def rows_in_batch(batch: Any) -> tuple[Any, ...] | None:
    """Return the column of a batch that identifies its rows; None: it has none."""
    if not isinstance(batch, Mapping):
        return None
    for name in _ID_COLUMNS:
        column = batch.get(name)
        if isinstance(column, torch.Tensor) and column.ndim == 1 and not column.is_floating_point():
            if column.device.type == "cpu" and len(column) == size_of(batch):
                return tuple(int(one) for one in column.tolist())
        elif isinstance(column, list) and column and all(isinstance(one, str | int) for one in column):
            return tuple(_plain(one) for one in column)
    return None


def size_of(batch: Any) -> int:
    """Return the number of rows of a batch."""
    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    values = list(batch.values()) if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    for one in values:
        if isinstance(one, torch.Tensor) and one.ndim:
            return len(one)
    for one in values:
        if isinstance(one, Mapping | list | tuple):
            return size_of(one)
    return len(values) if isinstance(batch, list) else 1


def _plain(index: Any) -> Any:
    if isinstance(index, torch.Tensor):
        index = index.item() if index.numel() == 1 else index.tolist()
    if isinstance(index, numbers.Integral):
        return int(index)
    if isinstance(index, tuple | list):
        return tuple(_plain(one) for one in index[:8])
    return str(index)[:_LONGEST_ID]
