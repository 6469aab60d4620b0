"""Storage on S3: names of :mod:`smdwidgets.storage` for existing scripts."""

from smdwidgets.storage.address import split_url
from smdwidgets.storage.boto_client import MissingBoto3, connect
from smdwidgets.storage.cache import CacheInfo
from smdwidgets.storage.connection import Connection
from smdwidgets.storage.errors import ObjectChanged as S3ObjectChanged
from smdwidgets.storage.errors import ObjectMissing as S3ObjectMissing
from smdwidgets.storage.errors import StoreError as S3Error
from smdwidgets.storage.remote import Listed
from smdwidgets.storage.remote import RemoteStorage as S3Storage
from smdwidgets.storage.requests import RequestCount

__all__ = [
    "CacheInfo",
    "Connection",
    "Listed",
    "MissingBoto3",
    "RequestCount",
    "S3Error",
    "S3ObjectChanged",
    "S3ObjectMissing",
    "S3Storage",
    "connect",
    "split_url",
]
