"""Check of noise that a model scales: its deviation is that of the divergence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from smdwidgets.checks.torch.context import Context
from smdwidgets.checks.torch.graph import Value, kind_of, nodes_of, number_of, size_of, tensor_of, values_before
from smdwidgets.checks.torch.values import is_plain, sampled

__all__ = ["DeviationChecks"]

#: Elements of noise that are read, fewest of them, how near their mean and deviation are to 0 and 1 in units of the
#: error of a mean, and losses that show the fault.
_ELEMENTS, _FEWEST, _NEAR, _NEED = 4096, 64, 5.0, 3
#: Terms and factors that are followed, and the difference of equal factors.
_MOST_TERMS, _EQUAL = 200, 1e-5
#: Nodes that give the same elements in another form, or limit them.
_SAME = (
    "View",
    "ReshapeAlias",
    "UnsafeView",
    "Unsqueeze",
    "Squeeze",
    "ToCopy",
    "Clone",
    "Clamp",
    "ClampMin",
    "ClampMax",
)
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
            inner = _parts(values_before(factor[0])[0], {variance}) if is_power else _parts(factor, {variance})
            share = inner.pop(variance, 0.0)
            # Another value takes part, or none: such as exp(x / 2) in another form.
            if inner or not share or (is_power and abs(share - _HALF) <= _EQUAL):
                continue
            multiple = "x" if abs(share - 1) <= _EQUAL else f"{share:g} * x"
            yield Noise(noise, f"exp({multiple})" if is_power else multiple)


def _divergences(root: Any) -> Iterator[tuple[Value, Value]]:
    """Yield the logarithm of the variance and the mean of each divergence in a sum."""
    terms = _parts((root, 0), set())
    powers = [one for one, factor in terms.items() if kind_of(one[0]) == "Exp" and factor > 0]
    squares = {base: one for one in terms if (base := _base_of(one)) is not None}
    for power in powers:
        variance = _same(values_before(power[0])[0])
        parts = _parts((root, 0), {variance, power, *squares.values()})
        factor = parts.get(power, 0.0)
        if abs(parts.get(variance, 0.0) + factor) > _EQUAL * factor:
            continue
        for mean, square in squares.items():
            is_equal = abs(parts.get(square, 0.0) - factor) <= _EQUAL * factor
            if is_equal and mean != variance and size_of(mean) == size_of(variance):
                yield variance, mean


def _base_of(value: Value) -> Value | None:
    """Return the value of which this one is the square, or None."""
    name, before = kind_of(value[0]), values_before(value[0])
    if name == "Pow" and number_of(value[0], "exponent") == 2:
        return _same(before[0])
    return _same(before[0]) if name == "Mul" and len(before) == 2 and _same(before[0]) == _same(before[1]) else None


def _added_to(root: Any, mean: Value) -> Iterator[tuple[torch.Tensor, Value]]:
    """Yield noise that is added to a mean, with the value that multiplies it."""
    for node in nodes_of(root):
        sides = values_before(node) if kind_of(node) == "Add" else []
        if len(sides) != 2 or mean not in (same := [_same(one) for one in sides]):
            continue
        product, others = same[1 - same.index(mean)], values_before(same[1 - same.index(mean)][0])
        noise = tensor_of(product[0]) if kind_of(product[0]) == "Mul" and len(others) == 1 else None
        if noise is not None and noise.numel() > 1:
            yield noise, _same(others[0])


def _same(value: Value) -> Value:
    """Return the value that this one shows in another form."""
    while kind_of(value[0]) in _SAME and len(before := values_before(value[0])) == 1:
        value = before[0]
    return value


def _parts(value: Value, ends: set[Value]) -> dict[Value, float]:
    """Return the values of which a value is the sum, with their factors.

    A sum over elements has the factor 1 and a mean its share, so that factors of values of one shape can be compared.

    Args:
        value: the value.
        ends: values that are not parted further.
    """
    parts: defaultdict[Value, float] = defaultdict(float)
    pending = [(value, 1.0)]
    for _ in range(_MOST_TERMS):
        if not pending:
            return dict(parts)
        value, factor = pending.pop()
        value = _same(value) if value not in ends else value
        name, before = kind_of(value[0]), values_before(value[0])
        if value in ends:
            parts[value] += factor
        elif name in ("Sum", "Neg", "Mean", "Expand") and before:
            share = size_of(value) / size_of(before[0]) if name == "Mean" and size_of(before[0]) else 1.0
            pending.append((before[0], factor * (-1 if name == "Neg" else share)))
        elif name in ("Add", "Sub", "Rsub"):
            pending += [(one, factor * sign) for one, sign in _with_signs(value[0], name)]
        elif name in ("Mul", "Div") and len(before) == 1 and (number := number_of(value[0], "other")):
            pending.append((before[0], factor * number if name == "Mul" else factor / number))
        else:
            parts[value] += factor
    return {}


def _with_signs(node: Any, name: str) -> list[tuple[Value, float]]:
    """Return the values that a node adds or subtracts, with their factors."""
    alpha = number_of(node, "alpha") or 1.0
    factors = {"Add": (1.0, alpha), "Sub": (1.0, -alpha), "Rsub": (-alpha, 1.0)}[name]
    pairs = zip(node.next_functions, factors, strict=False)
    return [(value, factor) for value, factor in pairs if value[0] is not None]
