"""Read samples of tensors without waiting for a device.

A value on the CPU is judged at once. A value on a CUDA device is copied to pinned memory behind the operations that
are queued there, and judged at a later event, when the copy is complete.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Judge", "Values", "is_plain", "sampled", "some_rows", "stride_of"]

Judge = Callable[..., object]
"""Called with one float64 array per tensor."""

#: Copies that may be under way. Further ones are not begun, so that memory is bounded if no event completes them.
_MOST_PENDING = 64


def is_plain(tensor: object) -> bool:
    """Whether a tensor is dense and of no subclass.

    Operations on a tensor subclass, such as a sharded or quantized tensor, may communicate.
    """
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and isinstance(tensor, torch.Tensor)
        and tensor.layout is torch.strided
        and (tensor.is_cpu or tensor.is_cuda)
        and not (tensor.dtype.is_complex or tensor.is_quantized)
    )


def stride_of(number: int, row: int, count: int) -> int:
    """Return the distance of about ``count`` elements, spread evenly.

    It has no common divisor with the size of a row, so that they are not of one column.
    """
    stride = max(1, number // count)
    while stride > 1 and math.gcd(stride, row) > 1:
        stride -= 1
    return stride


def sampled(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return about ``count`` elements, spread evenly.

    Tensors of one shape give the same places.
    """
    flat = tensor.detach().reshape(-1) if tensor.is_contiguous() else _flat(tensor.detach())
    number = flat.numel()
    if number <= count:
        return flat
    return flat[:: stride_of(number, tensor.shape[-1] if tensor.ndim else 1, count)][:count]


def some_rows(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return at most ``count`` rows, spread evenly over all.

    The first rows of a batch that nobody has shuffled are alike. Tensors of as many rows give the same places.

    >>> some_rows(torch.arange(10), 4)
    tensor([0, 2, 4, 6])
    """
    return tensor[:: max(1, tensor.shape[0] // count)][:count]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return elements of a tensor that is not contiguous, without copying all."""
    if tensor.ndim < 2:
        return tensor.reshape(-1)
    first = tensor.shape[0]
    rows = max(1, min(first, 1_000_000 * first // max(1, tensor.numel())))
    return tensor[:rows].reshape(-1)


class Values:
    """Reads samples.

    Args:
        failed: called with the exception of a judge.
    """

    def __init__(self, failed: Callable[[Exception], object]) -> None:
        self._failed = failed
        self._pending: deque[tuple[Any, Judge, Sequence[torch.Tensor]]] = deque()

    @property
    def are_pending(self) -> bool:
        """Whether copies are under way."""
        return bool(self._pending)

    def read(self, judge: Judge, *tensors: torch.Tensor) -> None:
        """Call ``judge`` with the values of the tensors, now or later."""
        devices = {one.device for one in tensors if one.device.type != "cpu"}
        if not devices:
            judge(*(_array(one) for one in tensors))
            return
        if len(devices) > 1 or len(self._pending) >= _MOST_PENDING or torch.cuda.is_current_stream_capturing():
            return
        copies = [_pinned(one) for one in tensors]
        done = torch.cuda.Event()
        done.record(torch.cuda.current_stream(next(iter(devices))))
        self._pending.append((done, judge, copies))

    def poll(self, wait: bool = False) -> None:
        """Judge the copies that are complete.

        ``wait``: judge all; the training has ended.
        """
        while self._pending and (wait or self._pending[0][0].query()):
            done, judge, copies = self._pending.popleft()
            if wait:
                done.synchronize()
            try:
                judge(*(_array(one) for one in copies))
            except Exception as error:
                self._failed(error)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor.clone()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return copy.copy_(tensor.contiguous(), non_blocking=True)


def _array(tensor: torch.Tensor) -> NDArray[np.float64]:
    array: NDArray[np.float64] = tensor.detach().to(torch.float64).numpy()
    return array
