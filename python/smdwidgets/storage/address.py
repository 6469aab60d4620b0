"""Addresses of runs: what is a URL of a store, and its parts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote, urlsplit

from smdwidgets._text import shown
from smdwidgets.exceptions import SMDebugValueError

#: The kind of store by URL scheme.
_KINDS = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
    "https": "https",
    "http": "http",
}
FORMS = "s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, https://host/path"
#: Forms of addresses to which a hook can write.
WRITABLE_FORMS = "s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
# At least two characters, since one is a drive of Windows.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+")


def scheme_of(text: str | os.PathLike[str]) -> str:
    """Return the scheme of a URL in lower case; it is empty for a path.

    >>> scheme_of("S3://bucket/run"), scheme_of("runs/mlp"), scheme_of("file:///runs")
    ('s3', '', 'file')
    """
    scheme, mark, _ = os.fspath(text).strip().partition("://") if isinstance(text, str) else ("", "", "")
    return scheme.lower() if mark and _SCHEME.fullmatch(scheme) else ""


def is_address(text: str | os.PathLike[str]) -> bool:
    """Return whether a text is the URL of a store.

    A local path and ``file://`` are none. A URL with an unknown scheme is one as well; :func:`parse` rejects it.

    >>> is_address("gs://bucket/run"), is_address("runs/mlp"), is_address("file:///runs/mlp")
    (True, False, False)
    """
    return scheme_of(text) not in {"", "file"}


@dataclass(frozen=True, slots=True)
class Address:
    """A prefix of a bucket.

    ``kind`` is ``s3``, ``gs``, ``az``, ``https`` or ``http``. ``bucket`` is the bucket, container or host, and
    ``account`` the storage account in a URL of Azure.

    >>> Address("s3", "bucket", "jobs/mnist").url
    's3://bucket/jobs/mnist'
    """

    kind: str
    bucket: str
    prefix: str
    account: str = ""
    scheme: str = ""

    @property
    def url(self) -> str:
        """The URL of the prefix."""
        return f"{self.root}/{self.prefix}"

    @property
    def root(self) -> str:
        """The URL of the bucket, without a slash at the end."""
        account = f"@{self.account}" if self.account else ""
        return f"{self.scheme or self.kind}://{self.bucket}{account}"

    @property
    def is_web(self) -> bool:
        """Whether this is a plain web server."""
        return self.kind in {"http", "https"}

    def below(self, key: str) -> str:
        """Return the whole key of an object below the prefix."""
        return f"{self.prefix}/{key}" if self.prefix else key

    def enter(self, folder: str) -> Address:
        """Return the address of a folder below the prefix."""
        return replace(self, prefix=self.below(folder))


def parse(url: str) -> Address:
    """Return the parts of a URL of a store.

    >>> parse("abfss://data@account.dfs.core.windows.net/runs/mlp/").prefix
    'runs/mlp'
    """
    text = url.strip()
    kind = _KINDS.get(scheme_of(text), "")
    if not kind:
        raise SMDebugValueError(
            f"unsupported URL scheme {shown(text.partition('://')[0] + '://')}; pass a directory, file://…, or {FORMS}"
        )
    _, _, rest = text.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    scheme, account = kind, ""
    if kind in {"http", "https"}:
        parts = urlsplit(text)
        if "@" in parts.netloc:
            # Messages and widgets show the URL of a run.
            raise SMDebugValueError("a URL of a web server must not contain a user name or password")
        if parts.query or parts.fragment:
            raise SMDebugValueError(f"a URL of a run must not contain '?' or '#': {shown(text.partition('?')[0], 400)}")
        bucket, prefix = parts.netloc, unquote(parts.path).strip("/")
    elif kind == "az" and "@" in bucket:
        bucket, _, account = bucket.partition("@")
        scheme = scheme_of(text)
    if not bucket:
        expected = {"s3": "s3://bucket/prefix", "gs": "gs://bucket/prefix", "az": "az://container/prefix"}
        name = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure"}.get(kind, "web")
        raise SMDebugValueError(f"invalid {name} URL {url!r}; expected {expected.get(kind, f'{kind}://host/path')}")
    return Address(kind, bucket, prefix, account, scheme)


def split_url(url: str) -> tuple[str, str]:
    """Split an ``s3://`` URL into bucket and prefix.

    >>> split_url("s3://bucket/jobs/mnist/")
    ('bucket', 'jobs/mnist')
    """
    address = parse(url) if _KINDS.get(scheme_of(url)) == "s3" else None
    if address is None:
        raise SMDebugValueError(f"invalid S3 URL {url!r}; expected s3://bucket/prefix")
    return address.bucket, address.prefix
