"""Reductions of a tensor by PyTorch, on the device where the tensor is.

They are computed in double precision and rounded to the tensor's type, as the core does.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["can_reduce", "reduce"]

#: Types whose sums of squares fit into double precision.
_DTYPES = frozenset([torch.float16, torch.float32])
_OPERATIONS = frozenset(["min", "max", "mean", "std", "variance", "sum", "l1", "l2"])
#: Elements that are converted to double precision at once.
_PART = 1 << 22


def can_reduce(tensor: torch.Tensor, wanted: Sequence[tuple[str, bool]]) -> bool:
    """Whether :func:`reduce` computes these reductions of a tensor."""
    plain = tensor.layout is torch.strided and tensor.dtype in _DTYPES and tensor.numel() > 0
    return plain and _OPERATIONS.issuperset(operation for operation, _ in wanted)


def reduce(tensor: torch.Tensor, wanted: Sequence[tuple[str, bool]]) -> torch.Tensor:
    """Return reductions of a tensor, as numbers in double precision on its device.

    Args:
        tensor: the tensor.
        wanted: names of reductions, and whether each is of the magnitudes.
    """
    flat = tensor.detach().reshape(-1)
    count = flat.numel()
    parts = [part.double() for part in flat.split(_PART)]
    sums = torch.stack([part.sum() for part in parts]).sum()
    magnitudes = torch.stack([torch.linalg.vector_norm(part, 1) for part in parts]).sum()
    l2 = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(part) for part in parts]))
    low, high = torch.aminmax(flat)
    found: dict[tuple[str, bool], torch.Tensor] = {
        ("sum", False): sums,
        ("sum", True): magnitudes,
        ("mean", False): sums / count,
        ("mean", True): magnitudes / count,
        ("min", False): low,
        ("max", False): high,
    }
    found.update({(name, of): value for name, value in (("l1", magnitudes), ("l2", l2)) for of in (False, True)})
    if any(of and name in ("min", "max") for name, of in wanted):
        found["min", True], found["max", True] = torch.aminmax(flat.abs())
    for of in {of for name, of in wanted if name in ("std", "variance")}:
        mean = found["mean", of]
        squares = torch.stack([((part.abs() if of else part) - mean).square().sum() for part in parts]).sum()
        found["variance", of] = squares / count
        found["std", of] = found["variance", of].sqrt()
    return torch.stack([found[one].double() for one in wanted])
