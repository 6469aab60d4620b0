"""Copy a PyTorch tensor from any device to memory that the hook owns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.capture.arrays import EXTENDED, Staging, TensorCopy
from smdwidgets.hooks.torch.device import DeviceCopies

__all__ = ["array_of", "copy_from_torch", "is_in_memory", "name_of_dtype"]

_NAMES = [
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
#: Older versions of PyTorch lack some of the unsigned types.
_DTYPES = {getattr(torch, name): (name, np.dtype(name)) for name in _NAMES if hasattr(torch, name)}
_DTYPES |= {getattr(torch, name): (name, held) for name, held in EXTENDED.items() if hasattr(torch, name)}
#: PyTorch has two of these in a byte, the first one in its lower half.
_PACKED = getattr(torch, "float4_e2m1fn_x2", None)
if _PACKED is not None:
    _DTYPES[_PACKED] = ("float4_e2m1fn", EXTENDED["float4_e2m1fn"])
#: Integers of fewer bits, one in each byte, are saved as these bytes.
_BYTES = {
    getattr(torch, f"{sign}int{bits}"): getattr(torch, f"{sign}int8")
    for sign in ("", "u")
    for bits in range(1, 8)
    if hasattr(torch, f"{sign}int{bits}")
}
#: The format has no complex numbers of 32 bits. The wider type has all of their values.
_WIDER = {torch.complex32: torch.complex64}


def copy_from_torch(
    name: str, value: torch.Tensor, staging: Staging, devices: DeviceCopies | None = None
) -> TensorCopy:
    """Copy a tensor directly into the write buffer.

    With ``devices``, the copy of a tensor on an accelerator has its values when it is completed.

    Raises:
        SMDebugTypeError: the format does not support the tensor's dtype.
    """
    tensor = value.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype in _WIDER:
        tensor = tensor.to(_WIDER[tensor.dtype])
    elif tensor.dtype in _BYTES:
        tensor = tensor.view(_BYTES[tensor.dtype])
    known = _DTYPES.get(tensor.dtype)
    if known is not None and known[1] == np.uint8 and tensor.dtype is not torch.uint8:
        # PyTorch copies bytes everywhere, but lacks the operators of smaller floats on some devices.
        tensor = _unpacked(tensor) if tensor.dtype is _PACKED else tensor.view(torch.uint8)
    shape = tuple(tensor.shape)
    if known is None:
        raise SMDebugTypeError(
            f"unsupported dtype {tensor.dtype} of tensor {shown(name)}; convert it to one of "
            f"{', '.join(dtype_name for dtype_name, _ in _DTYPES.values())}"
        )
    own_name, dtype = known
    if devices is not None and devices.has(tensor):
        room, slab = staging.allocate(dtype, shape, devices.host_memory)
        copy = TensorCopy(room, own_name, shape, slab)
        wait = devices.copy(tensor, _as_tensor(room, tensor.dtype))
        if wait is not None:
            copy.pending = functools.partial(_wait, copy, wait)
        return copy
    if _is_plain(tensor):
        room, slab = staging.copy(np.asarray(_Memory(tensor, dtype)))
    else:
        room, slab = staging.allocate(dtype, shape)
        _as_tensor(room, tensor.dtype).copy_(tensor)
    return TensorCopy(room, own_name, shape, slab)


def array_of(tensor: torch.Tensor) -> tuple[NDArray[Any], str] | None:
    """Return the memory of a tensor as an array, and the name of its element type.

    None: the elements do not lie one after the other on the CPU, or the format has no such type.
    """
    known = _DTYPES.get(tensor.dtype)
    if known is None or tensor.dtype is _PACKED or tensor.layout is not torch.strided or not _is_plain(tensor):
        return None
    return np.asarray(_Memory(tensor, known[1])), known[0]


def name_of_dtype(tensor: torch.Tensor) -> str:
    """Return the name that the format has for the type of a tensor's elements."""
    return _DTYPES[tensor.dtype][0]


def _unpacked(tensor: torch.Tensor) -> torch.Tensor:
    """Return one code in each byte of a tensor that has two in each.

    The last axis is twice as long.
    """
    pairs = tensor.view(torch.uint8)
    codes = torch.stack((pairs & 0xF, pairs >> 4), -1)
    return codes.reshape(*pairs.shape[:-1], -1) if pairs.ndim else codes


def _wait(copy: TensorCopy, wait: Callable[[], float]) -> None:
    copy.device_seconds = wait()


class _Memory:
    """The memory of a tensor, for NumPy.

    ``tensor.numpy()`` would fix the size of the tensor's storage for good, and FSDP could not free it.
    """

    def __init__(self, tensor: torch.Tensor, dtype: np.dtype[Any]) -> None:
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), True),
            "shape": tuple(tensor.shape),
            "typestr": dtype.str,
            "version": 3,
        }


def is_in_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor has elements, and its storage was not freed."""
    needed = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    return tensor.numel() > 0 and bool(tensor.untyped_storage().nbytes() >= needed)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether the memory of a tensor has its elements, one after the other."""
    simple = type(tensor) is torch.Tensor and tensor.is_cpu and tensor.is_contiguous()
    return simple and not (tensor.is_conj() or tensor.is_neg()) and is_in_memory(tensor)


def _as_tensor(array: NDArray[Any], dtype: torch.dtype) -> torch.Tensor:
    """View the memory of an array as a tensor."""
    if dtype is torch.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(dtype)
    return torch.from_numpy(array)
