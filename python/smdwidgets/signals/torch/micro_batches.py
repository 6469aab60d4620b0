"""Gradients of the micro-batches of an update, which give the noise scale.

A hook on each parameter sees the gradient of one backward pass before it is added to the others, and before processes
average it. Some elements of each are read, at other places each time, so that all count equally in the mean.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from smdwidgets.checks.torch.values import is_plain, stride_of

__all__ = ["MicroBatches", "examples_of"]

_TENSORS, _ELEMENTS = 512, 1024
#: Squared distance of two gradients, relative to the squared norm, above which they are not the same one.
_DIFFERENT = 1e-3

Judge = Callable[[Any], tuple[float, float, float, float] | None]
"""Takes the values that were measured; returns those of the signal, or None if they are unusable."""


def examples_of(inputs: Iterable[Any]) -> int | None:
    """Return the number of examples in the inputs of a model.

    It is the first size of the first tensor.

    >>> examples_of([{"tokens": torch.zeros(8, 128)}, torch.zeros(3)])
    8
    """
    for one in inputs:
        if isinstance(one, torch.Tensor) and one.ndim:
            return int(one.shape[0])
        parts = one.values() if isinstance(one, Mapping) else one if isinstance(one, tuple | list) else ()
        number = examples_of(parts)
        if number is not None:
            return number
    return None


class MicroBatches:
    """Reads the gradients of one update after the other.

    Args:
        ranks: returns the number of processes that average their gradients.
        run: calls a function in the hook of a parameter, counts its time, and raises nothing.
    """

    def __init__(self, ranks: Callable[[], int], run: Callable[..., None]) -> None:
        self._ranks, self._run = ranks, run
        self._chance = random.Random(0)
        #: Backward passes of the update in progress, and of the last one.
        self.passes = self.last_passes = 0
        #: Whether each backward pass had a pass of the model before it.
        self._is_plain = True
        #: Whether the model was called since the last backward pass, and with how many examples; 0 if unknown.
        self._called, self._examples = False, 0
        self._sizes: list[int] = []
        self._handles: list[Any] = []
        self._forget()

    def _forget(self) -> None:
        """Drop what was read."""
        #: By id of a parameter: the parameter, and the places that are read.
        self._places: dict[int, tuple[weakref.ref[nn.Parameter], torch.Tensor]] = {}
        #: The number of elements that each place stands for.
        self._weights: torch.Tensor | None = None
        #: By id of a parameter: what the backward pass in progress has given.
        self._parts: dict[int, torch.Tensor] = {}
        self._squares: list[torch.Tensor] = []
        self._sum: torch.Tensor | None = None
        self._final: torch.Tensor | None = None

    @property
    def listens(self) -> bool:
        """Whether gradients of the update in progress are read."""
        return bool(self._places or self._handles)

    @property
    def why_not(self) -> str:
        """Why the last update had no two sizes of batches; empty if it had."""
        if not self._is_plain:
            return (
                "several backward passes belong to one pass of the model, so that their gradients are no micro-batches"
            )
        if self.last_passes > 1 or self._ranks() > 1:
            return ""
        return (
            "an update has one backward pass in one process, which shows no noise; accumulate the gradients of two or more "
            "micro-batches, or train with DistributedDataParallel"
        )

    def called(self, examples: int | None) -> None:
        """The model is called for training."""
        self._called = True
        self._examples = max(self._examples, examples or 0)

    def begins(self, parameters: Callable[[], Iterable[nn.Parameter]], is_due: bool) -> None:
        """A backward pass begins.

        Args:
            parameters: returns the parameters of the models.
            is_due: whether to read this update, if the pass is its first.
        """
        self.passes += 1
        self._is_plain = self._called if self.passes == 1 else self._is_plain and self._called
        if self.passes == 1:
            self._sizes.clear()
            if self.listens:  # an update that no optimizer has ended
                self._forget()
            if is_due:
                self._choose(parameters())
        self._sizes.append(self._examples)
        self._called, self._examples = False, 0
        for key, (reference, places) in self._places.items():
            parameter = reference()
            if parameter is not None:
                self._handles.append(parameter.register_hook(self._hook(key, places)))

    def _choose(self, parameters: Iterable[nn.Parameter]) -> None:
        """Choose the elements that are read."""
        usable = [one for one in parameters if one.requires_grad and one.is_leaf and one.numel() and is_plain(one)]
        step = -(-len(usable) // _TENSORS) or 1
        chosen = usable[self._chance.randrange(step) :: step]
        if not chosen or len({one.device for one in chosen}) > 1:
            return
        places, weights = [], []
        for one in chosen:
            number, count = one.numel(), min(one.numel(), _ELEMENTS)
            stride = stride_of(number, one.shape[-1] if one.ndim else 1, _ELEMENTS)
            first = self._chance.randrange(number)
            places.append((first + stride * np.arange(count)) % number)
            weights.append(np.full(count, step * number / count, np.float32))
        device = chosen[0].device
        flat = _moved(torch.from_numpy(np.concatenate(places)), device)
        self._weights = _moved(torch.from_numpy(np.concatenate(weights)), device)
        parts = flat.split([len(one) for one in places])
        self._places = {id(one): (weakref.ref(one), part) for one, part in zip(chosen, parts, strict=True)}

    def _hook(self, key: int, places: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def take(gradient: torch.Tensor) -> None:
            values = _read(gradient, places)
            earlier = self._parts.get(key)  # activations that are recomputed give a gradient in parts
            self._parts[key] = values if earlier is None else earlier + values

        return lambda gradient: self._run(take, gradient)

    def listens_no_more(self) -> None:
        """Remove the hooks of parameters."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def ends(self) -> None:
        """A backward pass has ended."""
        self.listens_no_more()
        weights = self._weights
        if weights is None or not self._parts:
            self._parts.clear()
            return
        values = self._joined(lambda key, places, parameter: self._parts.get(key))
        self._parts.clear()
        self._squares.append((weights * values.square()).sum())
        self._sum = values if self._sum is None else self._sum + values
        if self._ranks() > 1:  # gradients that processes have averaged, unless a later pass does it
            self._final = self._joined(
                lambda key, places, parameter: (
                    None if parameter is None or parameter.grad is None else _read(parameter.grad, places)
                )
            )

    def _joined(self, part: Callable[[int, torch.Tensor, nn.Parameter | None], torch.Tensor | None]) -> torch.Tensor:
        """Return the parts of all parameters in a row, 0 where there is none."""
        parts = [(places, part(key, places, one())) for key, (one, places) in self._places.items()]
        return torch.cat(
            [torch.zeros_like(places, dtype=torch.float32) if one is None else one for places, one in parts]
        )

    def updates(self, ids: set[int]) -> bool:
        """Whether an optimizer with parameters of these ids ends the update."""
        return self.passes > 0 and (not self._places or not ids.isdisjoint(self._places))

    def finishes_unread(self) -> None:
        """The optimizer has stepped, and nothing was read of this update."""
        self.last_passes, self.passes = self.passes, 0

    def finished(self) -> tuple[torch.Tensor, Judge] | None:
        """The optimizer has stepped: return what was measured, and how to judge it."""
        count = self.passes
        self.finishes_unread()
        squares, total, final, weights, sizes = self._squares, self._sum, self._final, self._weights, list(self._sizes)
        self._forget()
        ranks = self._ranks()
        if weights is None or total is None or len(squares) != count or not self._is_plain or len({*sizes}) > 1:
            return None
        if count < 2 and ranks < 2:
            return None
        size = sizes[0]
        values = [torch.stack(squares).mean(), (weights * total.square()).sum()]
        if final is not None:
            values += [(weights * final.square()).sum(), (weights * (final - total).square()).sum()]

        def judge(flat: Any) -> tuple[float, float, float, float] | None:
            small, big, number = float(flat[0]), float(flat[1]), count
            if len(flat) > 2 and float(flat[3]) > _DIFFERENT * big:
                big, number = float(flat[2]), count * ranks
            if number < 2 or not np.isfinite([small, big]).all():
                return None
            big /= count**2
            return (small, big, float(size), float(size * number)) if size else (small, big, np.nan, float(number))

        return torch.stack(values), judge


def _read(gradient: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return a copy of some elements, by their place in the order of the rows."""
    gradient = gradient.detach()
    gradient = gradient.to_dense() if gradient.is_sparse else gradient
    return torch.take(gradient, places).float()


def _moved(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
