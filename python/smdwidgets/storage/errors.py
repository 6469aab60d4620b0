"""Exceptions of stores with bucket, object and advice."""

from __future__ import annotations

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import RunFileMissing, RunIOError, RunNotFound, SMDebugError
from smdwidgets.storage.address import Address
from smdwidgets.storage.protocol import TOO_LARGE


class StoreError(RunIOError):
    """A request to a store failed after retries.

    ``code`` is the kind of the error: ``missing``, ``denied``, ``credentials``, ``expired``, ``changed``, ``range``,
    ``busy``, ``fault``, ``connect``, ``timeout``, ``broken``, ``region`` or ``other``.
    """

    def __init__(self, address: Address, key: str, code: str, advice: str, detail: str = "") -> None:
        super().__init__(address, key, code, advice, detail)
        self.url = f"{address.root}/{key}" if key else address.root
        self.bucket = address.bucket
        self.key = key
        self.code = code
        self.advice = advice
        self.detail = detail

    def _message(self) -> str:
        return f"{shown(self.url, 400)}: {self.advice}" + (f" ({self.detail})" if self.detail else "")


class ObjectMissing(StoreError, RunFileMissing):
    """The object does not exist."""


class ObjectChanged(StoreError):
    """The object was overwritten while it was read."""


class Cancelled(SMDebugError):
    """The caller cancelled the read, or the run was closed."""

    def _message(self) -> str:
        return "read cancelled: the run was closed, or another read of the same call failed"


_STORES = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure", "http": "the web server", "https": "the web server"}
_NO_BUCKET = {
    "s3": "no such bucket in this region or at this endpoint",
    "gs": "no such bucket",
    "az": "no such container in this account",
}
_DENIED = {
    "s3": "access denied: the credentials need s3:ListBucket on the bucket and s3:GetObject on its objects",
    "gs": "access denied: the account needs storage.objects.list and storage.objects.get on the bucket",
    "az": "access denied: the account needs the role Storage Blob Data Reader, or a SAS token that permits reading and listing",
}
_EXPIRED = {
    "s3": "the credentials have expired: sign in again (for example `aws sso login`) and retry",
    "gs": "the credentials have expired: sign in again (`gcloud auth application-default login`) and retry",
    "az": "the credentials have expired: sign in again (`az login`), or get a new SAS token, and retry",
}
_NOT_ACCEPTED = {
    "s3": "the credentials were not accepted: check AWS_PROFILE, AWS_ACCESS_KEY_ID and the region",
    "gs": "the credentials were not accepted: check GOOGLE_APPLICATION_CREDENTIALS",
    "az": "the credentials were not accepted: check the account name and its key or SAS token",
}
_CONNECT = {
    "s3": "cannot connect: check the network, the region and AWS_ENDPOINT_URL",
    "gs": "cannot connect: check the network and STORAGE_EMULATOR_HOST",
    "az": "cannot connect: check the network and the name of the account",
}
_PAST_THE_END = (
    "the index refers to bytes past the end of the object; the object is truncated or belongs to another run"
)
#: In the message of object_store for a server that answers a range behind the end with success, as Azurite does.
_BEHIND_THE_END = "Wanted range starting at"
#: Begins the messages of the core about an answer of the server.
_ANSWERED = "the server answered"


def from_store(error: _core.StoreError, address: Address) -> SMDebugError:
    """Convert an error of the core."""
    key, code, detail = error.args
    kind = address.kind
    if code == "no_bucket" and not address.is_web:
        return RunNotFound(address.root, _NO_BUCKET[kind])
    if code == "cancelled":
        return Cancelled()
    if code == "too_large":
        return RunIOError(f"{shown(f'{address.root}/{key}', 400)}: {TOO_LARGE}")
    if code in {"missing", "no_bucket"}:
        return ObjectMissing(address, key, "missing", "no such object", detail)
    if code == "changed":
        return ObjectChanged(address, key, code, "the object was overwritten while it was read; retry", detail)
    if code == "credentials" and not detail.startswith(_ANSWERED):
        return StoreError(address, "", code, detail)  # they could not be found
    name = _STORES[kind]
    code = "range" if _BEHIND_THE_END in detail else code
    advice = {
        "denied": _DENIED.get(kind, "access denied by the web server"),
        "credentials": _NOT_ACCEPTED.get(kind, "the web server requires a password, which is not supported"),
        "expired": _EXPIRED.get(kind, "the web server requires a password, which is not supported"),
        "range": _PAST_THE_END,
        "busy": f"{name} throttled the request through all retries; retry later",
        "fault": f"{name} failed in all retries; retry later",
        "connect": _CONNECT.get(kind, "cannot connect: check the network and the host"),
        "timeout": f"{name} did not answer in time in all retries; check the network and retry",
        "broken": "the connection broke in all retries",
        "region": "the bucket is in another region: set AWS_DEFAULT_REGION or pass session=",
    }.get(code)
    return StoreError(address, key, code, advice or detail, detail if advice else "")
