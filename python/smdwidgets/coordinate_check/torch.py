"""Sizes of the activations of a PyTorch model while it is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugTypeError

__all__ = ["OUTPUT", "measured"]

OUTPUT = "output"
"""The name of what a model returns."""
#: Elements of an output that are compared with those before the first update.
_COMPARED = 1 << 20


def measured(make: Callable[[int], Any], width: int, steps: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Train a model, and return its sizes and changes.

    The result has one array per layer that is called at each step: sizes and changes by number of updates.
    """
    torch.manual_seed(seed)
    returned = make(width)
    if not (
        isinstance(returned, tuple)
        and len(returned) == 2
        and isinstance(returned[0], nn.Module)
        and callable(returned[1])
    ):
        raise SMDebugTypeError(
            f"make({width}) must return a model and a function that trains one step, got {shown(type(returned).__name__)}"
        )
    model, step = returned
    outputs = _Outputs(model)
    try:
        for _ in range(steps + 1):
            outputs.begin()
            step()
            outputs.end()
    finally:
        outputs.remove()
    last = next(reversed([name for name in outputs.sizes if name != OUTPUT]), None)
    if last is not None and outputs.sizes[last] == outputs.sizes.get(OUTPUT):
        del outputs.sizes[OUTPUT]  # the model returns what its last module does
    return {
        name: np.array([sizes, outputs.changes[name]])
        for name, sizes in outputs.sizes.items()
        if len(sizes) == steps + 1
    }


class _Outputs:
    """Measures the outputs of all modules of a model."""

    def __init__(self, model: nn.Module) -> None:
        self.sizes: dict[str, list[float]] = {}
        self.changes: dict[str, list[float]] = {}
        self._first: dict[str, torch.Tensor] = {}
        #: By layer: the size of each of its outputs in this step, and elements of the first one.
        self._now: dict[str, list[tuple[float, torch.Tensor]]] = {}
        self._inputs: list[torch.Tensor] = []
        self._first_inputs: list[torch.Tensor] | None = None
        self._handles = [part.register_forward_hook(self._hook(name or OUTPUT)) for name, part in model.named_modules()]
        self._handles.append(model.register_forward_pre_hook(self._enters, with_kwargs=True))

    def remove(self) -> None:
        """Remove the callbacks."""
        for handle in self._handles:
            handle.remove()

    def begin(self) -> None:
        """A step begins."""
        self._now.clear()
        self._inputs.clear()

    def _enters(self, model: nn.Module, inputs: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self._inputs += [one.detach().clone() for one in (*inputs, *named.values()) if isinstance(one, torch.Tensor)]

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            value = _numbers(output)
            if value is not None:
                flat = value.detach().float().flatten()
                self._now.setdefault(name, []).append((float(flat.abs().mean()), flat[:_COMPARED].clone()))

        return hook

    def end(self) -> None:
        """A step has ended: measure what the modules gave.

        Changes are measured if the inputs are those of the first step.
        """
        is_first = self._first_inputs is None
        if self._first_inputs is None:
            self._first_inputs = list(self._inputs)
        pairs = zip(self._inputs, self._first_inputs, strict=False)
        is_same = len(self._inputs) == len(self._first_inputs) and all(torch.equal(one, two) for one, two in pairs)
        for name, values in self._now.items():
            self.sizes.setdefault(name, []).append(float(np.mean([size for size, _ in values])))
            sample = values[0][1]
            first = self._first.setdefault(name, sample) if is_first else self._first.get(name)
            is_comparable = is_same and first is not None and first.shape == sample.shape
            change = float((sample - first).abs().mean()) if is_comparable and first is not None else float("nan")
            self.changes.setdefault(name, []).append(change)


def _numbers(output: Any) -> torch.Tensor | None:
    """Return the first tensor of numbers in an output."""
    if isinstance(output, torch.Tensor):
        return output if output.is_floating_point() and output.numel() else None
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((one for one in map(_numbers, parts) if one is not None), None)
