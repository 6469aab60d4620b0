"""The loss of an evaluation, computed without gradients, batch by batch.

>>> evaluation = Evaluation()
>>> targets = torch.tensor([0, 1])
>>> evaluation.add("cross_entropy", torch.tensor(0.5), (None, targets), {})
>>> evaluation.add("cross_entropy", torch.tensor(3.0), (None, targets), {"reduction": "sum"})
>>> evaluation.mean({"NllLossBackward0"})
tensor(1.)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

__all__ = ["Evaluation"]

#: Functions whose targets are classes, so that they have one loss per target.
_OF_CLASSES = frozenset({"cross_entropy", "nll_loss"})
#: What PyTorch calls the operation of a function whose name differs, without "backward".
_OPERATIONS = {"cross_entropy": "nllloss"}


class Evaluation:
    """Sums of the losses that one evaluation computes, by function."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[torch.Tensor, int]] = {}

    def add(self, function: str, value: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Add what a loss function returned. Waits for no device.

        Args:
            function: name of the function.
            value: a loss, or one per sample.
            args: arguments of the function.
            kwargs: its keyword arguments.
        """
        if not value.is_floating_point() or not value.numel():
            return
        loss = value.detach().mean()
        if kwargs.get("reduction") == "sum":
            at = 1 if function in _OF_CLASSES else 0
            given = args[at] if len(args) > at else kwargs.get("target" if at else "input")
            if not isinstance(given, torch.Tensor) or not given.numel():
                return
            by_probability = at and given.is_floating_point() and given.ndim > 1
            loss = loss / (len(given) if by_probability else given.numel())
        total, count = self._sums.get(function, (None, 0))
        self._sums[function] = (loss if total is None else total + loss), count + 1

    def mean(self, origins: Collection[str]) -> torch.Tensor | None:
        """Return the mean loss.

        None if there is none, or if several functions could be it.

        Args:
            origins: operations that computed the training loss, as PyTorch names them.
        """
        found = self._sums
        if len(found) > 1:
            names = {origin.lower().partition("backward")[0].removesuffix("2d") for origin in origins}
            found = {name: one for name, one in found.items() if _OPERATIONS.get(name, name.replace("_", "")) in names}
        if len(found) != 1:
            return None
        ((total, count),) = found.values()
        return total / count
