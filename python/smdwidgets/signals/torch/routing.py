"""Load of experts: how many tokens a router sends to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

__all__ = ["load_of", "looks_like_experts"]

_LEAST, _MOST = 4, 4096
#: Choices that are counted on a device at most.
_COMPARED = 1 << 22


def load_of(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, module: nn.Module) -> torch.Tensor | None:
    """Return the load of each expert, 1 for an equal share.

    It is None if a topk does not route.

    A router chooses along the last axis, among as many experts as a parameter or a list of its module has.
    """
    scores = args[0] if args else kwargs.get("input")
    chosen = result[1] if isinstance(result, tuple) and len(result) > 1 else None
    if not isinstance(scores, torch.Tensor) or not isinstance(chosen, torch.Tensor) or scores.ndim < 2:
        return None
    axis = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    count = scores.shape[-1]
    if axis not in (-1, scores.ndim - 1) or not scores.is_floating_point() or not scores.numel():
        return None
    if not _LEAST <= count <= _MOST or chosen.shape[-1] >= count or not _routes(module, count):
        return None
    chosen = chosen.detach().reshape(-1)
    if chosen.device.type == "cpu":
        counts = torch.bincount(chosen, minlength=count)
    else:  # bincount would wait for the device
        chosen = chosen[:: max(1, -(-chosen.numel() * count // _COMPARED))]
        counts = (chosen[:, None] == torch.arange(count, device=chosen.device)).sum(0)
    return counts.float() * (count / max(1, chosen.numel()))


def _routes(module: nn.Module, count: int) -> bool:
    if any(count in (one.shape[0], one.shape[-1]) for one in module.parameters() if one.ndim):
        return True
    return any(isinstance(one, nn.ModuleList) and len(one) == count for one in module.children())


def looks_like_experts(model: nn.Module) -> bool:
    """Whether a model seems to have experts, by the names of its modules."""
    return any(
        name.rpartition(".")[2] == "experts" or any(word in type(part).__name__ for word in ("MoE", "Moe", "SparseMLP"))
        for name, part in model.named_modules()
    )
