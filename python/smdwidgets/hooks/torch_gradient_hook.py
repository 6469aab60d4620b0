"""The gradient layer of the PyTorch hook: gradients that a backward pass leaves."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from smdwidgets.hooks.torch_callbacks import Callback
from smdwidgets.hooks.torch_copying_hook import CopyingHook

__all__ = ["GradientHook"]


class GradientHook(CopyingHook):
    """Watches the gradients of parameters where no optimizer is known to use them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        # By id of the parameter: the parameter, its gradient's name, the handle of its callback.
        self._watched: dict[int, tuple[weakref.ref[nn.Parameter], str, Any]] = {}
        super().__init__(*args, **options)

    def _watch(self, name: str, parameter: nn.Parameter) -> None:
        """Register a callback for a parameter's gradient.

        It is removed at the first step that is not saved.
        """
        known = self._watched.get(id(parameter))
        if known is not None and known[0]() is parameter:
            return
        gradient = f"gradient/{name}"
        if is_lazy(parameter):  # a lazy parameter has no shape before the first forward pass
            return
        if parameter.is_leaf and self._save_spec(gradient) is not None:
            handle = parameter.register_post_accumulate_grad_hook(Callback(self, GradientHook._after_gradient))
            self._watched[id(parameter)] = weakref.ref(parameter), gradient, handle

    def _watch_none(self) -> None:
        for _, _, handle in self._watched.values():
            handle.remove()
        self._watched.clear()

    def _after_gradient(self, parameter: torch.Tensor) -> None:
        if self._saving and parameter.grad is not None and self._loop.watches_gradients:
            self._loop.gradient(self._watched[id(parameter)][1], parameter.grad)
