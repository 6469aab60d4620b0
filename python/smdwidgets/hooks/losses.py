"""The losses of a step, which may have several micro-batches.

>>> losses = Losses()
>>> losses.add("MSELoss", np.float32(1.0)), losses.add("MSELoss", np.float32(2.0))
(None, None)
>>> list(losses.means())
[('MSELoss_output_mean', array(1.5, dtype=float32))]
>>> losses.clear()
>>> losses.add("MSELoss", np.float32(4.0))  # the last, incomplete batch of an epoch
>>> list(losses.means())
[('MSELoss_output_mean', array(4., dtype=float32))]

A loss that the script divides by the number of micro-batches is multiplied by it again, so that curves of trainings
with different numbers agree. Where the values are terms of one loss, such as of a mean over all tokens of the step, it
is their sum.

>>> losses.clear()
>>> losses.add("loss", np.float32(0.5), 2.0), losses.add("loss", np.float32(1.0), 2.0)
(None, None)
>>> list(losses.means())
[('loss_output_mean', array(1.5, dtype=float32))]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Losses"]


class Losses:
    """Scalar losses by name, and the means of several values in a step."""

    def __init__(self) -> None:
        #: Values, and the number that each was divided by.
        self._values: dict[str, list[tuple[Any, float]]] = {}
        #: Names that have had several values in a step. Their mean is saved at every step, to be a whole curve.
        self._several: set[str] = set()
        #: Numbers of values in the means that were returned.
        self._returned: dict[str, int] = {}
        #: Numbers of micro-batches by which losses were divided in a step that had so many.
        self._micro_batches: set[float] = set()

    def add(self, name: str, value: Any, divisor: float = 1.0) -> None:
        """Add a number, which is copied.

        ``divisor``: the constant that the script has divided it by.
        """
        self._values.setdefault(name, []).append((np.array(value).reshape(()), divisor))

    def means(self, are_terms: bool = False) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield names and means, in the type of the values.

        Those that have changed since the last call. If the values of a step ``are_terms`` of its loss, it is their sum.
        """
        for name, values in self._values.items():
            if len(values) > 1:
                self._several.add(name)
            if name in self._several and self._returned.get(name) != len(values):
                self._returned[name] = len(values)
                yield f"{name}_output_mean", np.asarray(self._mean(values, are_terms), dtype=values[0][0].dtype)

    def _mean(self, values: list[tuple[Any, float]], are_terms: bool) -> float:
        numbers = np.array([value for value, _ in values], dtype=np.float64)
        if are_terms:
            return float(numbers.sum())
        divisor = values[0][1]
        if len(values) > 1 and divisor == len(values):
            self._micro_batches.add(divisor)
        # The last step of an epoch may have fewer micro-batches.
        divided = divisor in self._micro_batches and all(each == divisor for _, each in values)
        return float(np.mean(numbers)) * (divisor if divided else 1.0)

    @property
    def had_several(self) -> bool:
        """Whether a mean was returned before."""
        return bool(self._several)

    @property
    def has_mean(self) -> bool:
        """Whether a mean of these values was returned."""
        return bool(self._returned)

    def clear(self) -> None:
        """Forget the values: another step begins."""
        self._values.clear()
        self._returned.clear()
