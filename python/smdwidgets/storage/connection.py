"""Connect to stores: settings by keyword, storage options and environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from smdwidgets import _core
from smdwidgets._text import listed
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.storage.address import Address, parse
from smdwidgets.storage.credentials import Access, aws, azure, google
from smdwidgets.storage.objects import Objects
from smdwidgets.storage.options import client_options, read_options
from smdwidgets.storage.remote import DEFAULT_CACHE_BYTES, MOST_REQUESTS, RemoteStorage
from smdwidgets.storage.web import WebObjects

if TYPE_CHECKING:
    import boto3


@dataclass(frozen=True, slots=True)
class Connection:
    """Connection settings of a store.

    Args:
        endpoint_url: URL of the server; by default from the environment, or the cloud's own.
        session: boto3 session for S3; by default boto3's default credential chain is used.
        concurrency: maximum number of concurrent requests. By default 16, or 64 while many small objects are read.
        cache_bytes: size limit of the memory cache.
        cache_dir: directory of the disk cache. Processes may share it, and it may be deleted at any time.
        anonymous: send requests without credentials.
        requester_pays: accept the costs of reading a bucket of others. For Google Cloud Storage: the project that pays.
        storage_options: other options by the names of pandas, polars and fsspec.

    >>> Connection(endpoint_url="http://127.0.0.1:9000").concurrency is None
    True
    """

    endpoint_url: str | None = None
    session: boto3.Session | None = None
    concurrency: int | None = None
    cache_bytes: int = DEFAULT_CACHE_BYTES
    cache_dir: str | PathLike[str] | None = None
    anonymous: bool = False
    requester_pays: bool | str = False
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def storage(self, url: str) -> RemoteStorage:
        """Return the storage of the objects below a URL, such as ``s3://bucket/prefix``."""
        address = parse(url)
        access = self._access(address)
        in_region = None
        if address.kind == "s3" and "aws_endpoint" not in access.options:

            def in_region(region: str) -> Objects:
                changed = Access(access.options | {"aws_region": region}, access.credentials, access.endpoint)
                return self._open(address, changed)

        return RemoteStorage(
            address,
            self._open(address, access),
            concurrency=self.concurrency,
            cache_bytes=self.cache_bytes,
            cache_dir=self.cache_dir,
            endpoint=access.endpoint,
            in_region=in_region,
            reduce=self._reduced,
        )

    def _reduced(self, url: str) -> tuple[Any, ...]:
        settings = {setting.name: getattr(self, setting.name) for setting in fields(self)}
        check_picklable(settings)
        return _reopened, (settings, url)

    def _access(self, address: Address) -> Access:
        given = dict(self.storage_options or {})
        for name in ("endpoint_url", "anonymous", "requester_pays"):
            if getattr(self, name):
                given[name] = getattr(self, name)
        options = read_options(address.kind, given)
        if address.kind == "s3":
            return aws.access(address.bucket, options, self.session)
        if address.kind == "gs":
            return google.access(address.bucket, options, self.session)
        if address.kind == "az":
            return azure.access(address.account, options, self.session)
        if self.session is not None:
            raise SMDebugValueError("session= is a boto3 session, which is for S3 only")
        token = options.get("token")
        header = {"header:authorization": f"Bearer {token}"} if token else {}
        return Access(client_options(options) | header, None, address.root)

    def _open(self, address: Address, access: Access) -> Objects:
        # The account and its domain are options, since emulators have neither in their URLs.
        root = f"{address.kind}://{address.bucket}"
        try:
            objects = _core.ObjectStore(
                f"{root}/" if address.is_web else root,
                access.options,
                credentials=access.credentials,
                concurrency=self.concurrency or MOST_REQUESTS,
            )
        except _core.StoreError as error:
            raise SMDebugValueError(f"cannot open {address.url}: {error.args[2]}") from error
        return WebObjects(objects, address.prefix) if address.is_web else objects


def _reopened(settings: dict[str, Any], url: str) -> RemoteStorage:
    """Return the storage that was pickled."""
    return Connection(**settings).storage(url)


#: Names of the settings, which are keyword arguments wherever runs are opened.
SETTINGS = frozenset(setting.name for setting in fields(Connection))


def check_picklable(settings: Mapping[str, Any]) -> None:
    """Raise an error if settings contain secrets, or objects that cannot be pickled.

    >>> check_picklable({"storage_options": {"account_key": "..."}})
    Traceback (most recent call last):
    ...
    smdwidgets.exceptions.SMDebugError: cannot pickle a trial opened with secrets in storage_options (account_key); \
give them in the environment or in a profile, or call create_trial in the other process
    """
    if settings.get("session") is not None:
        raise SMDebugError(
            "cannot pickle a trial opened with session=, because a boto3 session cannot be pickled; use credentials from a "
            "profile or the environment, or call create_trial in the other process"
        )
    names = [name for name in settings.get("storage_options") or {} if is_secret(name)]
    if names:
        raise SMDebugError(
            f"cannot pickle a trial opened with secrets in storage_options ({listed(names, 5)}); give them in the environment "
            "or in a profile, or call create_trial in the other process"
        )


def is_secret(name: str) -> bool:
    """Return whether the value of a storage option of any store is a secret.

    >>> is_secret("aws_secret_access_key"), is_secret("region")
    (True, False)
    """
    return name.lower() in {"client_kwargs", "config_kwargs"} or any(
        word in name.lower()
        for word in ("secret", "token", "key", "sas", "credential", "service_account", "connection_string", "headers")
    )
