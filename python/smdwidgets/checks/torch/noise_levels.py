"""Check of the share of noise that a diffusion reaches at its last step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import LossCall
from smdwidgets.checks.torch.noise import is_normal, noisy_batch
from smdwidgets.checks.torch.values import is_plain

__all__ = ["NoiseLevelChecks"]

#: Batches that are looked at, fewest that are judged, and the part of the rows with the first and with the last times.
_LOOKS, _FEWEST, _PART = 64, 8, 10
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
        self._inputs: list[torch.Tensor] = []
        self._looks = 0
        #: Of rows with the first and with the last times: the sums of squares of the noise, of its products with the
        #: input, and of squares of the input, and the number of elements.
        self._sums: NDArray[np.float64] = np.zeros((2, 4))

    def enters(self, tensors: list[torch.Tensor], looks: bool) -> None:
        """A model is called with these tensors."""
        is_looked_at = looks and self._looks < _LOOKS and self._context.due and 2 <= len(tensors) <= 4
        may_fire = is_looked_at and self._context.log.runs("noise_too_weak")
        self._inputs = tensors if may_fire and all(is_plain(one) for one in tensors) else []

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        tensors, self._inputs = self._inputs, []
        if read := noisy_batch(tensors, call):
            self._looks += 1
            self._context.values.read(self._judge, *read)

    def _judge(self, noisy: Any, noise: Any, times: Any) -> None:
        if not is_normal(noise) or np.ptp(times) == 0:
            self._looks = _LOOKS
            return
        order = np.argsort(times[:, 0])
        number = max(1, len(order) // _PART)
        for sums, rows in zip(self._sums, (order[:number], order[-number:]), strict=True):
            one, other = noise[rows], noisy[rows]
            sums += (one**2).sum(), (one * other).sum(), (other**2).sum(), one.size
        if self._looks >= _FEWEST:
            self._say()

    def _say(self) -> None:
        of_noise, products, of_input, count = self._sums.T
        shares = np.abs(products) / np.sqrt(np.maximum(of_noise * of_input, 1e-30))
        error = _ERRORS / math.sqrt(count.min())
        if _LEAST < shares.max() < _HALF - error and abs(shares[1] - shares[0]) > error:
            facts = {"share": f"{shares.max() ** 2:.0%}"}
            self._context.log.say("noise_too_weak", self._context.step, facts)
