"""What the layers of a model get, at its first passes."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

__all__ = ["LayerInputs"]


class LayerInputs:
    """Calls a function with the inputs of layers, at the first passes of a model.

    Args:
        look: called with a layer and its inputs; must not raise.
        passes: passes of each model that are looked at.
        layers: layers of a pass that are looked at.
    """

    def __init__(self, look: Callable[..., object], passes: int, layers: int) -> None:
        self._look = look
        self._most_passes, self._most_layers = passes, layers
        self._passes: weakref.WeakKeyDictionary[nn.Module, int] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []

    def enters(self, model: nn.Module, layers: Iterable[nn.Module]) -> None:
        """A model is called: look at some of its layers."""
        passes = self._passes.get(model, 0)
        if passes < self._most_passes:
            self._passes[model] = passes + 1
            some = itertools.islice(layers, self._most_layers)
            self._handles += [one.register_forward_pre_hook(self._enters_layer) for one in some]

    def leaves(self) -> None:
        """A model has returned."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _enters_layer(self, module: nn.Module, inputs: Any) -> None:
        self._look(module, inputs)
