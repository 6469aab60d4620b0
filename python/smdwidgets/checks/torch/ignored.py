"""Check of a loss of classes that leaves the samples of a class out."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.values import is_plain, some_rows

__all__ = ["IgnoredChecks"]

#: Most elements of a row and rows of a batch that are read, rows that are read in all, and most classes.
_ELEMENTS, _ROWS, _MOST_ROWS, _MOST_CLASSES = 4096, 256, 4096, 64
#: Fewest samples, in all and of the class.
_SAMPLES, _OF_CLASS = 96, 16
#: Frequency of the class, relative to the mean one of the others: at least, and at most.
_RARE, _FREQUENT = 0.4, 2.5
#: Mean square of the differences of means, in standard errors, that chance does not reach for any kind of data.
_OTHER = 12.0
#: Variance within the class, relative to that of the others; rows of padding have none.
_VARIED = 0.1


class IgnoredChecks:
    """Looks for an ``ignore_index`` that is one of the classes of whole samples.

    Samples without a label may have the number of an output, too. They are like the others, or more frequent or rarer
    than a class; padding is always the same. So the inputs of the class must differ from those of the others, and vary.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._input: torch.Tensor | None = None
        self._restart((0, 0, 0))

    def _restart(self, about: tuple[int, int, int]) -> None:
        """Drop what was read.

        ``about``: the number of classes, the one that is left out, and the elements of a row.
        """
        self._about = about
        self._counts = np.zeros(about[0])
        #: Sums of the inputs and of their squares, of the class and of the others.
        self._sums = np.zeros((2, 2, about[2]))

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._input = None
        first = tensors[0] if tensors else None
        if not looks or first is None or not self._context.due or self._counts.sum() > _MOST_ROWS:
            return
        if is_plain(first) and first.is_floating_point() and first.ndim > 1 and first[:1].numel() <= _ELEMENTS:
            self._input = first

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        first, self._input = self._input, None
        target, ignored = call.target, call.ignored
        if first is None or ignored is None or call.kind not in ("cross_entropy", "nll_loss") or not is_plain(target):
            return
        # Tokens and pixels, also flattened ones, are more than the rows of the batch.
        if target.ndim != 1 or call.input.ndim != 2 or len(call.flattened) > 1 or len(target) != len(first):
            return
        classes = call.input.shape[1]
        if not 0 <= ignored < classes <= _MOST_CLASSES or classes < 2 or target.device != first.device:
            return
        rows = some_rows(first.detach(), _ROWS).flatten(1)
        about = classes, ignored, rows.shape[1]
        if about != self._about:
            self._restart(about)
        step = self._context.step

        def judge(rows: Any, targets: Any) -> None:
            self._add(rows, targets)
            self._judge(step)

        self._context.values.read(judge, rows, some_rows(target, _ROWS))

    def _add(self, rows: NDArray[np.float64], targets: NDArray[np.float64]) -> None:
        classes, ignored, _ = self._about
        counted = (targets >= 0) & (targets < classes) & np.isfinite(rows).all(1)
        self._counts += np.bincount(targets[counted].astype(int), minlength=classes)
        for place, chosen in enumerate((counted & (targets == ignored), counted & (targets != ignored))):
            self._sums[place] += rows[chosen].sum(0), (rows[chosen] ** 2).sum(0)

    def _judge(self, step: int) -> None:
        classes, ignored, _ = self._about
        count, total = self._counts[ignored], self._counts.sum()
        if total < _SAMPLES or count < _OF_CLASS or (self._counts == 0).any():
            return
        usual = (total - count) / (classes - 1)
        if _RARE * usual < count < _FREQUENT * usual and self._is_other(count, total - count):
            facts = {"number": ignored, "classes": classes, "share": f"{count / total:.0%}"}
            self._context.log.say("class_ignored", step, facts, ["loss"], need=2)

    def _is_other(self, count: float, others: float) -> bool:
        """Whether the inputs of the class differ from those of the others, and vary."""
        numbers = np.array([[count], [others]])
        means = self._sums[:, 0] / numbers
        variances = np.maximum(self._sums[:, 1] / numbers - means**2, 0.0)
        vary = variances[1] > 0
        if not vary.any() or variances[0].sum() < _VARIED * variances[1].sum():
            return False
        errors = (variances / numbers).sum(0)[vary]
        return bool(((means[0] - means[1])[vary] ** 2 / errors).mean() > _OTHER)
