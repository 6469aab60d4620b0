"""Where the files of a run are kept: keys and bytes, nothing of tensors."""

from smdwidgets.storage.local import LocalStorage
from smdwidgets.storage.protocol import Range, Storage

__all__ = ["LocalStorage", "Range", "Storage"]
