"""Copies from an accelerator for which the training's thread does not wait.

A copy goes into page-locked memory and is queued on the stream of the training. Whatever the training queues
afterwards, such as a change of the tensor, runs after it; on a separate stream it would have to be waited for before
the next operation. An event behind the copy tells the writer's thread when the values are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.exceptions import SMDebugTypeError

__all__ = ["Accelerator", "Cuda", "DeviceCopies"]

logger = logging.getLogger("smdwidgets.hooks")


class Accelerator(Protocol):
    """What copies need of a kind of device."""

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on a device of this kind."""

    def is_capturing(self) -> bool:
        """Whether operations are recorded to be run later.

        A copy would then be made again and again.
        """

    def host_memory(self, size: int) -> NDArray[np.uint8]:
        """Allocate page-locked memory."""

    def copy(self, tensor: torch.Tensor, room: torch.Tensor) -> Callable[[], None]:
        """Queue a copy to page-locked memory.

        Return a function that waits until it is made.
        """


class Cuda:
    """NVIDIA and AMD GPUs."""

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on a GPU."""
        return bool(tensor.is_cuda)

    def is_capturing(self) -> bool:
        """Whether a CUDA graph is being captured."""
        return bool(torch.cuda.is_current_stream_capturing())

    def host_memory(self, size: int) -> NDArray[np.uint8]:
        """Allocate page-locked memory."""
        memory: NDArray[np.uint8] = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
        return memory

    def copy(self, tensor: torch.Tensor, room: torch.Tensor) -> Callable[[], None]:
        """Queue a copy on the current stream.

        Return a function that waits until it is made.
        """
        room.copy_(tensor, non_blocking=True)
        copied = torch.cuda.Event(blocking=True)
        copied.record(torch.cuda.current_stream(tensor.device))
        wait: Callable[[], None] = copied.synchronize
        return wait


class DeviceCopies:
    """Copies tensors from an accelerator.

    After the first failure, by copies that are waited for.
    """

    def __init__(self, accelerator: Accelerator | None = None) -> None:
        self._accelerator: Accelerator = Cuda() if accelerator is None else accelerator
        self._works = True

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the accelerator.

        Raises:
            SMDebugTypeError: a graph of the device's operations is being captured.
        """
        if not self._accelerator.has(tensor):
            return False
        if self._accelerator.is_capturing():
            raise SMDebugTypeError("a tensor that a CUDA graph computes cannot be saved while the graph is captured")
        return self._works

    def host_memory(self, size: int) -> NDArray[np.uint8]:
        """Allocate page-locked memory, or other memory if there is none."""
        try:
            return self._accelerator.host_memory(size)
        except Exception as error:
            self._fail(error)
            return np.empty(size, np.uint8)

    def copy(self, tensor: torch.Tensor, room: torch.Tensor) -> Callable[[], None] | None:
        """Copy a tensor.

        Return a function that waits for it, or None if that has been done.
        """
        if self._works:
            try:
                return self._accelerator.copy(tensor, room)
            except Exception as error:
                self._fail(error)
        room.copy_(tensor)
        return None

    def _fail(self, error: Exception) -> None:
        if self._works:
            self._works = False
            logger.warning("the training waits for copies from its device: %s: %s", type(error).__name__, error)
