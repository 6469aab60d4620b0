"""Checks of similarities of rows, and of the lengths of these."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, cosines_before, similarities_before
from smdwidgets.checks.torch.values import is_plain

__all__ = ["SimilarityChecks"]

#: Losses that show the fault, and fewest rows; losses with equal views, and how near these are beside other rows.
_NEED, _FEWEST, _BATCHES, _EQUAL = 2, 4, 4, 1e-4
#: Fewest rows and columns whose lengths are compared, most rows, and how near to 1 a length is, and how far from it.
_LENGTHS, _MOST_ROWS, _NEAR, _OTHER = 8, 4096, 1e-3, 0.05


class SimilarityChecks:
    """Looks at a cross-entropy whose classes are the rows of the batch.

    Its logits are products of all rows with all rows. If both sides are the same rows, the largest product is usually
    that of a row with itself, which is to be left out.

    Rows that are normalized have length 1 each. If it is the columns that have, each number was divided by the size of
    that number in all rows of the batch, and the similarities of a row depend on the others.

    A loss of two views of each sample has them in the two halves of its rows. If these are equal, as where a sample was
    augmented once, the right class is as near as a row is to itself.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        log, step, rows = self._context.log, self._context.step, call.target.numel()
        if call.kind == "cross_entropy":
            features = similarities_before(call.before)
            if log.runs("normalized_over_rows"):
                self._lengths(features)
            if log.runs("answers_equal"):
                self._views(features)
        if call.kind != "cross_entropy" or call.target.ndim != 1 or call.target.is_floating_point():
            return
        if rows < _FEWEST or tuple(call.input.shape) != (rows, rows) or not log.runs("own_similarity"):
            return
        products = cosines_before(call.before)
        if products is None or not is_plain(call.target) or not _are_same(*products[1:]):
            return

        def judge(targets: Any) -> None:
            is_target = bool((targets == np.arange(rows)).all())
            what = "is the class that they are to get" if is_target else "is a class, and never the one that they get"
            log.say("own_similarity", step, {"rows": rows, "what": what}, ["loss"], need=_NEED)

        self._context.values.read(judge, call.target)

    def _views(self, rows: torch.Tensor | None) -> None:
        """Compare the two halves of the rows, which are two views of samples."""
        if rows is None or not is_plain(rows) or rows.ndim != 2 or len(rows) % 2 or not rows.is_floating_point():
            return
        number = len(rows) // 2
        if not _FEWEST <= number <= _MOST_ROWS:
            return
        log, step = self._context.log, self._context.step

        def judge(distance: Any, others: Any) -> None:
            if distance < _EQUAL * others:
                log.say("answers_equal", step, {"share": "100 %", "rows": number}, ["loss"], need=_BATCHES)
            else:
                log.unseen("answers_equal")

        one, other = rows.float().split(number)
        # Rows that are all equal are no views, but have collapsed.
        self._context.values.read(judge, (one - other).abs().amax(), (one - one.roll(1, 0)).abs().amax(1).median())

    def _lengths(self, rows: torch.Tensor | None) -> None:
        """Compare the lengths of rows and columns with 1."""
        if rows is None or not is_plain(rows) or rows.ndim != 2 or min(rows.shape) < _LENGTHS:
            return
        if len(rows) > _MOST_ROWS or not rows.is_floating_point():
            return
        log, step, shape = self._context.log, self._context.step, tuple(rows.shape)

        def judge(of_rows: Any, of_columns: Any) -> None:
            if np.abs(of_columns - 1).max() < _NEAR and np.abs(np.median(of_rows) - 1) > _OTHER:
                log.say("normalized_over_rows", step, {"shape": shape}, ["loss"], need=_NEED)
            else:
                log.unseen("normalized_over_rows")

        self._context.values.read(judge, rows.float().norm(dim=1), rows.float().norm(dim=0))


def _are_same(one: Any, other: Any) -> bool:
    """Whether two matrices are one in memory."""
    return bool(one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride())
