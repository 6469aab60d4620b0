"""Call what a subclass of the PyTorch hook overrides.

Such a method decides what is saved of a module.

::

    class Hook(smd.Hook):
        def forward_hook(self, module, inputs, outputs):
            outputs.register_hook(self.backward_hook(f"{self.module_maps[module]}_output"))
            super().forward_hook(module, inputs, outputs)

Without an override, inputs, outputs and gradients are taken in other ways, which see inputs before a module changes
them, and gradients as the optimizer uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import nn

from smdwidgets.hooks.core.parts import Parts
from smdwidgets.hooks.torch.callbacks import Callback, ModuleCallback, PartCallback
from smdwidgets.hooks.torch.graph import inside_compiled
from smdwidgets.hooks.torch.module_calls import ModuleCalls
from smdwidgets.hooks.torch.names import unwrapped_module
from smdwidgets.hooks.torch.passive import is_passive
from smdwidgets.hooks.torch.registered import RegisteredModels

__all__ = ["Overrides"]


class _Overridden(Protocol):
    """The methods of the hook that subclasses override."""

    def forward_pre_hook(self, module: nn.Module, inputs: Any) -> None:
        """A registered model is about to be called."""

    def forward_hook(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        """A module of a registered model has been called."""

    def backward_hook(self, tname: str) -> Callable[[torch.Tensor], Any]:
        """Return a callback for a gradient."""


class Overrides:
    """Registers the callbacks that call overridden methods.

    Args:
        names: the overridden methods.
        parts: the parts of the hook.
        models: the registered models.
        modules: takes inputs and outputs where no method is overridden.
    """

    def __init__(self, names: frozenset[str], parts: Parts, models: RegisteredModels, modules: ModuleCalls) -> None:
        self._names = names
        self._guard = parts.guard
        self._tensors = parts.tensors
        self._models = models
        self._modules = modules

    def follow(self, hook: _Overridden, called: nn.Module, model: nn.Module) -> Iterator[Any]:
        """Have a model call the hook; yield the handles that end it.

        Args:
            hook: the hook.
            called: what the script calls: the model, or a wrapper.
            model: the model.
        """
        if "forward_pre_hook" in self._names:
            yield called.register_forward_pre_hook(ModuleCallback(hook, self._guard, _before_call))
        if self._names & {"forward_hook", "_write_inputs", "_write_outputs"}:
            self._modules.by_script = True
            if inside_compiled([called]):
                self._guard.report_failure(
                    "forward_hook in a graph",
                    "forward_hook is not called for modules inside of a model that torch.compile has compiled, and nothing "
                    "is saved of their inputs and outputs",
                )
            for part in model.modules():
                yield part.register_forward_hook(PartCallback(hook, self._guard, _after_call))
        if "backward_hook" in self._names:
            ids = {id(one) for one in model.parameters() if one.requires_grad}
            for name, parameter in self._models.parameters(ids):
                if id(parameter) in ids:
                    yield parameter.register_hook(
                        Callback(hook, self._guard, _dropping_result(hook.backward_hook(name)))
                    )

    def gradient_callback(self, name: str) -> Callable[[torch.Tensor], None]:
        """Return a callback that saves a gradient, unless it is that of a parameter."""
        return Callback(self, self._guard, lambda overrides, gradient: overrides.save_gradient(name, gradient))

    def save_gradient(self, name: str, gradient: torch.Tensor | None) -> None:
        """Save a gradient if a collection selects it.

        That of a parameter is saved as the optimizer uses it.
        """
        is_of_parameter = any(name == known for known, _ in self._models.parameters())
        if gradient is not None and not is_of_parameter:
            self._tensors.capture(f"gradient/{name}", gradient)


def _before_call(hook: _Overridden, module: nn.Module, inputs: Any) -> None:
    if not is_passive():
        hook.forward_pre_hook(unwrapped_module(module), inputs)


def _after_call(hook: _Overridden, module: nn.Module, inputs: Any, outputs: Any) -> None:
    if not is_passive():
        hook.forward_hook(module, inputs, outputs)


def _dropping_result(save: Callable[[torch.Tensor], Any]) -> Callable[[_Overridden, torch.Tensor], None]:
    """Return a callback that drops the result of a function.

    PyTorch would replace the gradient by it.
    """

    def call(_: _Overridden, gradient: torch.Tensor) -> None:
        save(gradient)

    return call
