"""Hooks for your own training loop with NumPy: ``import smdwidgets.numpy as smd``."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from smdwidgets.config import Collection
from smdwidgets.hooks import names as _names
from smdwidgets.hooks.frameworks import FRAMEWORKS
from smdwidgets.hooks.names import *

_FRAMEWORK = FRAMEWORKS["numpy"]

if TYPE_CHECKING:
    from smdwidgets.hooks.loops.numpy import Hook
else:
    __getattr__, __dir__ = _FRAMEWORK.lazy(__name__)

__all__ = ["Collection", "Hook", "get_hook"]
__all__ += _names.__all__


def get_hook(json_config_path: str | PathLike[str] | None = None, create_if_not_exists: bool = False) -> Hook | None:
    """Return the current NumPy hook: the one created last, or set by `set_hook`.

    Args:
        json_config_path: a configuration file to create the hook from, if none exists. By default the environment
            variable SMDEBUG_CONFIG_FILE_PATH names it.
        create_if_not_exists: whether to create a hook if none exists. The result is None if there is no configuration
            file.
    """
    hook: Hook | None = _FRAMEWORK.get_hook(json_config_path, create_if_not_exists)
    return hook
