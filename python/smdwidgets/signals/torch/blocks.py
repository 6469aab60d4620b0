"""Size of the residual stream by block, and log Z of a language model."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["Blocks", "log_z"]

_TOKENS = 64


def _sampled(output: torch.Tensor) -> torch.Tensor:
    """Return some tokens of an output, one per row."""
    rows = output.detach()
    rows = rows.reshape(-1, rows.shape[-1]) if rows.is_contiguous() else rows[-1]
    return rows[:: max(1, rows.shape[0] // _TOKENS)][:_TOKENS].float()


def _hidden(output: Any) -> torch.Tensor | None:
    value = output[0] if isinstance(output, tuple | list) and output else output
    usable = isinstance(value, torch.Tensor) and value.ndim == 3 and value.is_floating_point() and value.numel()
    return value if usable else None


class Blocks:
    """Blocks of a model: members of lists of at least two modules of one class."""

    def __init__(self, model: nn.Module) -> None:
        #: By block: the list, the place in it, and the number of blocks. A list would keep its blocks alive.
        self._places: WeakIdKeyDictionary = WeakIdKeyDictionary()
        for part in model.modules():
            members = list(part) if isinstance(part, nn.ModuleList) else []
            if len(members) > 1 and len({type(one) for one in members}) == 1:
                for place, member in enumerate(members):
                    self._places[member] = weakref.ref(part), place, len(members)

    def measured(self, module: nn.Module, output: Any) -> tuple[nn.Module, int, int, torch.Tensor] | None:
        """Return list, place and number of blocks, and values of a block's output.

        The values are root mean square and kurtosis.
        """
        members, place, count = self._places.get(module) or (None, 0, 0)
        part = None if members is None else members()
        hidden = None if part is None else _hidden(output)
        if part is None or hidden is None:
            return None
        squares = _sampled(hidden).square()
        mean = squares.mean()
        return part, place, count, torch.stack([mean.sqrt(), squares.square().mean() / mean.square()])


def log_z(model: nn.Module, output: Any) -> torch.Tensor | None:
    """Return the mean of log Z over some tokens.

    It is None if the output is not that of a language model.
    """
    sizes = {one.num_embeddings for one in model.modules() if isinstance(one, nn.Embedding)}
    named = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else [output]
    for value in named:
        logits = _hidden(value) if isinstance(value, torch.Tensor) else None
        if logits is not None and logits.shape[-1] in sizes:
            return _sampled(logits).logsumexp(-1).mean().reshape(1)
    return None
