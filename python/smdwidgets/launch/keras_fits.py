"""Record calls of Keras's ``Model.fit`` in scripts that create no hook.

The hook joins the callbacks of ``fit``. Further calls of ``fit`` on the same model continue the run. It ends when
``fit`` of another model begins, or with the process.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from types import ModuleType
from typing import TYPE_CHECKING, Any

from smdwidgets.launch.recording import Recording
from smdwidgets.launch.wrapping import with_argument

if TYPE_CHECKING:
    from smdwidgets.hooks.keras.hook import Hook

__all__ = ["arm"]


def arm(recording: Recording, framework: ModuleType) -> None:
    """Record the calls of ``fit`` of this process."""
    fits = _Fits(recording)
    original = framework.Model.fit

    @functools.wraps(original)
    def fit(model: Any, *args: Any, **kwargs: Any) -> Any:
        found = recording.guarded(fits.arguments)(original, model, args, kwargs)
        args, kwargs = found or (args, kwargs)
        try:
            return original(model, *args, **kwargs)
        finally:
            recording.guarded(fits.fit_ended)(model)

    framework.Model.fit = fit


class _Fits:
    """The hooks of the models that were trained."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._hooks: list[tuple[weakref.ref[Any], Hook]] = []
        #: Models whose `fit` is running, the innermost last: a callback may train another model.
        self._running: list[int] = []

    def arguments(
        self, fit: Any, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call of ``fit``, with a hook among the callbacks."""
        self._running.append(id(model))
        hook = self._hook_of(model)
        if hook is None:
            return args, kwargs
        hook.fit_begins(inspect.signature(fit).bind(model, *args, **kwargs).arguments)
        args, kwargs = with_argument(fit, "callbacks", functools.partial(_added, hook), (model, *args), kwargs)
        return args[1:], kwargs

    def fit_ended(self, model: Any) -> None:
        """``fit`` has returned or raised."""
        if id(model) in self._running:
            self._running.remove(id(model))

    def _hook_of(self, model: Any) -> Hook | None:
        from smdwidgets.hooks.keras.hook import Hook

        for known, hook in list(self._hooks):
            if known() is model and hook.is_open:
                return hook
            if id(known()) not in self._running:
                self._hooks.remove((known, hook))
                self._recording.end(hook)
        begun = self._recording.begin(Hook, _described(model))
        if begun is not None:
            self._hooks.append((weakref.ref(model), begun))
        return begun


def _added(hook: Hook, given: Any) -> Any:
    """Return callbacks with a hook among them.

    A ``CallbackList`` of the script is changed.
    """
    if given is None:
        return [hook]
    if hasattr(given, "append") and hasattr(given, "callbacks"):
        if hook not in given.callbacks:
            given.append(hook)
        return given
    return [*given, hook] if isinstance(given, list | tuple) else [given, hook]


def _described(model: Any) -> str:
    built = getattr(model, "built", False)
    return f"{model.name} ({model.count_params():,} parameters)" if built else str(model.name)
