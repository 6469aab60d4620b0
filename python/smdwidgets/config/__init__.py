"""Configuration of hooks: collections, save and reduction configurations.

The same classes write and read the collection files of a run, in smdebug's JSON format.

>>> SaveConfig(save_interval=10).should_save_step(ModeKeys.TRAIN, 20)
True
"""

from smdwidgets.config.capture_plan import CapturePlan
from smdwidgets.config.collection import Collection
from smdwidgets.config.collection_manager import CollectionManager
from smdwidgets.config.keys import CollectionKeys
from smdwidgets.config.reduction_config import ReductionConfig
from smdwidgets.config.save_config import SaveConfig, SaveConfigMode
from smdwidgets.modes import ModeKeys

__all__ = [
    "CapturePlan",
    "Collection",
    "CollectionKeys",
    "CollectionManager",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
]
