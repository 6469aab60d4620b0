"""Names that every framework module offers, even without the framework."""

from smdwidgets.config import CapturePlan, CollectionKeys, ReductionConfig, SaveConfig, SaveConfigMode
from smdwidgets.hooks.frameworks import del_hook, set_hook
from smdwidgets.hooks.incidents.source_rules import Threshold
from smdwidgets.modes import ModeKeys, modes
from smdwidgets.trials import create_trial

__all__ = [
    "CapturePlan",
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "Threshold",
    "create_trial",
    "del_hook",
    "modes",
    "set_hook",
]
