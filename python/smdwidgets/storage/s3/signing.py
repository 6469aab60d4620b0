"""Signature V4 of requests for objects: what botocore's signer comes to, in a tenth of its time.

The key that signs is the same for a day, and of the headers there are few. Whether this comes to what botocore's signer comes to is not
taken for granted: each signer shows it on a request that boto3 has signed, before it signs one itself.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ALGORITHM = "AWS4-HMAC-SHA256"
_SIGNED = re.compile(
    _ALGORITHM
    + r" Credential=(?P<id>[^/]+)/\d{8}/(?P<region>[^/]+)/s3/aws4_request, SignedHeaders=(?P<headers>[^,]+), .+"
)
#: What boto3 says of a body that is not there.
_NO_BODY = frozenset({hashlib.sha256().hexdigest(), "UNSIGNED-PAYLOAD"})


@dataclass(frozen=True, slots=True)
class Signed:
    """What a request's Authorization says of itself."""

    key_id: str
    region: str
    headers: frozenset[str]


def read_authorization(text: str) -> Signed | None:
    """What was signed how; None for another way of signing.

    >>> read_authorization("AWS4-HMAC-SHA256 Credential=me/20240501/eu-1/s3/aws4_request, SignedHeaders=host, Signature=0").region
    'eu-1'
    """
    match = _SIGNED.fullmatch(text)
    return match and Signed(match["id"], match["region"], frozenset(match["headers"].split(";")))


class Signer:
    """Signs GETs for one region. ``payload`` is what boto3 says of the body, which a GET has not."""

    def __init__(self, region: str, payload: str) -> None:
        if payload not in _NO_BODY:
            raise LookupError("a body is signed that a GET has not")
        self._region = region
        self._payload = payload
        # Of which secret and day, and the key that these make: replaced in one go, because threads share it.
        self._key: tuple[str, str, bytes] = ("", "", b"")

    def authorization(self, credentials: Any, path: str, headers: Mapping[str, str], moment: str) -> str:
        """The header for a request that has these headers, their names in small letters."""
        names = sorted(headers)
        signed = ";".join(names)
        lines = [f"{name}:{' '.join(headers[name].split())}\n" for name in names]
        request = f"GET\n{path}\n\n{''.join(lines)}\n{signed}\n{self._payload}".encode()
        day = moment[:8]
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(request).hexdigest()}"
        signature = hmac.digest(self._key_of(credentials.secret_key, day), text.encode(), "sha256").hex()
        return (
            f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={signed}, Signature={signature}"
        )

    def headers(self, credentials: Any, host: str, path: str, others: Mapping[str, str], moment: str) -> dict[str, str]:
        """All headers of a request but ``Host`` and those that need no signature."""
        told = {"x-amz-content-sha256": self._payload, "x-amz-date": moment, **others}
        if credentials.token:
            told["x-amz-security-token"] = credentials.token
        told["authorization"] = self.authorization(credentials, path, {"host": host, **told}, moment)
        return told

    def _key_of(self, secret: str, day: str) -> bytes:
        known = self._key
        if known[:2] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            known = self._key = (secret, day, key)
        return known[2]
