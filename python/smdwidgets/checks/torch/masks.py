"""Check of masks of attention: which tokens may be attended to."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import masks_of_softmax
from smdwidgets.checks.torch.values import is_plain

__all__ = ["MaskChecks"]

#: Passes that are looked at, layers of each, and rows that are read.
_PASSES, _LAYERS, _ROWS = 8, 4, 64
#: Fewest different tokens that are hidden.
_FEWEST = 3


class MaskChecks:
    """Compares the mask of keys, where True hides a position, with the tokens.

    The mask is an argument of an attention layer, or what fills scores before a softmax.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._handles: list[Any] = []
        self._passes = 0
        self._tokens: torch.Tensor | None = None

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        tokens = tensors[0] if tensors else None
        if not looks or self._passes >= _PASSES or tokens is None or tokens.ndim != 2 or tokens.is_floating_point():
            return
        layers = [one for one in model.modules() if isinstance(one, nn.MultiheadAttention)]
        if not is_plain(tokens):
            return
        self._passes += 1
        self._tokens = tokens
        self._handles += [one.register_forward_pre_hook(self._layer, with_kwargs=True) for one in layers[:_LAYERS]]

    def _layer(self, module: nn.Module, inputs: Any, named: dict[str, Any]) -> None:
        mask = named.get("key_padding_mask", inputs[3] if len(inputs) > 3 else None)
        tokens = self._tokens
        if tokens is None or not isinstance(mask, torch.Tensor) or not is_plain(mask) or mask.ndim != 2:
            return
        # The model may put a further token before them.
        own = mask.shape[1] - tokens.shape[1]
        if len(mask) != len(tokens) or own not in (0, 1):
            return
        self._tokens = None  # one layer of a pass suffices
        hidden = mask if mask.dtype is torch.bool else mask == float("-inf")
        self._compare(tokens, hidden[:, own:], f"`{self._context.name_of_module(module)}`")

    def _compare(self, tokens: torch.Tensor, hidden: torch.Tensor, name: str) -> None:
        context, step = self._context, self._context.step

        def judge(tokens: Any, hidden: Any) -> None:
            hidden = hidden != 0
            seen, unseen = set(tokens[~hidden].tolist()), set(tokens[hidden].tolist())
            if len(seen) == 1 and len(unseen - seen) >= _FEWEST and not seen & unseen:
                facts = {"tensor": name, "token": int(seen.pop()), "count": len(unseen)}
                context.log.say("mask_inverted", step, facts, [name.strip("`")], need=2)

        context.values.read(judge, tokens[:_ROWS], hidden[:_ROWS])

    def leaves(self, output: Any) -> None:
        """A model has returned."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        tokens, self._tokens = self._tokens, None
        if tokens is None or not isinstance(output, torch.Tensor) or not output.requires_grad:
            return
        for mask in masks_of_softmax(output):
            # Dimensions of heads and queries; a causal mask has one value for each query.
            if mask.ndim >= 2 and mask.numel() == tokens.numel() and (mask.shape[0], mask.shape[-1]) == tokens.shape:
                self._compare(tokens, mask.reshape(tokens.shape), "attention scores")
                return
