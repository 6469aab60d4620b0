"""Check of noise that a model scales: its deviation is that of the divergence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Value, kind_of, nodes_of, number_of, size_of, tensor_of, values_before
from smdwidgets.checks.torch.sums import EQUAL, parts_of, same
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["DeviationChecks"]

#: Elements of noise that are read, fewest of them, how near their mean and deviation are to 0 and 1 in units of the
#: error of a mean, and losses that show the fault.
_ELEMENTS, _FEWEST, _NEAR, _NEED = 4096, 64, 5.0, 3
#: The factor of the logarithm of a variance that gives the logarithm of a deviation.
_HALF = 0.5


class Noise(NamedTuple):
    """Noise that is scaled and added to a mean, where the loss knows its variance.

    Attributes:
        values: the noise.
        formula: what multiplies it, where x is the logarithm of the variance.
    """

    values: torch.Tensor
    formula: str


class DeviationChecks:
    """Compares what multiplies noise with the variance in a divergence.

    The divergence of a normal distribution from that of mean 0 and variance 1 is the sum of exp(x), -x and the square
    of the mean, with one factor. There, x is the logarithm of the variance. Noise that is added to this mean has to be
    multiplied with exp(x / 2). The constant counts as noise if it has a mean of 0 and a deviation of 1.

    Args:
        context: what the mechanisms share.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def backward_begins(self, root: torch.Tensor) -> None:
        """Look at a loss, before its backward pass."""
        if self._context.log.runs("noise_scale"):
            for noise in _wrong(root.grad_fn):
                self._judge(noise)

    def _judge(self, noise: Noise) -> None:
        context, step = self._context, self._context.step
        if not is_plain(noise.values) or noise.values.numel() < _FEWEST:
            return

        def judge(values: Any) -> None:
            error = _NEAR / math.sqrt(len(values))
            if abs(values.mean()) <= error and abs(values.std() - 1) <= error and len(np.unique(values)) > _FEWEST / 2:
                context.log.say("noise_scale", step, {"formula": noise.formula}, need=_NEED)

        context.values.read(judge, sampled(noise.values, _ELEMENTS))


def _wrong(root: Any) -> Iterator[Noise]:
    """Yield noise whose deviation differs from that of the divergence."""
    for variance, mean in _divergences(root):
        for noise, factor in _added_to(root, mean):
            is_power = kind_of(factor[0]) == "Exp"
            inner = parts_of(values_before(factor[0])[0], {variance}) if is_power else parts_of(factor, {variance})
            share = inner.pop(variance, 0.0)
            # Another value takes part, or none: such as exp(x / 2) in another form.
            if inner or not share or (is_power and abs(share - _HALF) <= EQUAL):
                continue
            multiple = "x" if abs(share - 1) <= EQUAL else f"{share:g} * x"
            yield Noise(noise, f"exp({multiple})" if is_power else multiple)


def _divergences(root: Any) -> Iterator[tuple[Value, Value]]:
    """Yield the logarithm of the variance and the mean of each divergence in a sum."""
    terms = parts_of((root, 0))
    powers = [one for one, factor in terms.items() if kind_of(one[0]) == "Exp" and factor > 0]
    squares = {base: one for one in terms if (base := _base_of(one)) is not None}
    for power in powers:
        variance = same(values_before(power[0])[0])
        parts = parts_of((root, 0), {variance, power, *squares.values()})
        factor = parts.get(power, 0.0)
        if abs(parts.get(variance, 0.0) + factor) > EQUAL * factor:
            continue
        for mean, square in squares.items():
            is_equal = abs(parts.get(square, 0.0) - factor) <= EQUAL * factor
            if is_equal and mean != variance and size_of(mean) == size_of(variance):
                yield variance, mean


def _base_of(value: Value) -> Value | None:
    """Return the value of which this one is the square, or None."""
    name, before = kind_of(value[0]), values_before(value[0])
    if name == "Pow" and number_of(value[0], "exponent") == 2:
        return same(before[0])
    return same(before[0]) if name == "Mul" and len(before) == 2 and same(before[0]) == same(before[1]) else None


def _added_to(root: Any, mean: Value) -> Iterator[tuple[torch.Tensor, Value]]:
    """Yield noise that is added to a mean, with the value that multiplies it."""
    for node in nodes_of(root):
        sides = values_before(node) if kind_of(node) == "Add" else []
        if len(sides) != 2 or mean not in (shown := [same(one) for one in sides]):
            continue
        product = shown[1 - shown.index(mean)]
        others = values_before(product[0])
        noise = tensor_of(product[0]) if kind_of(product[0]) == "Mul" and len(others) == 1 else None
        if noise is not None and noise.numel() > 1:
            yield noise, same(others[0])
