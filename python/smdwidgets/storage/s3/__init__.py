"""Storage on S3. boto3 is imported when the first run is opened."""

from smdwidgets.storage.s3.cache import CacheInfo
from smdwidgets.storage.s3.connect import Connection, MissingBoto3, connect, split_url
from smdwidgets.storage.s3.errors import S3Error, S3ObjectChanged, S3ObjectMissing
from smdwidgets.storage.s3.requests import RequestCount
from smdwidgets.storage.s3.storage import Listed, S3Storage

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
