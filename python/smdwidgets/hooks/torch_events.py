"""Events of a PyTorch training for which PyTorch has no hooks.

They are backward passes, gradient clipping and loss scaling.
The functions are wrapped while a hook listens. A wrapper calls the original with the same arguments and returns its result.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn.utils import clip_grad

__all__ = ["Listener", "listen"]

Listener = Mapping[str, Callable[..., object]]
"""Callbacks by event:

* ``backward_begins(tensors)`` and ``backward_ends()``;
* ``clips(parameters)`` and ``clipped(parameters, norm)``: with the norm before clipping;
* ``scaled(result, loss)``: a GradScaler has multiplied a loss;
* ``scaler_begins(optimizer)`` and ``scaler_ends(optimizer)``: a GradScaler steps an optimizer, or skips it.
"""

_listeners: list[Listener] = []
_lock = threading.Lock()


class Handle:
    """Ends listening."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def remove(self) -> None:
        """Stop listening. The last one to stop removes the wrappers."""
        with _lock:
            _listeners[:] = [one for one in _listeners if one is not self._listener]
            if not _listeners:
                for wrapper in _WRAPPERS:
                    wrapper.remove()


def listen(listener: Listener) -> Handle:
    """Call these callbacks from now on. They must not raise."""
    with _lock:
        if not _listeners:
            for wrapper in _WRAPPERS:
                wrapper.install()
        _listeners.append(listener)
    return Handle(listener)


def _tell(event: str, *args: object) -> None:
    for listener in tuple(_listeners):
        callback = listener.get(event)
        if callback is not None:
            callback(*args)


class _Wrapper:
    """A function of a module or class that is replaced while a hook listens.

    Args:
        find: returns the module or class; None if it was not imported.
        name: name of the function.
        make: makes the wrapper.
    """

    def __init__(
        self, find: Callable[[], Any], name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        self._find = find
        self._owner: Any = None
        self._name = name
        self._make = make
        self._original: Callable[..., Any] | None = None
        self._wrapper: Callable[..., Any] | None = None

    def install(self) -> None:
        self._owner = self._find()
        original = None if self._owner is None else vars(self._owner).get(self._name)
        if callable(original) and original is not self._wrapper:  # absent in another release of torch
            self._original = original
            self._wrapper = functools.wraps(original)(self._make(original))
            setattr(self._owner, self._name, self._wrapper)

    def remove(self) -> None:
        # Where another library has wrapped the wrapper, it stays and does nothing.
        if self._wrapper is not None and vars(self._owner).get(self._name) is self._wrapper:
            setattr(self._owner, self._name, self._original)
            self._wrapper = None


def _backward(original: Callable[..., Any]) -> Callable[..., Any]:
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        _tell("backward_begins", tensors)
        try:
            return original(tensors, *args, **kwargs)
        finally:
            _tell("backward_ends")

    return backward


def _clip_with_norm(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of `_clip_grads_with_norm_(parameters, max_norm, total_norm, foreach)`.

    All gradient clipping by norm calls this function.
    """
    signature = inspect.signature(original)

    def clip(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
            parameters, norm = given["parameters"], given["total_norm"]
        except (TypeError, KeyError):
            return original(*args, **kwargs)
        _tell("clips", parameters)
        result = original(*args, **kwargs)
        _tell("clipped", parameters, norm)
        return result

    return clip


def _clip(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of `clip_grad_norm_` and `clip_grad_value_`.

    For releases and calls that do not go through `_clip_grads_with_norm_`.
    """

    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(parameters, torch.Tensor):
            parameters = list(parameters)  # it may be a generator
        _tell("clips", parameters)
        result = original(parameters, *args, **kwargs)
        _tell("clipped", parameters, result)
        return result

    return clip


def _clip_flat(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrapper of `FullyShardedDataParallel.clip_grad_norm_`."""

    def clip(self: Any, *args: Any, **kwargs: Any) -> Any:
        parameters = list(self.parameters())
        _tell("clips", parameters)
        result = original(self, *args, **kwargs)
        _tell("clipped", parameters, result)
        return result

    return clip


def _scale(original: Callable[..., Any]) -> Callable[..., Any]:
    def scale(self: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, outputs, *args, **kwargs)
        if isinstance(outputs, torch.Tensor) and result is not outputs:
            _tell("scaled", result, outputs)
        return result

    return scale


def _scaler_step(original: Callable[..., Any]) -> Callable[..., Any]:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _tell("scaler_begins", optimizer)
        result = original(self, optimizer, *args, **kwargs)
        _tell("scaler_ends", optimizer)
        return result

    return step


def _wrappers() -> list[_Wrapper]:
    def scaler() -> Any:
        return torch.amp.GradScaler

    def flat() -> Any:
        return getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)

    found = [
        _Wrapper(lambda: torch.autograd, "backward", _backward),
        _Wrapper(scaler, "scale", _scale),
        _Wrapper(scaler, "step", _scaler_step),
        _Wrapper(lambda: clip_grad, "clip_grad_value_", _clip),
        _Wrapper(lambda: torch.nn.utils, "clip_grad_value_", _clip),
        _Wrapper(flat, "clip_grad_norm_", _clip_flat),
    ]
    if hasattr(clip_grad, "_clip_grads_with_norm_"):
        # `clip_grad_norm_` looks this function up at each call, so that scripts which imported `clip_grad_norm_` by name are seen.
        found.append(_Wrapper(lambda: clip_grad, "_clip_grads_with_norm_", _clip_with_norm))
    else:
        found += [
            _Wrapper(lambda: clip_grad, "clip_grad_norm_", _clip),
            _Wrapper(lambda: torch.nn.utils, "clip_grad_norm_", _clip),
        ]
    return found


_WRAPPERS = _wrappers()
