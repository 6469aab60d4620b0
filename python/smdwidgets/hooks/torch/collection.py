"""The collection class of the PyTorch hook."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from smdwidgets._text import shown
from smdwidgets.config import Collection as BaseCollection
from smdwidgets.exceptions import SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.torch.modules import ModuleSelection, NamedModule

__all__ = ["Collection"]


class Collection(BaseCollection):
    """A collection to which modules can be added, to save their inputs and outputs."""

    _modules: list[tuple[nn.Module, bool, bool]]
    _selections: list[ModuleSelection]

    def add_module_tensors(self, module: nn.Module, inputs: bool = False, outputs: bool = True) -> None:
        """Add the inputs or outputs of a submodule of the registered module."""
        if not isinstance(module, nn.Module):
            raise SMDebugTypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
        self.__dict__.setdefault("_modules", []).append((module, inputs, outputs))

    def select(self, selection: ModuleSelection) -> None:
        """Add the tensors of modules of some classes, or trainable parameters.

        See :meth:`Hook.collection`.
        """
        self.__dict__.setdefault("_selections", []).append(selection)

    def add_selected(self, modules: Iterable[NamedModule], parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Add the selected tensors of the registered models, whose names are known."""
        for selection in self.__dict__.get("_selections", ()):
            selection.add_to(self, modules, parameters)

    def take_module_names(self, name_of: Callable[[nn.Module], str | None]) -> None:
        """Convert the added modules to patterns, once the hook knows their names."""
        for module, inputs, outputs in self.__dict__.pop("_modules", []):
            name = name_of(module)
            if name is None:
                raise SMDebugValueError(
                    f"collection {shown(self.name)} contains a {type(module).__name__} that is not part of a registered "
                    "module; call register_module first"
                )
            start = "^" + "".join(f"\\{c}" if not (c.isalnum() or c == "_") else c for c in name)
            self.include([f"{start}_{kind}_" for kind, wanted in (("input", inputs), ("output", outputs)) if wanted])
