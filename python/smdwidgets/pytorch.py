"""Hooks for PyTorch: ``import smdwidgets.pytorch as smd``."""

from smdwidgets.config import CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.hooks.base import current_hook as get_hook
from smdwidgets.hooks.pytorch import Collection, Hook
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
