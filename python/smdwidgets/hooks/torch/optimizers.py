"""The optimizers of a training.

The module finds those that update the registered models, their names, and the values to save.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim import Optimizer

__all__ = [
    "PREFIX",
    "Optimizers",
    "exists_for",
    "gradient_norm",
    "learning_rates",
    "state_of",
    "takes_closure",
    "unwrapped",
]

#: Names of the optimizer's tensors: ``optimizer/<optimizer>/<parameter>/exp_avg``,
#: ``optimizer/<optimizer>/learning_rate_0``.
PREFIX = "optimizer/"


@dataclass(slots=True)
class _Known:
    optimizer: weakref.ref[Optimizer]
    updates_model: bool
    state: tuple[int, int]  # numbers of parameter groups and models when `updates_model` was determined
    label: str = ""


class Optimizers:
    """The optimizers that have been seen.

    An optimizer may be deleted, and its id used again.
    """

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._deleted: deque[int] = deque()
        self._labels: dict[str, int] = {}

    def updates(self, optimizer: Optimizer, parameters: Iterable[tuple[str, torch.Tensor]], models: int) -> bool:
        """Whether an optimizer updates any of the parameters.

        ``models``: their number when ``parameters`` changes.
        """
        state = (len(optimizer.param_groups), models)
        known = self._known.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer or known.state != state:
            ids = {id(parameter) for _, parameter in parameters}
            key, deleted = id(optimizer), self._deleted
            label = known.label if known is not None and known.optimizer() is optimizer else ""
            known = self._known[key] = _Known(
                weakref.ref(optimizer, lambda _: deleted.append(key)),
                not ids.isdisjoint(_ids_of(optimizer)),
                state,
                label,
            )
        return known.updates_model

    def label(self, optimizer: Optimizer) -> str:
        """Name of an optimizer: its class, and a number for the second one of a class."""
        known = self._known[id(optimizer)]
        if not known.label:
            name = type(optimizer).__name__
            number = self._labels[name] = self._labels.get(name, -1) + 1
            known.label = f"{name}_{number}" if number else name
        return known.label

    def replaced_by(self, optimizer: Optimizer) -> Iterator[Hashable]:
        """Yield the ids of the other optimizers that hold parameters of an optimizer."""
        held = {*_ids_of(optimizer)}
        for key, known in self._known.items():
            other = known.optimizer()
            if other is not None and other is not optimizer and not held.isdisjoint(_ids_of(other)):
                yield key

    @property
    def has_deleted(self) -> bool:
        """Whether :meth:`deleted` yields anything."""
        return bool(self._deleted)

    def deleted(self) -> Iterator[Hashable]:
        """Yield the ids of optimizers that were deleted, once."""
        while self._deleted:
            key = self._deleted.popleft()
            known = self._known.get(key)
            if known is not None and known.optimizer() is None:
                del self._known[key]
                yield key


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside a wrapper such as that of Accelerate.

    It is the one whose ``step`` calls hooks.
    """
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer


def exists_for(parameters: Iterable[tuple[str, torch.Tensor]]) -> bool:
    """Whether any optimizer of this process updates any of the parameters.

    Takes about 0.1 s.
    """
    ids = {id(parameter) for _, parameter in parameters}
    # `isinstance` would run code of lazy objects.
    found = [each for each in gc.get_objects() if issubclass(type(each), Optimizer)]
    return any(not ids.isdisjoint(_ids_of(each)) for each in found)


def _ids_of(optimizer: Optimizer) -> Iterator[int]:
    groups = optimizer.__dict__.get("param_groups", ())
    return (id(parameter) for group in groups for parameter in group["params"])


def takes_closure(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether ``optimizer.step`` was called with a closure.

    Gradients are then computed during the call.
    """
    return (len(args) > 1 or bool(kwargs)) and any(callable(each) for each in (*args[1:], *kwargs.values()))


def gradient_norm(gradients: list[torch.Tensor]) -> torch.Tensor | None:
    """Return the l2 norm over all gradients, computed as ``clip_grad_norm_`` does.

    Return None for sharded or sparse gradients.
    """
    if not gradients or any(hasattr(one, "_local_tensor") or one.layout is not torch.strided for one in gradients):
        return None
    total = getattr(torch.nn.utils, "get_total_norm", None)
    if total is not None:
        return total(gradients)  # type: ignore[no-any-return, unused-ignore]
    first = gradients[0].device
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one).to(first) for one in gradients]))


def learning_rates(optimizer: Optimizer, label: str) -> Iterator[tuple[str, Any]]:
    """Yield the learning rate of each parameter group."""
    for index, group in enumerate(optimizer.param_groups):
        if "lr" in group:
            yield f"{PREFIX}{label}/learning_rate_{index}", group["lr"]


def state_of(optimizer: Optimizer, label: str, names: Mapping[int, str]) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and numbers that the optimizer keeps for each parameter."""
    for parameter, state in optimizer.state.items():
        name = names.get(id(parameter))
        if name is not None and isinstance(state, Mapping):
            for key, value in state.items():
                if isinstance(value, torch.Tensor | int | float):
                    yield f"{PREFIX}{label}/{name}/{key}", value
