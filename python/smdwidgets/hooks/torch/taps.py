"""Callbacks on modules that are registered only while a step is saved.

A module without callbacks is called by a shorter way. With some thousand modules, callbacks that return at once take
several milliseconds a step.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

from torch import nn

from smdwidgets.hooks.torch.callbacks import ModuleCallback

__all__ = ["Taps"]


class _Tap:
    """A callback in a module's dictionary of callbacks.

    It is at the same place whenever it is there.

    What PyTorch keeps beside it, such as that it takes keyword arguments, stays: the module may be about to call it.
    """

    __slots__ = ("_before", "_callback", "_handle", "_hooks", "_removed")

    def __init__(self, handle: Any, callback: ModuleCallback) -> None:
        self._handle = handle
        self._callback = callback
        self._hooks: weakref.ref[Any] = handle.hooks_dict_ref
        #: The callbacks that are called earlier.
        self._before: tuple[Hashable, ...] = ()
        #: Whether :meth:`take_out` has found it.
        self._removed = False

    def take_out(self) -> None:
        hooks, key = self._hooks(), self._handle.id
        self._removed = hooks is not None and key in hooks
        if hooks is not None and self._removed:
            self._before = tuple(hooks)[: list(hooks).index(key)] if len(hooks) > 1 else ()
            del hooks[key]

    def put_back(self) -> None:
        hooks, key = self._hooks(), self._handle.id
        if hooks is None or not self._removed:  # the module was deleted, or the script has removed all callbacks
            return
        later = [other for other in hooks if other not in self._before]
        hooks[key] = self._callback
        for other in later:
            hooks.move_to_end(other)

    def remove(self) -> None:
        self._handle.remove()


class Taps:
    """The callbacks with inputs and outputs of modules."""

    def __init__(self) -> None:
        self._taps: list[_Tap] = []
        #: Whether the callbacks are registered.
        self.active = True

    def __len__(self) -> int:
        return len(self._taps)

    def before(self, module: nn.Module, callback: ModuleCallback) -> None:
        """Call back with a module's inputs, before each call."""
        self._add(module.register_forward_pre_hook(callback, with_kwargs=True), callback)

    def after(self, module: nn.Module, callback: ModuleCallback) -> None:
        """Call back with a module's outputs, after each call."""
        self._add(module.register_forward_hook(callback), callback)

    def _add(self, handle: Any, callback: ModuleCallback) -> None:
        self.activate()
        self._taps.append(_Tap(handle, callback))

    def activate(self) -> bool:
        """Register the callbacks; return whether they were not."""
        if self.active:
            return False
        self.active = True
        for tap in self._taps:
            tap.put_back()
        return True

    def deactivate(self) -> None:
        """Remove the callbacks until :meth:`activate` is called."""
        if self.active:
            self.active = False
            for tap in self._taps:
                tap.take_out()

    def clear(self) -> None:
        """Remove the callbacks for good."""
        self.active = True
        for tap in self._taps:
            tap.remove()
        self._taps.clear()
