"""Gradients that a backward pass leaves, where no optimizer is known to use them."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch.callbacks import Callback
from smdwidgets.hooks.torch.training import TrainingLoop

__all__ = ["GradientWatch"]


class GradientWatch:
    """Watches the gradients of parameters.

    Args:
        parts: the parts of the hook.
        loop: receives the gradients.
    """

    def __init__(self, parts: Parts, loop: TrainingLoop) -> None:
        self._guard = parts.guard
        self._plan = parts.plan
        self._loop = loop
        #: By id of the parameter: the parameter, its gradient's name, the handle of its callback.
        self._watched: dict[int, tuple[weakref.ref[nn.Parameter], str, Any]] = {}

    def watch(self, name: str, parameter: nn.Parameter) -> None:
        """Register a callback for a parameter's gradient.

        It is removed at the first step that is not saved.
        """
        watched = self._watched.get(id(parameter))
        if watched is not None and watched[0]() is parameter:
            return
        gradient = f"gradient/{name}"
        if is_lazy(parameter):  # a lazy parameter has no shape before the first forward pass
            return
        if parameter.is_leaf and self._plan.spec(gradient) is not None:
            callback = Callback(self, self._guard, GradientWatch._after_gradient)
            handle = parameter.register_post_accumulate_grad_hook(callback)
            self._watched[id(parameter)] = weakref.ref(parameter), gradient, handle

    def stop(self) -> None:
        """Remove all callbacks."""
        for _, _, handle in self._watched.values():
            handle.remove()
        self._watched.clear()

    def _after_gradient(self, parameter: torch.Tensor) -> None:
        if self._plan.saving and parameter.grad is not None and self._loop.watches_gradients:
            self._loop.gradient(self._watched[id(parameter)][1], parameter.grad)
