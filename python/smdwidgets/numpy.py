"""Hooks for one's own training loop, in plain numpy."""

from smdwidgets.config import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.hooks.base import current_hook as get_hook
from smdwidgets.hooks.numpy import Hook
from smdwidgets.modes import ModeKeys, modes
from smdwidgets.trials import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "get_hook",
    "modes",
]
