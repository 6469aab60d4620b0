"""Hooks for XGBoost: ``from smdwidgets.xgboost import Hook``."""

from smdwidgets.config import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.hooks.base import current_hook as get_hook
from smdwidgets.hooks.xgboost import Hook
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
