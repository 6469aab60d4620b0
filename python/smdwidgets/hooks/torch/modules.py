"""Select tensors by the modules that they belong to.

Criteria are the class, whether the module is trained, and buffers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from smdwidgets.config import Collection

__all__ = ["BUFFERS", "ModuleSelection", "NamedModule", "class_names", "is_called_in_parts", "persistent_buffers"]

#: The collection of buffers, such as the running statistics of a normalization layer.
BUFFERS = "buffers"

#: (name in tensor names, prefix of its parameters' names, module)
NamedModule = tuple[str, str, nn.Module]


@dataclass(frozen=True)
class ModuleSelection:
    """Tensors of the modules of some classes, or of all modules.

    Attributes:
        classes: classes of modules; empty for all modules, of which only parameters are selected.
        trainable: only parameters that require a gradient.
        inputs: whether inputs are selected.
        outputs: whether outputs are selected.
        parameters: whether parameters and their gradients are selected.
    """

    classes: tuple[type[nn.Module], ...] = ()
    trainable: bool = False
    inputs: bool = True
    outputs: bool = True
    parameters: bool = True

    def add_to(
        self,
        collection: Collection,
        modules: Iterable[NamedModule],
        parameters: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        """Add the selected tensors of a model to a collection.

        Parameters are added by name, inputs and outputs by one pattern.
        """
        chosen = [(name, prefix) for name, prefix, module in modules if isinstance(module, self.classes)]
        kinds = [kind for kind, wanted in (("input", self.inputs), ("output", self.outputs)) if wanted]
        if chosen and kinds:
            names = "|".join(re.escape(name) for name in dict.fromkeys(name for name, _ in chosen))
            pattern = rf"^(?:{names})_(?:{'|'.join(kinds)})_\d+$"
            if pattern not in collection.include_regex:
                collection.include(pattern)
        if self.parameters:
            prefixes = tuple(prefix for _, prefix in chosen)
            for name, parameter in parameters:
                within = not self.classes or name.startswith(prefixes)
                if within and (parameter.requires_grad or not self.trainable):
                    collection.add_tensor_name(name)
                    if parameter.requires_grad:
                        collection.add_tensor_name(f"gradient/{name}")


def persistent_buffers(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the buffers that a checkpoint of the module contains, with their names."""
    for prefix, part in module.named_modules():
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                yield f"{prefix}.{name}" if prefix else name, buffer


def is_called_in_parts(module: nn.Module) -> bool:
    """Return whether scripts call the submodules of a model, not the model.

    It has no ``forward``, or a ``training_step``, as a module of Lightning.
    """
    forward = getattr(type(module), "forward", None)  # the class of a scripted module has none
    return forward is nn.Module.forward or callable(getattr(type(module), "training_step", None))


def class_names(module: nn.Module) -> list[str]:
    """Return the names of a module's class and its base classes, without ``Module``.

    >>> class_names(nn.ReLU6())
    ['ReLU6', 'Hardtanh']
    """
    classes = type(module).__mro__
    return [base.__name__ for base in classes[: classes.index(nn.Module)] if not base.__name__.startswith("FSDP")]
