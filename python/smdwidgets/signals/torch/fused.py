"""Sampled attention of functions that compute it in one kernel.

These are flex attention, and those of packed sequences.
Their scores are computed again for a few queries, with the masks, windows, caps and modifications of the call. Nothing
waits for a device: lengths of sequences that are there stay there.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from smdwidgets.signals.torch.attention import QUERIES, AttentionSample, measured, of_tensors, places_of

__all__ = ["FUSED", "of_attention", "read_fused"]

logger = logging.getLogger("smdwidgets.hooks")

#: Keys with which queries of packed sequences of different lengths are read at most.
_MOST_KEYS: Final = 1 << 15

Read = Callable[[Sequence[Any], Mapping[str, Any], random.Random], AttentionSample | None]
"""Returns the sample of a call by its arguments; None if they are unusual."""


def _by_name(names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _logits(query: torch.Tensor, key: torch.Tensor, scale: float | None) -> torch.Tensor:
    """Return the logits of queries and keys of the shape (rows, heads, places, size)."""
    query, key = query.float(), key.float()
    if key.shape[1] != query.shape[1]:  # grouped queries
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    with torch.autocast(query.device.type, enabled=False):
        return query @ key.transpose(-1, -2) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)


def _sample(logits: torch.Tensor, visible: torch.Tensor | None) -> AttentionSample:
    logits = logits if visible is None else logits.masked_fill(~visible, -math.inf)
    return measured(logits)


# ------------------------------------------------------------------------------------------------------ flex attention


def _of_flex(names: Sequence[str]) -> Read:
    def read(args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random) -> AttentionSample | None:
        named = _by_name(names, args, kwargs)
        query, key = named["query"].detach(), named["key"].detach()
        if query.ndim != 4 or key.ndim != 4 or not query.numel() or not key.numel() or query.is_nested:
            return None
        rows, queries = places_of(query.shape[2], query.shape[0], chance)
        sizes = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
        row, head, at, key_at = (torch.arange(size, device=query.device) for size in sizes)
        places = row[rows], head, at[queries], key_at
        key = key[rows] if key.shape[0] > 1 else key
        logits = _logits(query[rows, :, queries], key, named.get("scale"))
        change = named.get("score_mod")
        if change is not None:
            logits = _at_places(change, has_scores=True)(logits, *places)
        mask = getattr(named.get("block_mask"), "mask_mod", None)
        return _sample(logits, None if mask is None else _at_places(mask, has_scores=False)(*places))

    return read


def _at_places(call: Callable[..., Any], *, has_scores: bool) -> Callable[..., torch.Tensor]:
    """Return a function of single places as one of all rows, heads, queries and keys."""
    for axis in reversed(range(4)):
        scores = (0,) if has_scores else ()
        call = torch.vmap(call, in_dims=(*scores, *(0 if place == axis else None for place in range(4))))
    return call


# ---------------------------------------------------------------------------------------------------- packed sequences


def _packed(
    query: torch.Tensor,
    key: torch.Tensor,
    starts: tuple[torch.Tensor, torch.Tensor],
    longest: tuple[int, int] | None,
    chance: random.Random,
    *,
    scale: float | None = None,
    window: tuple[int, int] = (-1, -1),
    cap: float = 0.0,
) -> AttentionSample | None:
    """Return the sample of sequences that follow one another.

    Args:
        query: queries of the shape (places, heads, size).
        key: keys, of as many or fewer heads.
        starts: first place of each sequence, and the end of the last, of queries and keys.
        longest: largest length of the sequences; None if it is unknown.
        chance: chooses the queries.
        scale: factor of the logits.
        window: places before and after its own that a query sees; -1 for all. Sequences are aligned at their ends.
        cap: limit of the logits by a hyperbolic tangent; 0 for none.
    """
    query, key = query.detach(), key.detach()
    if query.ndim != 3 or key.ndim != 3 or not query.numel() or not key.numel():
        return None
    total, keys = query.shape[0], key.shape[0]
    width = total if longest is None else min(total, longest[0])
    begin = chance.randrange(total - width + 1)
    step = max(1, width // QUERIES)
    queries = slice(begin + chance.randrange(step), begin + width, step)
    near = slice(0, keys)
    if longest is not None and total == keys:  # the same sequences: only the keys that these queries can see
        near = slice(max(0, begin - longest[1]), min(keys, begin + width + longest[1]))
    if near.stop - near.start > _MOST_KEYS:
        return None
    logits = _logits(query[queries].transpose(0, 1)[None], key[near].transpose(0, 1)[None], scale)
    if cap:
        logits = cap * torch.tanh(logits / cap)
    segment, ahead = _places_in(starts[0], torch.arange(total, device=query.device)[queries])
    key_segment, key_ahead = _places_in(starts[1], torch.arange(keys, device=query.device)[near])
    visible = (segment[:, None] == key_segment) & (segment[:, None] >= 0)
    distance = key_ahead - ahead[:, None]
    before, after = window
    visible = visible & (distance >= -before) if before >= 0 else visible
    visible = visible & (distance <= after) if after >= 0 else visible
    return _sample(logits, visible)


def _places_in(starts: torch.Tensor, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sequence of each place, and the place from its end.

    After the last sequence it is -1.
    """
    starts = starts.detach().to(places.device, places.dtype)
    segment = torch.searchsorted(starts, places, right=True)
    inside = segment < starts.shape[0]
    end = starts[segment.clamp_max(starts.shape[0] - 1)]
    return torch.where(inside, segment, -1), places - end


