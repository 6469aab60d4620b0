"""Storage of run files: bytes by key in a directory, a bucket or a web server."""

from typing import TYPE_CHECKING, Any

from smdwidgets.storage.local import LocalStorage
from smdwidgets.storage.protocol import Range, Storage

if TYPE_CHECKING:
    from smdwidgets.storage.cache import CacheInfo
    from smdwidgets.storage.connection import Connection
    from smdwidgets.storage.errors import ObjectChanged, ObjectMissing, StoreError
    from smdwidgets.storage.remote import Listed, RemoteStorage
    from smdwidgets.storage.requests import RequestCount

__all__ = [
    "CacheInfo",
    "Connection",
    "Listed",
    "LocalStorage",
    "ObjectChanged",
    "ObjectMissing",
    "Range",
    "RemoteStorage",
    "RequestCount",
    "Storage",
    "StoreError",
]
_REMOTE = {
    "CacheInfo": "cache",
    "Connection": "connection",
    "Listed": "remote",
    "ObjectChanged": "errors",
    "ObjectMissing": "errors",
    "RemoteStorage": "remote",
    "RequestCount": "requests",
    "StoreError": "errors",
}


def __getattr__(name: str) -> Any:
    # Imported at first use, since local runs do not need them.
    if name in _REMOTE:
        from importlib import import_module

        return getattr(import_module(f"smdwidgets.storage.{_REMOTE[name]}"), name)
    raise AttributeError(f"module 'smdwidgets.storage' has no attribute {name!r}")
