"""Check of the temperature of a Gumbel-softmax: that it does not rise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import kind_of, nodes_of, number_of, product_of, softmax_axis, values_before
from smdwidgets.checks.torch.values import is_plain, some_rows

__all__ = ["TemperatureChecks"]

#: Looks at which the temperature is read, by how much it rises, and looks without one after which none follow.
_LOOKS, _RISES, _IDLE = 8, 1.5, 4
#: Looks at which the noise is recognized, rows that are read, and fewest of them.
_NOISY, _ROWS, _FEWEST_ROWS = 2, 256, 48
#: Deviation of the difference of two Gumbel variables, and the share by which that of samples may differ.
_DEVIATION, _NEAR = math.pi / math.sqrt(3), 0.2
#: Nodes between a sum and the product of a layer: they keep the differences within a row.
_BETWEEN = ("View", "ReshapeAlias", "UnsafeView", "ToCopy", "LogSoftmax")


class TemperatureChecks:
    """Reads the temperature of a Gumbel-softmax at each look.

    It is the number by which a sum of logits and noise is divided before a softmax. What was added is the result of the
    softmax, in logarithms and times the temperature, less the logits, which are the product of a layer. It is Gumbel
    noise if the differences within rows have its deviation. A mask, or logarithms of shares, are equal in all rows.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        #: Temperatures, each of another update, and the number of the last of these.
        self._temperatures: list[float] = []
        self._last = -1
        self._looks = self._noisy = 0

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        log, updates = self._context.log, self._context.updates
        if not log.runs("temperature_rises") or self._last == updates:
            return
        if self._looks >= _IDLE and not self._temperatures:
            return
        self._looks += 1
        for node in nodes_of(root.grad_fn):
            if kind_of(node) == "Softmax" and (division := _temperature_of(node)) is not None:
                self._last = updates
                self._look(node, *division)
                return

    def _look(self, softmax: Any, temperature: float, logits: Any) -> None:
        self._temperatures.append(temperature)
        if self._noisy < _NOISY:
            self._recognize(softmax, temperature, logits)
        values = np.array(self._temperatures)
        rises = len(values) >= _LOOKS and values[-1] >= _RISES * values[0] and (np.diff(values) >= 0).all()
        if rises and self._noisy >= _NOISY:
            facts = {"first": float(values[0]), "last": float(values[-1])}
            self._context.log.say("temperature_rises", self._context.step, facts)

    def _recognize(self, softmax: Any, temperature: float, logits: Any) -> None:
        """Look whether what was added to the logits is Gumbel noise."""
        shares, product = getattr(softmax, "_saved_result", None), product_of(logits, _ROWS)
        if product is None or not isinstance(shares, torch.Tensor) or not is_plain(shares):
            return
        shares = some_rows(shares.detach().reshape(-1, shares.shape[-1]), _ROWS)
        if shares.shape != product.shape or len(shares) < _FEWEST_ROWS or shares.shape[1] < 2:
            return

        def judge(shares: Any, product: Any) -> None:
            with np.errstate(divide="ignore", invalid="ignore"):
                added = np.log(shares) * temperature - product
                differences = added[:, 1:] - added[:, :1]
            differences = differences[np.isfinite(differences).all(1)]
            if len(differences) < max(_FEWEST_ROWS, len(shares) / 2):
                return
            self._noisy += bool(abs(differences.std(0).mean() / _DEVIATION - 1) < _NEAR)

        self._context.values.read(judge, shares, product)


def _temperature_of(softmax: Any) -> tuple[float, Any] | None:
    """Return the number that divides a sum, and the node of the logits in the sum."""
    before = values_before(softmax)
    quotient = before[0][0] if before else None
    temperature = number_of(quotient, "other") if quotient is not None and kind_of(quotient) == "Div" else None
    added = values_before(quotient)[0][0] if temperature else None
    shares = getattr(softmax, "_saved_result", None)
    if temperature is None or added is None or kind_of(added) != "Add" or not isinstance(shares, torch.Tensor):
        return None
    logits = values_before(added)
    if len(logits) != 1 or len(added.next_functions) != 2 or softmax_axis(softmax, shares.ndim) != shares.ndim - 1:
        return None
    node = logits[0][0]
    while kind_of(node) in _BETWEEN and len(before := values_before(node)) == 1:
        node = before[0][0]
    return temperature, node
