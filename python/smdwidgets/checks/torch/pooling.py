"""Check of means over positions: that they leave the padding out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import kind_of, nodes_of, saved
from smdwidgets.checks.torch.tokens import final_runs
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PoolingChecks"]

#: Fewest and most rows, fewest and most positions, and nodes of a graph that are looked at.
_FEWEST_ROWS, _ROWS, _FEWEST, _POSITIONS, _NODES = 4, 64, 3, 1024, 400
#: Batches that show the fault, widths of these, share of rows that are padded, and of padding among all tokens.
_NEED, _WIDTHS, _PADDED, _SHARE = 4, 3, 0.25, 0.2


class PoolingChecks:
    """Looks for a mean over all positions of sentences that are padded.

    The longest one of a batch says how far. The mean divides by its length, and counts the padding: what a row gives
    depends on the other rows.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._tokens: torch.Tensor | None = None
        self._widths: set[int] = set()

    def enters(self, tensors: Iterable[torch.Tensor], gradients: bool) -> None:
        """A model is called with these tensors."""
        first = next(iter(tensors), None)
        is_text = first is not None and first.ndim == 2 and first.dtype in (torch.int64, torch.int32)
        self._tokens = first if gradients and is_text and self._context.log.runs("padding_averaged") else None

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        tokens, self._tokens = self._tokens, None
        if tokens is None or not is_plain(tokens) or len(tokens) < _FEWEST_ROWS:
            return
        width = tokens.shape[1]
        if not _FEWEST <= width <= _POSITIONS:
            return
        nodes = zip(nodes_of(root.grad_fn), range(_NODES), strict=False)
        if not any(_is_mean(node, tuple(tokens.shape)) for node, _ in nodes):
            return
        context, step = self._context, self._context.step

        def judge(tokens: Any) -> None:
            token = _padding(tokens)
            if token is None:
                return
            self._widths.add(width)
            if len(self._widths) >= _WIDTHS:
                share = float((tokens == token).mean())
                facts = {"token": token, "share": f"{share:.0%}"}
                context.log.say("padding_averaged", step, facts, ["loss"], need=_NEED - _WIDTHS + 1)

        context.values.read(judge, tokens[:_ROWS])


def _is_mean(node: Any, shape: tuple[int, ...]) -> bool:
    """Whether a node is the mean over the positions of something that has as many."""
    if kind_of(node) != "Mean":
        return False
    sizes, dimensions = saved(node, "_saved_self_sym_sizes"), saved(node, "_saved_dim")
    if sizes is None or dimensions is None or len(sizes) != 3 or len(dimensions) != 1:
        return False
    return tuple(sizes[:2]) == shape and int(dimensions[0]) in (1, -2, 2**64 - 2)


def _padding(tokens: Any) -> int | None:
    """Return the token that fills rows up at their end, if it does much.

    >>> _padding(np.array([[3, 1, 2, 4], [1, 2, 0, 0], [2, 0, 0, 0], [3, 1, 0, 0]]))
    0
    """
    values, counts = np.unique(tokens[:, -1], return_counts=True)
    token = values[counts.argmax()]
    runs = final_runs(tokens, token)
    is_padding = runs.sum() == (tokens == token).sum() and runs.min() == 0 and len(np.unique(runs)) > 2
    much = (runs > 0).mean() >= _PADDED and runs.sum() >= _SHARE * tokens.size
    return int(token) if is_padding and much else None
