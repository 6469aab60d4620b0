"""Callbacks on modules, parameters and optimizers.

They never raise into the training.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import nn

from smdwidgets.exceptions import TrainingStopped
from smdwidgets.hooks.capture.plan import Plan
from smdwidgets.hooks.core.guard import Guard
from smdwidgets.hooks.torch import graph as torch_graph
from smdwidgets.hooks.torch.script import hide_from_script
from smdwidgets.hooks.torch.untraced import untraced

__all__ = ["Callback", "GraphCallback", "ModuleCallback", "PartCallback", "Receivers", "Shortcut"]


class Shortcut:
    """A function that callbacks of an event call first, for as long as it is set.

    It returns whether the event is done with.
    """

    __slots__ = ("take",)

    def __init__(self) -> None:
        self.take: Callable[..., bool] | None = None


class Callback:
    """A callback registered on a module, parameter or optimizer.

    It refers to its owner, a part of the hook, weakly. Copying or pickling it yields an empty callback, because a copy
    of the model is not part of the training. torch.compile does not trace it, and calls it between two graphs.
    """

    __slots__ = ("__weakref__", "_call", "_guard", "_owner", "_shortcut")

    def __init__(
        self, owner: Any, guard: Guard | None, call: Callable[..., None] | None, shortcut: Shortcut | None = None
    ) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self._guard = guard
        self._call = call
        self._shortcut = shortcut

    def call(self, *args: Any) -> None:
        """Call the owner's method if the hook is open.

        A failure is logged once per kind, and the training continues.
        """
        reference, guard, call = self._owner, self._guard, self._call
        if reference is None or guard is None or call is None:
            return
        if not guard.alive:
            return
        shortcut = self._shortcut
        try:
            if shortcut is not None and shortcut.take is not None and shortcut.take(*args):
                return
            if (owner := reference()) is not None:
                with guard.gate:
                    call(owner, *args)
        except TrainingStopped:
            raise
        except Exception as error:
            guard.report_error(error)

    #: Does the same where torch.compile may trace.
    __call__ = untraced(call)

    def __deepcopy__(self, memo: object) -> Callback:
        return type(self)(None, None, None)

    def __reduce__(self) -> tuple[type[Callback], tuple[None, None, None]]:
        return type(self), (None, None, None)


class Receivers:
    """What receives the events of a training, in order.

    PyTorch calls back once for each event: a callback costs as much as what most receivers do at most steps.

    Args:
        guard: the hook's guard.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._by_event: dict[str, list[Callable[..., None]]] = {}

    def add(self, by_event: Mapping[str, Callable[..., None]]) -> None:
        """Add receivers, after those that were added before."""
        for event, receive in by_event.items():
            self._by_event.setdefault(event, []).append(receive)

    def callbacks(self, shortcuts: Mapping[str, Shortcut]) -> dict[str, Callback]:
        """Return the callback of each event. It lives as long as this object.

        Args:
            shortcuts: the shortcuts of some events.
        """
        return {event: Callback(self, self._guard, self._of(event), shortcuts.get(event)) for event in self._by_event}

    def _of(self, event: str) -> Callable[..., None]:
        receivers = tuple(self._by_event[event])
        report_error = self._guard.report_error

        def receive(self: Receivers, *args: Any) -> None:
            for each in receivers:
                try:
                    each(*args)
                except TrainingStopped:
                    raise
                except Exception as error:  # the others still receive it
                    report_error(error)

        return receive


class ModuleCallback(Callback):
    """A callback of a module. A model that TorchScript compiles has none of them."""

    __slots__ = ()


class PartCallback(ModuleCallback):
    """A callback of a submodule that the script may call itself.

    A compiled model calls its submodules itself, so the graph leaves the callback out.
    """

    __slots__ = ()

    def __call__(self, *args: Any) -> None:
        """Call the hook outside of compiled graphs."""
        if not torch.compiler.is_compiling():
            ModuleCallback.__call__(self, *args)


class SavesActivations(Protocol):
    """The owner of a :class:`GraphCallback`."""

    plan: Plan


class GraphCallback(ModuleCallback):
    """A callback with the inputs or outputs of a module.

    In a compiled model, the graph calls it if ``in_graphs``; else the graph leaves it out.
    """

    __slots__ = ("_module", "_number", "_of_outputs")

    def __init__(
        self,
        owner: SavesActivations | None,
        guard: Guard | None,
        call: Callable[..., None] | None,
        module: nn.Module | None = None,
        of_outputs: bool = False,
        in_graphs: bool = True,
    ) -> None:
        super().__init__(owner, guard, call)
        self._module = None if module is None else weakref.ref(module)
        self._number = torch_graph.number_of(self) if in_graphs and module is not None else -1
        self._of_outputs = of_outputs

    def __call__(self, *args: Any) -> None:
        """Call the hook, or add an operator to the graph that calls it."""
        if torch.compiler.is_compiling() and (torch_graph.AVAILABLE or self._number < 0):
            if self._number >= 0:
                torch_graph.call_in_graph(args[2] if self._of_outputs else args[1:], self._number)
        elif (owner := None if self._owner is None else self._owner()) is not None and owner.plan.saves_activations:
            # Most steps save none. The rest of the call takes ten times as long as this test.
            ModuleCallback.__call__(self, *args)

    def called_by_graph(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Call the hook with the inputs or outputs of a module in a compiled graph."""
        module = None if self._module is None else self._module()
        if module is not None:
            ModuleCallback.__call__(self, module, *(((), tensors) if self._of_outputs else (tensors, {})))


hide_from_script(ModuleCallback)
