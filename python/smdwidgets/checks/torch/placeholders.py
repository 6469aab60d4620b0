"""Check of tables: that no number stands for missing values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.layer_inputs import LayerInputs
from smdwidgets.checks.torch.values import is_plain

__all__ = ["PlaceholderChecks"]

#: Rows and columns of a batch that are read, passes that are looked at, and batches in which a column has the number.
_ROWS, _COLUMNS, _PASSES, _NEED = 512, 128, 16, 3
#: Fewest rows, different other values of a column, and how far the number is from them, in units of their range.
_FEWEST, _DIFFERENT, _FAR = 12, 8, 4.0
#: Share of the rows of a column that have the number, at most.
_MOST = 0.6


class PlaceholderChecks:
    """Looks at the features that the first layer gets.

    A number such as -999 that stands for a missing value is the same one in many rows, and far from all other values of
    its column. Where the model replaces it, its first layer does not get it.

    Args:
        context: what the mechanisms share.
        guarded: wraps a function so that it never raises.
    """

    def __init__(self, context: Context, guarded: Callable[[Callable[..., object]], Callable[..., object]]) -> None:
        self._context = context
        self._layers = LayerInputs(guarded(self._look), _PASSES, 1)
        #: Batches in which a column has a number, by both.
        self._batches: Counter[tuple[int, float]] = Counter()

    def enters(self, model: nn.Module, looks: bool) -> None:
        """A model is called."""
        if looks and model.training and self._context.log.runs("placeholder_values"):
            self._layers.enters(model, (one for one in model.modules() if isinstance(one, nn.Linear | nn.RNNBase)))

    def leaves(self) -> None:
        """A model has returned."""
        self._layers.leaves()

    def _look(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        features = inputs[0] if inputs else None
        if not isinstance(features, torch.Tensor) or not is_plain(features) or not features.is_floating_point():
            return
        # The output of a layer is no table.
        if features.requires_grad or features.ndim not in (2, 3) or not 1 < features.shape[-1] <= 4096:
            return
        read = features.detach().reshape(-1, features.shape[-1])[:_ROWS, :_COLUMNS]
        if len(read) >= _FEWEST:
            self._context.values.read(self._judge, read)

    def _judge(self, rows: NDArray[np.float64]) -> None:
        if not np.isfinite(rows).all():
            return
        for column, end in [(column, end) for column in range(rows.shape[1]) for end in (np.min, np.max)]:
            values = rows[:, column]
            number = float(end(values))
            others = values[values != number]
            count = len(values) - len(others)
            if count < 2 or count > _MOST * len(values) or len(np.unique(others)) < _DIFFERENT:
                continue
            if min(abs(others - number)) > _FAR * np.ptp(others):
                self._batches[column, number] += 1
        often = [one for one, count in self._batches.items() if count >= _NEED]
        if often:
            column, number = often[0]
            facts = {"count": len({each for each, _ in often}), "number": f"{number:.4g}", "column": column}
            self._context.log.say("placeholder_values", self._context.step, facts)
