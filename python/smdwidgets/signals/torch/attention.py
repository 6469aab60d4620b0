"""Largest logit and entropy of attention, per head, of sampled queries.

Two rows of the batch and 24 queries are read with all keys. Rows and 8 of the queries are chosen by the length of
queries, for the largest logit. The entropy is that of the other 16: late queries, which have the most keys.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

__all__ = [
    "QUERIES",
    "AttentionSample",
    "fused_kernel",
    "is_attention",
    "measured",
    "of_softmax",
    "of_tensors",
    "places_of",
]

ROWS, QUERIES = 2, 16
#: Queries of each row and head that are read beside them, because they are the longest of so many queries and rows.
_LONGEST, _LOOKED, _LOOKED_ROWS = 8, 64, 8
#: Queries whose logits are compared where a model has computed them.
_COMPARED = 64
#: A logit so far below the largest of its query is that of a masked key.
_MASKED = 5e3
#: Words in the class name of a module whose softmax is taken for attention though it is not square.
_NAMES = ("att", "head", "mha")

#: Functions that compute attention without scores that PyTorch shows, and what Transformers calls them.
_FUSED = (
    "flex_attention",
    "flash_attn_varlen_func",
    "flash_attn_func",
    "flash_attn_qkvpacked_func",
    "memory_efficient_attention",
    "varlen_attn",
)
_IMPLEMENTATIONS = ("flex_attention", "flash_attention_2", "flash_attention_3")

AttentionSample = tuple[torch.Tensor, torch.Tensor]
"""Largest logit and relative entropy by head."""


def places_of(length: int, rows: int, chance: random.Random) -> tuple[slice, slice]:
    """Return which rows of a batch and which queries are read."""
    first = chance.randrange(max(1, rows - ROWS + 1))
    late = length - length // 2
    step = max(1, late // QUERIES)
    begin = length // 2 + chance.randrange(step)
    return slice(first, first + ROWS), slice(begin, begin + step * QUERIES, step)


def of_tensors(args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random) -> AttentionSample | None:
    """Return the sample of a call of ``scaled_dot_product_attention``.

    It is None if the arguments are unusual.
    """
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    query, key, mask = arguments["query"].detach(), arguments["key"].detach(), arguments.get("attn_mask")
    if query.ndim == 3:  # one head
        query, key = query.unsqueeze(1), key.unsqueeze(1)
        mask = mask.unsqueeze(1) if mask is not None and mask.ndim == 3 else mask
    if query.ndim != 4 or key.ndim != 4 or not query.numel() or not key.numel() or query.is_nested:
        return None
    rows, places = _chosen(query, chance)
    length, heads = query.shape[2], torch.arange(query.shape[1], device=query.device)[:, None]
    every = rows[:, None, None]
    query = query[every, heads, places].float()
    key = (key.index_select(0, rows) if key.shape[0] > 1 else key).float()
    if key.shape[1] != query.shape[1]:  # grouped queries
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scale = arguments.get("scale")
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    with torch.autocast(query.device.type, enabled=False):
        logits = query @ key.transpose(-1, -2) * scale
    visible = None
    if arguments.get("is_causal"):
        visible = torch.arange(logits.shape[-1], device=logits.device) <= places[..., None]
    if mask is not None:
        mask = mask.detach().reshape((1,) * (4 - mask.ndim) + mask.shape)
        mask = mask[
            every if mask.shape[0] > 1 else every * 0,
            heads if mask.shape[1] > 1 else heads * 0,
            places if mask.shape[2] == length else places * 0,
        ]
        if mask.dtype is torch.bool:
            visible = mask if visible is None else mask & visible
        else:
            logits = logits + mask.float()
    if visible is not None:
        logits = logits.masked_fill(~visible, -math.inf)
    return measured(logits, count=QUERIES)


def _chosen(query: torch.Tensor, chance: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of a batch, and the queries of each row and head, that are read.

    The first queries are late ones, spread evenly. Those after them are the longest of some that were looked at: long
    queries have the largest logits. The rows are those with the longest queries.
    """
    count, _, length, _ = query.shape
    rows = min(count, _LOOKED_ROWS)
    first = chance.randrange(count - rows + 1)
    step = -(-length // _LOOKED)
    begin = chance.randrange(step)
    norms = torch.linalg.vector_norm(query[first : first + rows, :, begin::step], dim=-1, dtype=torch.float32)
    relative = norms.amax(2) / norms.mean((0, 2)).clamp_min(1e-30)
    best = relative.mean(1).topk(min(ROWS, rows)).indices
    longest = norms[best].topk(min(_LONGEST, norms.shape[2])).indices * step + begin
    even = places_of(length, count, chance)[1]
    spread = torch.arange(length, device=query.device)[even].expand(*longest.shape[:2], -1)
    return first + best, torch.cat([spread, longest], -1)


def of_softmax(
    args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, module: nn.Module, chance: random.Random
) -> AttentionSample | None:
    """Return the sample of a softmax over keys; None if it is another softmax."""
    logits = args[0] if args else kwargs.get("input")
    axis = args[1] if len(args) > 1 else kwargs.get("dim")
    if not isinstance(logits, torch.Tensor) or not isinstance(axis, int) or logits.ndim not in (3, 4):
        return None
    if axis not in (-1, logits.ndim - 1) or not logits.numel() or not logits.is_floating_point():
        return None
    logits, shares = logits.detach(), result.detach()
    if logits.ndim == 3:  # rows and heads are one axis in the attention of PyTorch
        heads = getattr(module, "num_heads", 0)
        if not (isinstance(module, nn.MultiheadAttention) and heads and logits.shape[0] % heads == 0):
            return None
        logits, shares = (one.reshape(-1, heads, *one.shape[1:]) for one in (logits, shares))
    name = type(module).__name__.lower()
    if logits.shape[-1] < 2 or (logits.shape[-1] != logits.shape[-2] and not any(word in name for word in _NAMES)):
        return None
    length = logits.shape[2]
    rows, queries = places_of(length, logits.shape[0], chance)
    some, shares = logits[rows, :, queries].float(), shares[rows, :, queries].float()
    largest, entropy = measured(_without_sink(some, module), shares)
    late = slice(length // 2, None, -(-(length - length // 2) // _COMPARED))
    others = _without_sink(logits[rows, :, late].float(), module).amax((0, 2, 3))
    return torch.maximum(largest, others), entropy


def _without_sink(logits: torch.Tensor, module: nn.Module) -> torch.Tensor:
    """Return logits without those of a sink, which are the last ones.

    A model with sinks may have subtracted the largest logit. The sink is a parameter by head, so that its logit says
    how much was subtracted.
    """
    sinks = getattr(module, "sinks", None)
    if not isinstance(sinks, torch.Tensor) or sinks.shape != logits.shape[1:2]:
        return logits
    subtracted = sinks.detach().to(logits.device, torch.float32)[None, :, None] - logits[..., -1]
    return torch.cat([logits[..., :-1] + subtracted[..., None], torch.full_like(logits[..., -1:], -math.inf)], -1)


def fused_kernel(model: nn.Module) -> str:
    """Return the name of the kernel by which a model attends.

    It is empty unless the configuration of Transformers, or a file that defines a module of attention, names one whose
    logits are not seen.
    """
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(chosen, str) and chosen in _IMPLEMENTATIONS:
        return chosen
    namespaces = {type(one).__module__ for one in model.modules() if is_attention(one)}
    for namespace in sorted(namespaces):
        names = vars(sys.modules[namespace]) if namespace in sys.modules else {}
        for name in _FUSED:
            if callable(names.get(name)):
                return name
    return ""


def is_attention(module: nn.Module) -> bool:
    """Whether a module seems to attend, by the name of its class."""
    name = type(module).__name__.lower()
    return "attention" in name or "attn" in name


def measured(logits: torch.Tensor, shares: torch.Tensor | None = None, count: int | None = None) -> AttentionSample:
    """Return the largest logit and the relative entropy of each head.

    The entropy is divided by the logarithm of the number of keys that a query sees.

    Args:
        logits: logits by row, head, query and key.
        shares: the shares of the keys; None: those that a softmax gives.
        count: number of queries whose entropy counts; None: all.
    """
    largest, logits = logits.amax((0, 2, 3)), logits[:, :, :count]
    below = logits - logits.amax(-1, keepdim=True)
    keys = (below > -_MASKED).sum(-1)
    if shares is None:
        below = below.clamp_min(-_MASKED)
        powers = below.exp()
        total = powers.sum(-1)
        entropy = total.log() - (powers * below).sum(-1) / total
    else:
        entropy = -torch.xlogy(shares, shares).sum(-1)
    entropy = entropy / keys.clamp_min(2).log()
    counts = (keys > 1) & entropy.isfinite()
    mean = torch.where(counts, entropy, 0.0).sum((0, 2)) / counts.sum((0, 2))  # NaN if no query sees two keys
    return largest, mean
