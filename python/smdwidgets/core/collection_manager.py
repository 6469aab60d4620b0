"""The collection manager, where smdebug has it."""

from smdwidgets.config.collection_manager import CollectionManager

__all__ = ["CollectionManager"]
