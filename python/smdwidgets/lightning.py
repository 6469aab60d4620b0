"""The callback for Lightning: ``from smdwidgets.lightning import Callback``."""

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
    from smdwidgets.hooks.lightning import Callback
else:
    __getattr__, __dir__ = FRAMEWORKS["lightning"].lazy(__name__)

__all__ = [
    "Callback",
    "CapturePlan",
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "Threshold",
    "create_trial",
    "modes",
]
