"""Checks of the times of a diffusion: noise at the last one, those of samples."""

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
#: Passes of samples, with one time each, that show how large the times are, and how many are looked at.
_PASSES, _LOOKS = 6, 48
#: Relative to the largest time of the training: one above all of it, and one at which a sample cannot begin.
_ABOVE, _BELOW = 10.0, 0.02


class NoiseLevelChecks:
    """Measures how much of the input of a model is the normal noise that it predicts.

    The share must depend on the time, as that of a diffusion does. Samples begin with noise alone, which the model has
    to know from the last times.

    A sample is made in passes without gradients, each of which has one time for all rows. These are times of the
    training, in the same unit.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._batches = NoisyBatches(context)
        #: Of rows with the first and with the last times: the sums of squares of the noise, of its products with the
        #: input, and of squares of the input, and the number of elements.
        self._sums: NDArray[np.float64] = np.zeros((2, 4))
        self._is_of_noise = True
        #: The largest time of the training, those of passes of one sample, and how many passes were looked at.
        self._largest = 0.0
        self._passes: list[float] = []
        self._looks = 0

    def enters(self, tensors: list[torch.Tensor], gradients: bool) -> None:
        """A model is called with these tensors."""
        log = self._context.log
        self._batches.keep(tensors, gradients and (log.runs("noise_too_weak") or log.runs("eval_inputs_differ")))
        if gradients:
            self._passes.clear()
        elif self._batches.count >= _FEWEST and self._looks < _LOOKS and log.runs("eval_inputs_differ"):
            times = self._batches.times_of(tensors)
            if times is not None:
                self._looks += 1
                ends = torch.stack([times.amin(), times.amax()]).detach()
                self._context.values.read(self._compare, ends)

    def look(self, call: LossCall) -> None:
        """A loss function has targets."""
        if read := self._batches.take(call):
            self._context.values.read(self._judge, *read)

    def _judge(self, noisy: Any, noise: Any, times: Any) -> None:
        self._largest = max(self._largest, float(np.abs(times).max()))
        if not self._is_of_noise or not is_normal(noise) or np.ptp(times) == 0:
            self._is_of_noise = False
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

    def _compare(self, ends: Any) -> None:
        """Compare the times of passes of one sample with those of the training."""
        least, largest = map(float, ends)
        if least != largest or largest in self._passes:  # the times of an evaluation, or the same one again
            self._passes.clear()
            return
        self._passes.append(largest)
        if len(self._passes) < _PASSES or not self._largest:
            return
        highest = max(map(abs, self._passes))
        # A sample that begins with the last time has its largest one first.
        falls = self._passes == sorted(self._passes, reverse=True)
        if highest > _ABOVE * self._largest or (falls and highest < _BELOW * self._largest):
            facts = {"value": f"times up to {highest:.3g}", "usual": f"up to {self._largest:.3g}"}
            self._context.log.say("eval_inputs_differ", self._context.step, facts)
