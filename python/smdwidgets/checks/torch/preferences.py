"""Check of pairs of which a model learns the better one: that both differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import compares_outputs
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PreferenceChecks"]

#: Fewest elements and pairs, and elements of a batch that are compared.
_FEWEST, _FEWEST_PAIRS, _ELEMENTS = 4, 4, 1_000_000
#: Share of pairs that are equal, and batches in which it is so.
_EQUAL, _BATCHES = 0.1, 4


class PreferenceChecks:
    """Looks for pairs with two equal sides, whose outputs a loss compares.

    The sides are two passes of one model, or the halves of one pass.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._passes: list[tuple[int, list[torch.Tensor]]] = []

    def enters(self, model: nn.Module, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        if looks and self._context.due and len(self._passes) < 3:
            self._passes.append((id(model), tensors[:4] if all(is_plain(one) for one in tensors) else []))

    def backward_begins(self, root: torch.Tensor) -> None:
        """`backward()` is called."""
        passes, self._passes = self._passes, []
        sides = _sides(passes)
        if not sides or len(sides[0][0]) < _FEWEST_PAIRS or not compares_outputs(root):
            return

        def judge(*equal: Any) -> None:
            share = max(float(each.mean()) for each in equal)
            if share >= _EQUAL:
                facts = {"share": f"{share:.0%}", "rows": len(equal[0])}
                self._context.log.say("answers_equal", self._context.step, facts, need=_BATCHES)
            else:
                self._context.log.unseen("answers_equal")

        self._context.values.read(judge, *(_equal_rows(*each) for each in sides))

    def update_ends(self) -> None:
        """An update has ended: passes before it belong to no later loss."""
        self._passes.clear()


def _sides(passes: list[tuple[int, list[torch.Tensor]]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the tensors that both sides of a pair may be."""
    if len(passes) == 2 and passes[0][0] == passes[1][0]:
        pairs = list(zip(passes[0][1], passes[1][1], strict=False))
        is_like = len(passes[0][1]) == len(passes[1][1]) and all(
            one.ndim == other.ndim and one.shape[:1] == other.shape[:1] for one, other in pairs
        )
        joined = [tuple(_joined([pair[side] for pair in pairs]) for side in (0, 1))] if pairs and is_like else []
    elif len(passes) == 1 and passes[0][1] and all(one.ndim for one in passes[0][1]):
        rows = _joined(passes[0][1])
        half = len(rows) // 2
        joined = [(rows[:half], rows[half:]), (rows[::2], rows[1::2])] if rows.ndim == 2 and len(rows) % 2 == 0 else []
    else:
        joined = []
    usable = [each for each in joined if all(one.ndim == 2 and one.shape[1] >= _FEWEST for one in each)]
    is_usable = all(one.device == other.device and one.numel() <= _ELEMENTS for one, other in usable)
    return usable if is_usable else []


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return all elements of each row."""
    if not all(one.ndim and len(one) == len(tensors[0]) for one in tensors):
        return tensors[0].new_empty(0)
    return torch.cat([one.detach().flatten(1) if one.ndim > 1 else one.detach()[:, None] for one in tensors], 1)


def _equal_rows(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return which rows are equal, apart from one value that fills the longer ones."""
    width = min(one.shape[1], other.shape[1])
    equal = (one[:, :width] == other[:, :width]).all(1)
    for each in (one, other):
        if each.shape[1] > width:
            equal &= (each[:, width:] == each[:, -1:]).all(1)
    return equal
