"""Copies from an accelerator for which the training's thread does not wait.

A copy goes into page-locked memory and is queued on the stream of the training. Whatever the training queues
afterwards, such as a change of the tensor, runs after it; on a separate stream it would have to be waited for before
the next operation. An event behind the copy tells the writer's thread when the values are there.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.values import stride_of
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.capture.in_place import PART

__all__ = ["Accelerator", "Cuda", "Described", "DeviceCopies", "Sample", "sample_of"]

logger = logging.getLogger("smdwidgets.hooks")

#: Copies of so many bytes are timed.
_TIMED = 1 << 20


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

    def copy(self, tensor: torch.Tensor, room: torch.Tensor) -> Callable[[], float]:
        """Queue a copy to page-locked memory.

        Return a function that waits until it is made, and returns the seconds for which the device was busy with it, or
        0 if it is small.
        """

    def statistics(self, tensor: torch.Tensor, sample: Sample | None) -> Described | None:
        """Queue a computation of the statistics of a tensor.

        Return None if it is not done for this tensor.
        """


#: Numbers on a device, and what returns the statistics when they have been copied to the host.
Described = tuple[torch.Tensor, Callable[[NDArray[np.float64]], Mapping[str, float]]]


@dataclass(slots=True)
class Sample:
    """Some elements of a parameter on its device, to measure its change.

    Attributes:
        values: the elements at the last step that has statistics.
        stride: their distance in the parameter.
        step: number of that step; None: the elements are not known yet.
        is_before: whether that step was before the current one.
    """

    values: torch.Tensor
    stride: int
    step: int | None = None
    is_before: bool = False

    def fits(self, parameter: torch.Tensor) -> bool:
        """Whether a sample of this parameter has these places."""
        count, stride = _places(parameter)
        return (count, stride, parameter.device) == (len(self.values), self.stride, self.values.device)


def sample_of(parameter: torch.Tensor) -> Sample:
    """Return a sample for a parameter."""
    count, stride = _places(parameter)
    return Sample(torch.zeros(count, dtype=torch.float32, device=parameter.device), stride)


def _places(parameter: torch.Tensor) -> tuple[int, int]:
    number = parameter.numel()
    stride = stride_of(number, parameter.shape[-1] if parameter.ndim else 1, PART)
    return min(-(-number // stride), PART), stride


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

    def copy(self, tensor: torch.Tensor, room: torch.Tensor) -> Callable[[], float]:
        """Queue a copy on the current stream.

        Return a function that waits until it is made.
        """
        stream = torch.cuda.current_stream(tensor.device)
        is_large = tensor.nbytes >= _TIMED
        begun = torch.cuda.Event(enable_timing=True) if is_large else None
        if begun is not None:
            begun.record(stream)
        room.copy_(tensor, non_blocking=True)
        copied = torch.cuda.Event(blocking=True, enable_timing=is_large)
        copied.record(stream)

        def wait() -> float:
            copied.synchronize()
            return 0.0 if begun is None else begun.elapsed_time(copied) / 1e3

        return wait

    def statistics(self, tensor: torch.Tensor, sample: Sample | None) -> Described | None:
        """Queue kernels that read a tensor once, on the current stream."""
        kernels = _kernels()
        if kernels is None or not kernels.is_dense(tensor):
            return None
        with torch.cuda.device(tensor.device):
            described: Described = kernels.describe(tensor, sample)
        return described


@functools.cache
def _kernels() -> ModuleType | None:
    """Return the module that computes statistics; None without a compiler."""
    try:
        return importlib.import_module("smdwidgets.hooks.torch.device_statistics")
    except Exception as error:  # whatever a library of another version raises
        logger.info("statistics are computed on the CPU, because Triton cannot be used: %s", error)
        return None


class DeviceCopies:
    """Copies tensors from an accelerator.

    After the first failure, by copies that are waited for.
    """

    def __init__(self, accelerator: Accelerator | None = None) -> None:
        self._accelerator: Accelerator = Cuda() if accelerator is None else accelerator
        self._works = self._reduces = True

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

    def copy(self, tensor: torch.Tensor, room: torch.Tensor) -> Callable[[], float] | None:
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

    def statistics(self, tensor: torch.Tensor, sample: Sample | None, step: int) -> Described | None:
        """Compute the statistics of a tensor on its device; None if that is not possible.

        Args:
            tensor: the tensor.
            sample: the sample of a parameter, which is brought up to date.
            step: number of the current step.
        """
        if not self._reduces:
            return None
        if sample is not None:
            sample.is_before, sample.step = sample.step is not None and sample.step < step, step
        try:
            return self._accelerator.statistics(tensor, sample)
        except Exception as error:
            self._reduces = False
            logger.warning("statistics are computed on the CPU, not on the device: %s: %s", type(error).__name__, error)
            return None

    def _fail(self, error: Exception) -> None:
        if self._works:
            self._works = False
            logger.warning("the training waits for copies from its device: %s: %s", type(error).__name__, error)
