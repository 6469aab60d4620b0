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

    The mask is an argument of an attention layer, or what fills scores before a softmax. A layer adds a mask of numbers
    to its scores: one of 0 and 1 hides nothing.

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
        tokens, name = self._tokens, self._context.name_of_module(module)
        for one in (mask, named.get("attn_mask")) if tokens is not None else ():
            if isinstance(one, torch.Tensor) and is_plain(one) and one.is_floating_point():
                self._look_for_ones(one, name)
        if tokens is None or not isinstance(mask, torch.Tensor) or not is_plain(mask) or mask.ndim != 2:
            return
        # The model may put a further token before them.
        own = mask.shape[1] - tokens.shape[1]
        if len(mask) != len(tokens) or own not in (0, 1):
            return
        self._tokens = None  # one layer of a pass suffices
        hidden = mask if mask.dtype is torch.bool else mask == float("-inf")
        self._compare(tokens, hidden[:, own:], f"`{name}`")

    def _look_for_ones(self, mask: torch.Tensor, name: str) -> None:
        """Look for a mask of numbers that was meant as one of truth values."""
        context, step = self._context, self._context.step

        def judge(zeros: Any, ones: Any, size: Any) -> None:
            if zeros[0] > 0 and ones[0] > 0 and zeros[0] + ones[0] == size[0]:
                facts = {
                    "tensor": f"`{name}`",
                    "what": "has the numbers 0 and 1, which are added to the scores: it hides nothing",
                }
                context.log.say("mask_inverted", step, facts, [name], need=2)

        counts = [(mask == number).sum().reshape(1) for number in (0, 1)]
        context.values.read(judge, *counts, torch.tensor([mask.numel()], device=mask.device))

    def _compare(self, tokens: torch.Tensor, hidden: torch.Tensor, name: str) -> None:
        context, step = self._context, self._context.step

        def judge(tokens: Any, hidden: Any) -> None:
            hidden = hidden != 0
            seen, unseen = set(tokens[~hidden].tolist()), set(tokens[hidden].tolist())
            if len(seen) == 1 and len(unseen - seen) >= _FEWEST and not seen & unseen:
                what = f"hides {len(unseen)} different tokens, and lets token {int(seen.pop())} through only"
                facts = {"tensor": name, "what": what, "count": len(unseen)}
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
