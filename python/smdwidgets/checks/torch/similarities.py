"""Check of similarities of rows: that no row is compared with itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall, cosines_before
from smdwidgets.checks.torch.values import is_plain

__all__ = ["SimilarityChecks"]

#: Losses that show the fault, and fewest rows.
_NEED, _FEWEST = 2, 4


class SimilarityChecks:
    """Looks at a cross-entropy whose classes are the rows of the batch.

    Its logits are products of all rows with all rows. If both sides are the same rows, the largest product is usually
    that of a row with itself, which is to be left out.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        log, step, rows = self._context.log, self._context.step, call.target.numel()
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


def _are_same(one: Any, other: Any) -> bool:
    """Whether two matrices are one in memory."""
    return bool(one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride())
