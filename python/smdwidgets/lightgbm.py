"""The callback for LightGBM: ``from smdwidgets.lightgbm import callback``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smdwidgets.hooks.frameworks import FRAMEWORKS
from smdwidgets.hooks.names import (
    CapturePlan,
    CollectionKeys,
    ModeKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    Threshold,
    create_trial,
    modes,
)

if TYPE_CHECKING:
    from smdwidgets.hooks.lightgbm import Hook, callback
else:
    __getattr__, __dir__ = FRAMEWORKS["lightgbm"].lazy(__name__)

__all__ = [
    "CapturePlan",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "Threshold",
    "callback",
    "create_trial",
    "modes",
]
