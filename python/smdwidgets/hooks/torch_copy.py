"""From a torch tensor, wherever it is, to bytes that the hook owns: one copy, without a change."""

from __future__ import annotations

import numpy as np
import torch

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError
from smdwidgets.hooks.arrays import Held, Staging

__all__ = ["owned_from_torch"]

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
#: Older versions of torch lack some of the unsigned ones.
_DTYPES = {getattr(torch, name): (name, np.dtype(name)) for name in _NAMES if hasattr(torch, name)}
#: numpy has no such type: its bytes travel as uint16.
_DTYPES[torch.bfloat16] = ("bfloat16", np.dtype("uint16"))


def owned_from_torch(name: str, value: torch.Tensor, staging: Staging) -> Held:
    """A copy of a tensor straight into the buffer that is written from. TypeError for what a run can't hold."""
    tensor = value.detach() if value.requires_grad else value
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    shape = tuple(tensor.shape)
    known = _DTYPES.get(tensor.dtype)
    if known is None:
        raise SMDebugTypeError(f"{shown(name)} is of {tensor.dtype}, which a run can't hold: convert it first.")
    own_name, dtype = known
    room, slab = staging.room(dtype, shape)
    if own_name == "bfloat16":
        torch.from_numpy(room.view(np.int16)).view(torch.bfloat16).copy_(tensor)
    else:
        torch.from_numpy(room).copy_(tensor)
    return Held(room, own_name, shape, slab)
