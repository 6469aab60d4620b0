"""A boto3 client that waits out a bad day, and the way from ``s3://…`` to a bucket and a prefix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from smdwidgets.exceptions import SMDebugError, SMDebugValueError

if TYPE_CHECKING:
    import boto3


class MissingBoto3(SMDebugError, ImportError):
    """Runs on S3 are read through boto3, which is not installed."""

    def __str__(self) -> str:
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
    make = session if session is not None else boto3.Session()
    return make.client("s3", endpoint_url=endpoint_url, config=config)
