"""A boto3 client that waits out a bad day, and the way from ``s3://…`` to the objects below it."""

from __future__ import annotations

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
    """Runs on S3 are read through boto3, which is not installed."""

    def _said(self) -> str:
        return "Runs on S3 are read through boto3, which is not installed: pip install 'smdwidgets[s3]'"


def split_url(url: str) -> tuple[str, str]:
    """Bucket and prefix of an ``s3://`` address.

    >>> split_url("s3://bucket/jobs/mnist/")
    ('bucket', 'jobs/mnist')
    """
    scheme, _, rest = url.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme.lower() not in {"s3", "s3a", "s3n"} or not bucket:
        raise SMDebugValueError(f"Not an address of a run on S3: {url!r}. It should look like s3://bucket/prefix.")
    return bucket, prefix.strip("/")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a bucket, and how much of it to hold.

    ``endpoint_url``, ``session`` or ``client`` say where and as whom; without them boto3's own chain of configuration does.
    A ``client`` is used as it is. ``concurrency`` requests are under way at most; unless said 16, or 64 while many small
    objects (a long index) are read. Up to ``cache_bytes`` of what was read are kept in memory, and in ``cache_dir`` on disk if
    one is given (which may be shared between processes and deleted at any time).

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
        """The objects below ``s3://bucket/prefix``."""
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
    """An S3 client by boto3's own chain of credentials, region and endpoint (``AWS_ENDPOINT_URL`` among them)."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise MissingBoto3 from error

    if endpoint_url is not None and urlsplit(endpoint_url).scheme not in {"http", "https"}:
        raise SMDebugValueError(f"endpoint_url must begin with http:// or https://, not {endpoint_url!r}")
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": 8},
        # Prefetching shares the pool with what a person waits for.
        max_pool_connections=2 * concurrency,
        connect_timeout=10,
        read_timeout=30,
        tcp_keepalive=True,
        # A range has no checksum of its own; some servers send the whole object's beside it, which boto3 then compares.
        response_checksum_validation="when_required",
        request_checksum_calculation="when_required",
    )
    if session is None:
        session = boto3.Session(botocore_session=_reading_times_fast())
    return session.client("s3", endpoint_url=endpoint_url, config=config)


def _reading_times_fast() -> Any:
    """A session of botocore's that spends no more on the time of each listed object than on all the rest of the listing."""
    from botocore.session import get_session
    from botocore.utils import parse_timestamp

    def read(text: Any) -> datetime:
        try:
            return datetime.fromisoformat(text)
        except (TypeError, ValueError):
            return cast(datetime, parse_timestamp(text))

    session = get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=read)
    return session
