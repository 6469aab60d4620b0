"""Collection manager, under its import path in smdebug."""

from smdwidgets.config.collection_manager import CollectionManager

__all__ = ["CollectionManager"]
