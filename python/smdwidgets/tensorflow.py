"""Hooks for TensorFlow: ``import smdwidgets.tensorflow as smd``."""

from smdwidgets.config import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.hooks.base import current_hook as get_hook
from smdwidgets.hooks.tensorflow import Collection, Hook
from smdwidgets.modes import ModeKeys, modes
from smdwidgets.trials import create_trial

#: smdebug's name for it.
KerasHook = Hook

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "KerasHook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "get_hook",
    "modes",
]
