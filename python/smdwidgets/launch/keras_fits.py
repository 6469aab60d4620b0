"""Record calls of ``fit`` and ``train_on_batch`` of Keras models.

They are recorded in scripts that create no hook. The hook joins the callbacks of ``fit``. Further calls of ``fit`` on
the same model continue the run. It ends when ``fit`` of another model begins, or with the process. A script that calls
``train_on_batch`` may train several models in turn, such as a generator and its critic: each has a run, which ends with
the process.
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
    of_batch = getattr(framework.Model, "train_on_batch", None)
    if of_batch is None:
        return

    @functools.wraps(of_batch)
    def train_on_batch(model: Any, *args: Any, **kwargs: Any) -> Any:
        hook = recording.guarded(fits.batch_begins)(model)
        logs = of_batch(model, *args, **kwargs)
        if hook is not None:
            recording.guarded(fits.batch_ended)(hook, model, logs)
        return logs

    framework.Model.train_on_batch = train_on_batch


class _Fits:
    """The hooks of the models that were trained."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._hooks: list[tuple[weakref.ref[Any], Hook]] = []
        #: Models whose `fit` is running, the innermost last: a callback may train another model.
        self._running: list[int] = []
        #: Models that are trained by `train_on_batch`, whose runs stay open.
        self._by_batch: list[weakref.ref[Any]] = []

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

    def batch_begins(self, model: Any) -> Hook | None:
        """``train_on_batch`` is called: return the hook of the model."""
        hook = self._hook_of(model)
        if hook is not None:
            if not self._is_by_batch(model):
                self._by_batch.append(weakref.ref(model))
                hook.set_model(model)
                hook.begin_own_loop()
            hook.on_train_batch_begin(0)
        return hook

    def batch_ended(self, hook: Hook, model: Any, logs: Any) -> None:
        """``train_on_batch`` has returned.

        ``logs``: a loss, a list of it and the metrics, or a dictionary.
        """
        if not isinstance(logs, dict):
            values = logs if isinstance(logs, list | tuple) else [logs]
            logs = dict(zip(model.metrics_names, values, strict=False))
        hook.on_train_batch_end(0, {name: float(value) for name, value in logs.items() if not isinstance(value, dict)})

    def _is_by_batch(self, model: Any) -> bool:
        return model is not None and any(one() is model for one in self._by_batch)

    def _hook_of(self, model: Any) -> Hook | None:
        from smdwidgets.hooks.keras.hook import Hook

        for known, hook in list(self._hooks):
            if known() is model and hook.is_open:
                return hook
            if id(known()) not in self._running and not self._is_by_batch(known()):
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
