"""Check of packed sequences: that their lengths reach to the end of the data."""

from __future__ import annotations

from typing import Any

import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PackedChecks"]

#: Share of the frames that packed sequences have, and batches in which they have fewer.
_USED, _BATCHES = 0.75, 4
#: By how much that share differs between batches, relative to the smallest.
_STEADY = 1.2


class PackedChecks:
    """Compares the longest packed sequence with the frames that it was taken from.

    The input must have data at its last position, since a batch may be filled up to a fixed length. A limit of the
    length gives equal lengths, a wrong formula gives a share.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._input: torch.Tensor | None = None
        #: The frames of each batch in succession, and those of its longest sequence.
        self._lengths: list[tuple[int, int]] = []

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        first = tensors[0] if looks and tensors else None
        self._input = first if first is not None and is_plain(first) and first.ndim in (2, 3) else None

    def walked(self, packed: list[tuple[int, int, int]]) -> None:
        """The graph of a loss has packed sequences.

        ``packed``: rows and frames of each, and the frames of the longest row.
        """
        first, self._input = self._input, None
        if first is None or len(packed) != 1:
            return
        rows, frames, used = packed[0]
        if len(first) != rows or rows < 2 or used >= _USED * frames:
            self._lengths.clear()
            return
        ends = [first.detach().select(axis, -1) for axis in range(1, first.ndim) if first.shape[axis] >= frames]
        if not ends:
            return
        context, step = self._context, self._context.step

        def judge(*differ: Any) -> None:
            if not all(differ):
                self._lengths.clear()
                return
            self._lengths = [*self._lengths, (frames, used)][-_BATCHES:]
            shares = [one / whole for whole, one in self._lengths]
            varies = all(len(set(each)) > 1 for each in zip(*self._lengths, strict=True))
            if len(shares) == _BATCHES and varies and max(shares) < _STEADY * min(shares):
                context.log.say("frames_cut", step, {"used": used, "frames": frames})

        context.values.read(judge, *((one != one[:1]).any() for one in ends))
