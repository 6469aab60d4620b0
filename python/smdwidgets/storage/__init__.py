"""Storage of run files: reads bytes by key."""

from smdwidgets.storage.local import LocalStorage
from smdwidgets.storage.protocol import Range, Storage

__all__ = ["LocalStorage", "Range", "Storage"]
