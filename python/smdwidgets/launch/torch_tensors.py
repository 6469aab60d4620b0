"""PyTorch trainings of tensors without a module or without an optimizer.

Tensors without a module get one, whose names are those of the variables that hold them. It computes nothing: a call of
it marks a pass, which the launcher makes before each backward pass.

A script without an optimizer is seen by the values of its tensors, which change between backward passes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from smdwidgets.checks.torch.graph import walk
from smdwidgets.checks.torch.values import sampled

__all__ = ["HandUpdates", "Tensors"]

#: Backward passes after which values are compared with those of the first one, for micro-batches and warm-ups; and how
#: often another pass counts as the first one, because its tensors do not exist any more.
_COMPARED, _RESTARTS = (3, 8, 20, 50), 3
#: Numbers of a tensor that are compared.
_SAMPLE = 256
#: Members of a variable that are searched.
_MOST_MEMBERS = 10_000
#: Code that holds no variables of the script.
_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))


class Tensors(nn.Module):  # type: ignore[misc]
    """A module of tensors that belong to no other one.

    Args:
        tensors: leaves with gradients, which stay the script's.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        unnamed = {id(one): one for one in tensors}
        for name, one in _variables():
            if unnamed.pop(id(one), None) is not None:
                self._add(name, one)
        for one in unnamed.values():
            self._add("tensor", one)

    def _add(self, name: str, tensor: torch.Tensor) -> None:
        held: dict[str, Any] = self._parameters  # a module computes with any tensor there
        unique = name if name not in held else f"{name}_{len(held)}"
        held[unique] = tensor

    def forward(self) -> None:
        """Mark the beginning of a pass."""


class HandUpdates:
    """Looks for updates that a script makes without an optimizer.

    Example:
        >>> import torch
        >>> weight, hand = torch.ones(2, requires_grad=True), HandUpdates()
        >>> for step in range(3):
        ...     loss = (weight**2).sum()
        ...     loss.backward()
        ...     updated = hand.after_backward(loss)
        ...     with torch.no_grad():
        ...         weight -= 0.1 * weight.grad
        >>> updated[0] is weight
        True
    """

    def __init__(self) -> None:
        self._passes = 0
        self._restarts = 0
        self._first: list[tuple[weakref.ref[torch.Tensor], torch.Tensor]] = []

    @property
    def is_looking(self) -> bool:
        """Whether updates may still be found."""
        return self._passes < _COMPARED[-1]

    def after_backward(self, roots: Any) -> list[torch.Tensor]:
        """Return the tensors that change between backward passes, once there are any.

        ``roots``: what ``backward()`` was called on.
        """
        if not isinstance(roots, torch.Tensor) or roots.grad_fn is None:
            return []
        self._passes += 1
        if self._passes == 1:
            self._first = [(weakref.ref(one), sampled(one, _SAMPLE).clone()) for one in walk(roots, None).leaves]
        elif self._passes in _COMPARED:
            living = [(tensor, before) for one, before in self._first if (tensor := one()) is not None]
            changed = [tensor for tensor, before in living if not torch.equal(sampled(tensor, _SAMPLE), before)]
            if changed and (len(changed) == len(living) or _in_modules(changed)):
                self._passes, self._first = _COMPARED[-1], []
                return changed
            if not living and self._restarts < _RESTARTS:
                self._passes, self._restarts = 0, self._restarts + 1
        return []


def _in_modules(tensors: list[torch.Tensor]) -> bool:
    """Whether these are weights of models.

    An input that is changed, as in an attack, is none.
    """
    return any(isinstance(one, nn.Parameter) for one in tensors)


def _variables() -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of the script by name, in the order in which they were set."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            for name, value in list(frame.f_locals.items()):
                yield from _members(name, value)
        frame = frame.f_back


def _members(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a tensor, or those that a list, dictionary or object holds."""
    if type(value) is dict and len(value) <= _MOST_MEMBERS:
        yield from ((f"{name}_{key}", one) for key, one in value.items() if isinstance(one, torch.Tensor))
    elif isinstance(fields := getattr(value, "__dict__", None), Mapping) and not isinstance(
        value, torch.Tensor | type | type(sys)
    ):
        for key, one in list(fields.items()):
            yield from _listed(key, one)
    else:
        yield from _listed(name, value)


def _listed(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield a tensor, or those of a list."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif type(value) in (list, tuple) and len(value) <= _MOST_MEMBERS:
        yield from ((f"{name}_{index}", one) for index, one in enumerate(value) if isinstance(one, torch.Tensor))
