"""Lazy names and the current hook of modules such as `smdwidgets.pytorch`.

A framework module offers `modes`, `SaveConfig`, `create_trial` and other names that need no framework. `Hook` and
`Collection` import the framework when they are first used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Final

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugNotImplementedError, SMDebugTypeError, SMDebugValueError
from smdwidgets.hooks.core.hook import Hook, current_hook, set_current_hook

__all__ = ["FRAMEWORKS", "Framework", "check_hook_type", "del_hook", "set_hook"]


@dataclass(frozen=True)
class Framework:
    """A framework: the module of its hook, and the packages that it imports.

    >>> FRAMEWORKS["pytorch"].packages
    ('torch',)
    """

    #: The framework's name.
    title: str
    #: The module that defines the hook. Importing it imports the framework.
    module: str
    #: Packages of the framework, as `pip install` and `import` name them.
    packages: tuple[str, ...]
    #: Lazy names of the framework module, and the attribute of `module` behind each.
    names: Mapping[str, str] = field(default_factory=lambda: {"Collection": "Collection", "Hook": "Hook"})
    #: Names of smdebug that are not offered, with the reason.
    not_offered: Mapping[str, str] = field(default_factory=dict)
    #: The module whose `Hook` class the current hook must be an instance of, if it is not `module`.
    base_module: str = ""

    def load(self, name: str) -> Any:
        """Import the framework and return the object behind a lazy name.

        Raises:
            ModuleNotFoundError: a package of the framework is not installed. The message says which.
        """
        try:
            return getattr(importlib.import_module(self.module), self.names[name])
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in self.packages:
                raise
            raise ModuleNotFoundError(
                f"{name} for {self.title} needs the package {missing!r}, which is not installed; run: pip install {missing}",
                name=error.name,
            ) from error

    def lazy(self, module: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
        """Return `__getattr__` and `__dir__` for a framework module."""

        def __getattr__(name: str) -> Any:  # noqa: N807
            if name in self.names:
                value = self.load(name)
                setattr(sys.modules[module], name, value)
                return value
            if name in self.not_offered:
                raise ImportError(f"{module}.{name} is not available: {self.not_offered[name]}")
            raise AttributeError(f"module {module!r} has no attribute {name!r}")

        def __dir__() -> list[str]:  # noqa: N807
            return sorted({*vars(sys.modules[module]), *self.names})

        return __getattr__, __dir__

    def get_hook(self, json_config_path: str | PathLike[str] | None, create_if_not_exists: bool) -> Any:
        """Return the current hook if it belongs to this framework.

        If there is none, optionally create one from a JSON file.

        Returns None if there is no such hook and no JSON file.
        """
        hook = current_hook()
        # A hook of this framework exists only if the framework's module has been imported.
        module = sys.modules.get(self.base_module or self.module)
        if hook is not None and module is not None and isinstance(hook, module.Hook):
            return hook
        if not create_if_not_exists:
            return None
        try:
            return self.load("Hook").create_from_json_file(json_config_path)
        except FileNotFoundError:
            return None


_TENSORFLOW_1: Final = (
    "it is a hook for TensorFlow 1, which is not supported. Use KerasHook with TensorFlow 2 and Keras 3, or smdebug 1.0.34 "
    "in an environment with TensorFlow 1."
)

FRAMEWORKS: Final[Mapping[str, Framework]] = {
    "pytorch": Framework(
        "PyTorch",
        "smdwidgets.hooks.torch.hook",
        ("torch",),
        {"Collection": "Collection", "Hook": "Hook", "record": "record"},
    ),
    "keras": Framework(
        "Keras",
        "smdwidgets.hooks.keras.hook",
        ("keras", "tensorflow"),
        {"Collection": "Collection", "Hook": "Hook", "KerasHook": "Hook"},
    ),
    "tensorflow": Framework(
        "TensorFlow",
        "smdwidgets.hooks.keras.tensorflow",
        ("tensorflow", "keras"),
        {"Collection": "Collection", "Hook": "Hook", "KerasHook": "Hook"},
        {"SessionHook": _TENSORFLOW_1, "EstimatorHook": _TENSORFLOW_1},
        # A hook of smdwidgets.keras is a KerasHook, too.
        base_module="smdwidgets.hooks.keras.hook",
    ),
    "xgboost": Framework("XGBoost", "smdwidgets.hooks.boosting.xgboost", ("xgboost",), {"Hook": "Hook"}),
    "mxnet": Framework("MXNet", "smdwidgets.hooks.mxnet", ("mxnet",), {"Hook": "Hook"}),
    "numpy": Framework("NumPy", "smdwidgets.hooks.loops.numpy", (), {"Hook": "Hook"}),
    "jax": Framework("JAX", "smdwidgets.hooks.loops.jax", ("jax",), {"Hook": "Hook"}),
    "lightgbm": Framework(
        "LightGBM", "smdwidgets.hooks.boosting.lightgbm", ("lightgbm",), {"Hook": "Hook", "callback": "callback"}
    ),
    "lightning": Framework(
        "Lightning", "smdwidgets.hooks.torch.lightning", ("lightning", "torch"), {"Callback": "Callback"}
    ),
    "transformers": Framework(
        "Transformers", "smdwidgets.hooks.torch.transformers", ("transformers", "torch"), {"Callback": "Callback"}
    ),
}


def check_hook_type(hook_type: str | None) -> None:
    """Raise an error unless `hook_type` selects a Keras hook.

    smdebug's `get_hook` for TensorFlow has this parameter.
    """
    if hook_type in ("session", "estimator"):
        raise SMDebugNotImplementedError(f"hook_type {hook_type!r} is not available: {_TENSORFLOW_1}")
    if hook_type not in (None, "keras"):
        raise SMDebugValueError(f"invalid hook_type {shown(hook_type)}; choose 'keras' or None")


def set_hook(custom_hook: Hook) -> None:
    """Set the current hook, which `get_hook` returns.

    >>> from smdwidgets.numpy import Hook, get_hook, set_hook
    >>> import tempfile
    >>> first = Hook(tempfile.mkdtemp(), dry_run=True)
    >>> second = Hook(tempfile.mkdtemp(), dry_run=True)
    >>> set_hook(first)
    >>> get_hook() is first
    True
    """
    if not isinstance(custom_hook, Hook):
        raise SMDebugTypeError(f"custom_hook must be a Hook, got {type(custom_hook).__name__}")
    set_current_hook(custom_hook)


def del_hook() -> None:
    """Unset the current hook.

    `get_hook` returns None until another hook is created or set.

    The hook stays open and keeps saving.

    >>> from smdwidgets.numpy import Hook, del_hook, get_hook
    >>> import tempfile
    >>> hook = Hook(tempfile.mkdtemp(), dry_run=True)
    >>> del_hook()
    >>> get_hook() is None
    True
    """
    set_current_hook(None)
