"""Callbacks on modules, parameters and optimizers.

They never raise into the training.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from smdwidgets.exceptions import TrainingStopped
from smdwidgets.hooks import torch_graph
from smdwidgets.hooks.torch_script import hide_from_script
from smdwidgets.hooks.torch_training import ModelHook

__all__ = ["Callback", "GraphCallback", "ModuleCallback", "PartCallback"]


class Callback:
    """A callback registered on a module, parameter or optimizer.

    It refers to the hook weakly. Copying or pickling it yields an empty callback, because a copy of the model is not part of
    the training.
    """

    __slots__ = ("__weakref__", "_call", "_hook")

    def __init__(self, hook: ModelHook | None, call: Callable[..., None] | None) -> None:
        self._hook = None if hook is None else weakref.ref(hook)
        self._call = call

    def __call__(self, *args: Any) -> None:
        """Call the hook if it is open.

        A failure is logged once per kind, and the training continues.
        """
        hook = None if self._hook is None else self._hook()
        if hook is not None and self._call is not None and hook._alive():
            with hook._gate:
                try:
                    self._call(hook, *args)
                except TrainingStopped:
                    raise
                except Exception as error:
                    kind = f"{type(error).__name__}: {error}"
                    hook._report_failure(kind, f"recording failed, and the training continues: {kind[:300]}")

    def __deepcopy__(self, memo: object) -> Callback:
        return type(self)(None, None)

    def __reduce__(self) -> tuple[type[Callback], tuple[None, None]]:
        return type(self), (None, None)


class ModuleCallback(Callback):
    """A callback of a module that is called outside of compiled graphs."""

    __slots__ = ()

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def __call__(self, *args: Any) -> None:
        """Call the hook outside of compiled graphs."""
        super().__call__(*args)


class PartCallback(ModuleCallback):
    """A callback of a submodule that the script may call itself.

    A compiled model calls its submodules itself, so the graph leaves the callback out.
    """

    __slots__ = ()

    def __call__(self, *args: Any) -> None:
        """Call the hook outside of compiled graphs."""
        if not torch.compiler.is_compiling():
            ModuleCallback.__call__(self, *args)


class GraphCallback(ModuleCallback):
    """A callback with the inputs or outputs of a module.

    In a compiled model, the graph calls it if ``in_graphs``; else the graph leaves it out.
    """

    __slots__ = ("_module", "_number", "_of_outputs")

    def __init__(
        self,
        hook: ModelHook | None,
        call: Callable[..., None] | None,
        module: nn.Module | None = None,
        of_outputs: bool = False,
        in_graphs: bool = True,
    ) -> None:
        super().__init__(hook, call)
        self._module = None if module is None else weakref.ref(module)
        self._number = torch_graph.number_of(self) if in_graphs and module is not None else -1
        self._of_outputs = of_outputs

    def __call__(self, *args: Any) -> None:
        """Call the hook, or add an operator to the graph that calls it."""
        if torch.compiler.is_compiling() and (torch_graph.AVAILABLE or self._number < 0):
            if self._number >= 0:
                torch_graph.call_in_graph(args[2] if self._of_outputs else args[1:], self._number)
        elif (hook := None if self._hook is None else self._hook()) is not None and hook._plan.saves_activations:
            # Most steps save none. The rest of the call takes ten times as long as this test.
            ModuleCallback.__call__(self, *args)

    def called_by_graph(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Call the hook with the inputs or outputs of a module in a compiled graph."""
        module = None if self._module is None else self._module()
        if module is not None:
            ModuleCallback.__call__(self, module, *(((), tensors) if self._of_outputs else (tensors, {})))


hide_from_script(ModuleCallback)
