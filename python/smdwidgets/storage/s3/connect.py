"""Connect to S3: client configuration and URL parsing."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.storage.s3.storage import DEFAULT_CACHE_BYTES, MOST_CONNECTIONS, S3Storage

if TYPE_CHECKING:
    import boto3


class MissingBoto3(SMDebugError, ImportError):
    """boto3, which S3 requires, is not installed."""

    def _message(self) -> str:
        return "runs on S3 require boto3, which is not installed; run: pip install 'smdwidgets[s3]'"


def split_url(url: str) -> tuple[str, str]:
    """Split an ``s3://`` URL into bucket and prefix.

    >>> split_url("s3://bucket/jobs/mnist/")
    ('bucket', 'jobs/mnist')
    """
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme.lower() not in {"s3", "s3a", "s3n"} or not bucket:
        raise SMDebugValueError(f"invalid S3 URL {url!r}; expected s3://bucket/prefix")
    return bucket, prefix.strip("/")


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection settings of S3.

    Args:
        endpoint_url: endpoint; by default from boto3's configuration.
        session: boto3 session; by default boto3's default credential chain is used.
        client: boto3 client, used unchanged.
        concurrency: maximum number of concurrent requests. By default 16, or 64 while many small objects are read.
        cache_bytes: size limit of the memory cache.
        cache_dir: directory of the disk cache. Processes may share it, and it may be deleted at any time.

    >>> Connection(endpoint_url="http://127.0.0.1:9000").concurrency is None
    True
    """

    endpoint_url: str | None = None
    session: boto3.Session | None = None
    client: Any = None
    concurrency: int | None = None
    cache_bytes: int = DEFAULT_CACHE_BYTES
    cache_dir: str | PathLike[str] | None = None

    def storage(self, url: str) -> S3Storage:
        """Return the storage of the objects below ``s3://bucket/prefix``."""
        bucket, prefix = split_url(url)
        client = self.client
        if client is None:
            most = self.concurrency or MOST_CONNECTIONS
            client = connect(session=self.session, endpoint_url=self.endpoint_url, concurrency=most)
        return S3Storage(
            bucket,
            prefix,
            client=client,
            concurrency=self.concurrency,
            cache_bytes=self.cache_bytes,
            cache_dir=self.cache_dir,
            owns_client=self.client is None,
        )


def connect(*, session: boto3.Session | None = None, endpoint_url: str | None = None, concurrency: int = 16) -> Any:
    """Create an S3 client with boto3's default chain of credentials and configuration."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise MissingBoto3 from error

    if endpoint_url is not None and urlsplit(endpoint_url).scheme not in {"http", "https"}:
        raise SMDebugValueError(f"endpoint_url must start with http:// or https://, got {endpoint_url!r}")
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": 8},
        # Prefetching and foreground requests share the pool.
        max_pool_connections=2 * concurrency,
        connect_timeout=10,
        read_timeout=30,
        tcp_keepalive=True,
        # Some servers send the checksum of the whole object with a range; boto3 would compare it with the range.
        response_checksum_validation="when_required",
        request_checksum_calculation="when_required",
    )
    if session is None:
        session = boto3.Session(botocore_session=_fast_session())
    return session.client("s3", endpoint_url=endpoint_url, config=config)


def _fast_session() -> Any:
    """Create a botocore session with a fast timestamp parser and a shared loader.

    The loader reads service models.

    The default parser takes most of the time of a listing, and the models of a new loader most of the time of a connection.
    """
    from botocore.session import get_session
    from botocore.utils import parse_timestamp

    def read(text: Any) -> datetime:
        try:
            return datetime.fromisoformat(text)
        except (TypeError, ValueError):
            return cast(datetime, parse_timestamp(text))

    session = get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=read)
    session.register_component("data_loader", _model_loader(session.get_config_variable("data_path")))
    return session


@functools.cache
def _model_loader(data_path: str | None) -> Any:
    """Return the loader of service models, which caches what it has read.

    Args:
        data_path: botocore's setting of additional directories, if any.
    """
    from botocore.loaders import create_loader

    return create_loader(data_path)
