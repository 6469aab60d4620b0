"""Hooks for Keras 3: ``import smdwidgets.keras as smd``."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from smdwidgets.hooks import names as _names
from smdwidgets.hooks.frameworks import FRAMEWORKS, check_hook_type
from smdwidgets.hooks.names import *

_FRAMEWORK = FRAMEWORKS["keras"]

if TYPE_CHECKING:
    from smdwidgets.hooks.keras.hook import Collection, Hook

    KerasHook = Hook
    """Alias of `Hook`, as in smdebug."""
else:
    __getattr__, __dir__ = _FRAMEWORK.lazy(__name__)

__all__ = ["Collection", "Hook", "KerasHook", "get_hook"]
__all__ += _names.__all__


def get_hook(
    hook_type: str | None = None,
    json_config_path: str | PathLike[str] | None = None,
    create_if_not_exists: bool = False,
) -> Hook | None:
    """Return the current Keras hook: the one created last, or set by `set_hook`.

    Args:
        hook_type: "keras" or None, which mean the same. smdebug's "session" and "estimator" are hooks for TensorFlow 1.
        json_config_path: a configuration file to create the hook from, if none exists. By default the environment
            variable SMDEBUG_CONFIG_FILE_PATH names it.
        create_if_not_exists: whether to create a hook if none exists. The result is None if there is no configuration
            file.
    """
    check_hook_type(hook_type)
    hook: Hook | None = _FRAMEWORK.get_hook(json_config_path, create_if_not_exists)
    return hook
