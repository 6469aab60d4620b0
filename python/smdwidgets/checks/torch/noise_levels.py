"""Check of the share of noise that a diffusion reaches at its last step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.noise import NoisyBatches, is_normal, moments

__all__ = ["NoiseLevelChecks"]

#: Fewest batches that are judged, and the part of the rows with the first and with the last times.
_FEWEST, _PART = 8, 10
#: The correlation with the noise that means that half of the power is noise, and the errors by which it must be less.
_HALF, _ERRORS = math.sqrt(0.5), 4.0
#: A smaller correlation shows that the targets are no noise of the input, such as velocities.
_LEAST = 0.1


class NoiseLevelChecks:
    """Measures how much of the input of a model is the normal noise that it predicts.

    The share must depend on the time, as that of a diffusion does. Samples begin with noise alone, which the model has
    to know from the last times.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batches = NoisyBatches(context)
        #: Of rows with the first and with the last times: the sums of squares of the noise, of its products with the
        #: input, and of squares of the input, and the number of elements.
        self._sums: NDArray[np.float64] = np.zeros((2, 4))

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        self._batches.keep(tensors, looks and self._context.log.runs("noise_too_weak"))

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        if read := self._batches.take(call):
            self._context.values.read(self._judge, *read)

    def _judge(self, noisy: Any, noise: Any, times: Any) -> None:
        if not is_normal(noise) or np.ptp(times) == 0:
            self._batches.end()
            return
        order = np.argsort(times[:, 0])
        number = max(1, len(order) // _PART)
        for sums, rows in zip(self._sums, (order[:number], order[-number:]), strict=True):
            sums += moments(noise[rows], noisy[rows])
        if self._batches.count >= _FEWEST:
            self._say()

    def _say(self) -> None:
        of_noise, products, of_input, count = self._sums.T
        shares = np.abs(products) / np.sqrt(np.maximum(of_noise * of_input, 1e-30))
        error = _ERRORS / math.sqrt(count.min())
        if _LEAST < shares.max() < _HALF - error and abs(shares[1] - shares[0]) > error:
            facts = {"share": f"{shares.max() ** 2:.0%}"}
            self._context.log.say("noise_too_weak", self._context.step, facts)
