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
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Losses", "is_loss"]

#: Names of scalars that are losses: "loss", "val_loss", "train/loss", "losses/generator", "trainLoss"; not "loss_scale".
_LOSS = re.compile(r"(?:^|[/.:_\- ]|(?<=[a-z])(?=L))(?:loss|losses|Loss|LOSS)(?:$|[/.:])")


def is_loss(name: str) -> bool:
    """Whether a scalar of this name is a loss.

    >>> [is_loss(name) for name in ("loss", "val_loss", "train/loss", "losses/generator", "trainLoss")]
    [True, True, True, True, True]
    >>> [is_loss(name) for name in ("loss_scale", "gloss", "lossless/ratio", "accuracy")]
    [False, False, False, False]
    """
    return _LOSS.search(name) is not None


class Losses:
    """Scalar losses by name, and the means of several values in a step."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        #: Names that have had several values in a step. Their mean is saved at every step, to be a whole curve.
        self._several: set[str] = set()
        #: Numbers of values in the means that were returned.
        self._returned: dict[str, int] = {}

    def add(self, name: str, value: Any) -> None:
        """Add a number, which is copied."""
        self._values.setdefault(name, []).append(np.array(value).reshape(()))

    def means(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield names and means, in the type of the values.

        Those that have changed since the last call.
        """
        for name, values in self._values.items():
            if len(values) > 1:
                self._several.add(name)
            if name in self._several and self._returned.get(name) != len(values):
                self._returned[name] = len(values)
                mean = np.mean(np.array(values, dtype=np.float64))
                yield f"{name}_output_mean", np.asarray(mean, dtype=values[0].dtype)

    @property
    def had_several(self) -> bool:
        """Whether a mean was returned before."""
        return bool(self._several)

    def clear(self) -> None:
        """Forget the values: another step begins."""
        self._values.clear()
        self._returned.clear()
