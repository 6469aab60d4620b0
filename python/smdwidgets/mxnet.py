"""Hooks for MXNet's Gluon: ``import smdwidgets.mxnet as smd``."""

from smdwidgets.config import Collection, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.hooks.base import current_hook as get_hook
from smdwidgets.hooks.mxnet import Hook
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