def _numbers(one: Any, other: Any) -> tuple[int, int] | None:
    """Return two numbers, or None.

    The device that has them would have to be waited for.
    """
    return (one, other) if isinstance(one, int) and isinstance(other, int) else None


def _of_varlen(args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random) -> AttentionSample | None:
    named = _by_name(("query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"), args, kwargs)
    if named.get("block_table") is not None or named.get("seqused_k") is not None:
        return None
    starts, others = named["cu_seq_q"], named.get("cu_seq_k")
    starts = starts, starts if others is None else others
    longest = _numbers(named["max_q"], named["max_k"])
    window = tuple(named.get("window_size") or (-1, -1))
    return _packed(
        named["query"], named["key"], starts, longest, chance, scale=named.get("scale"), window=(window[0], window[1])
    )


_FLASH: Final = ("dropout_p", "softmax_scale", "causal", "window_size", "softcap", "alibi_slopes")


def _options(named: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of a function of flash attention; None if it has others."""
    if named.get("alibi_slopes") is not None or named.get("block_table") is not None:
        return None
    before, after = tuple(named.get("window_size") or (-1, -1))
    after = 0 if named.get("causal") else after
    cap = float(named.get("softcap") or 0.0)
    return {"scale": named.get("softmax_scale"), "window": (before, after), "cap": cap}


def _of_flash_varlen(args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random) -> AttentionSample | None:
    lengths = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
    named = _by_name(("q", "k", "v", *lengths, *_FLASH), args, kwargs)
    options = _options(named)
    if options is None:
        return None
    starts, longest = (named[lengths[0]], named[lengths[1]]), _numbers(named[lengths[2]], named[lengths[3]])
    return _packed(named["q"], named["k"], starts, longest, chance, **options)


def _of_flash(args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random) -> AttentionSample | None:
    """Read one of several rows of equal length, as a packed one.

    The shape is (rows, places, heads, size).
    """
    named = _by_name(("q", "k", "v", *_FLASH), args, kwargs)
    options = _options(named)
    query, key = named["q"], named["k"]
    if options is None or query.ndim != 4 or key.ndim != 4 or not query.shape[0]:
        return None
    row = chance.randrange(query.shape[0])
    lengths = query.shape[1], key.shape[1]
    starts = tuple(torch.arange(2, device=query.device) * length for length in lengths)
    return _packed(query[row], key[row], (starts[0], starts[1]), lengths, chance, **options)


def of_attention(args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random) -> AttentionSample | None:
    """Return the sample of a call of ``scaled_dot_product_attention``.

    The tensors may be jagged. It is None if the arguments are unusual.
    """
    named = _by_name(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, kwargs)
    query, key = named["query"], named["key"]
    if not query.is_nested:
        return of_tensors(args, kwargs, chance)
    if query.layout is not torch.jagged or key.layout is not torch.jagged or named.get("attn_mask") is not None:
        return None
    query, key = query.detach().transpose(1, 2), key.detach().transpose(1, 2)
    window = (-1, 0 if named.get("is_causal") else -1)
    starts = query.offsets(), key.offsets()
    return _packed(query.values(), key.values(), starts, None, chance, scale=named.get("scale"), window=window)


FUSED: Final[Mapping[str, Read]] = {
    "flex_attention": _of_flex(("query", "key", "value", "score_mod", "block_mask", "scale", "enable_gqa")),
    "compile_friendly_flex_attention": _of_flex(("query", "key", "value", "training")),
    "varlen_attn": _of_varlen,
    "flash_attn_varlen_func": _of_flash_varlen,
    "flash_attn_func": _of_flash,
}
"""How the call of a function is read, by its name."""


def read_fused(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], chance: random.Random
) -> AttentionSample | None:
    """Return the sample of a call of a function; None if its arguments are unusual.

    A function of a script can have such a name, and a modification of scores can depend on their values.
    """
    try:
        return FUSED[name](args, kwargs, chance)
    except Exception as error:
        logger.debug("a call of %s was not read: %s", name, error)
        return None
