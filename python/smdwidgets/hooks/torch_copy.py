"""Copy a PyTorch tensor from any device to memory that the hook owns."""

from __future__ import annotations

import numpy as np
import torch

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.arrays import Staging, TensorCopy

__all__ = ["copy_from_torch"]

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
#: NumPy has no bfloat16, so its bytes are stored as uint16.
_DTYPES[torch.bfloat16] = ("bfloat16", np.dtype("uint16"))


def copy_from_torch(name: str, value: torch.Tensor, staging: Staging) -> TensorCopy:
    """Copy a tensor directly into the write buffer.

    Raises:
        SMDebugTypeError: the format does not support the tensor's dtype.
    """
    tensor = value.detach() if value.requires_grad else value
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    shape = tuple(tensor.shape)
    known = _DTYPES.get(tensor.dtype)
    if known is None:
        raise SMDebugTypeError(
            f"unsupported dtype {tensor.dtype} of tensor {shown(name)}; convert it to one of "
            f"{', '.join(dtype_name for dtype_name, _ in _DTYPES.values())}"
        )
    own_name, dtype = known
    room, slab = staging.allocate(dtype, shape)
    if own_name == "bfloat16":
        torch.from_numpy(room.view(np.int16)).view(torch.bfloat16).copy_(tensor)
    else:
        torch.from_numpy(room).copy_(tensor)
    return TensorCopy(room, own_name, shape, slab)
