"""Direct GET requests: signed and sent without boto3's overhead.

boto3 spends about 1 ms of CPU time per request, mostly on work that is the same for all objects of a bucket: resolving the
endpoint, building headers and parsing response headers. So the first request goes through boto3 and becomes the template of
the following ones. All requests use boto3 if the first one has unexpected headers, another signature, or a proxy. Failed
requests are repeated with boto3, which implements retries, throttling and region redirects.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from smdwidgets.storage.s3.errors import final, retryable
from smdwidgets.storage.s3.http_client import ConnectionPool, Head, compose
from smdwidgets.storage.s3.prefetch import prefetch
from smdwidgets.storage.s3.requests import RequestCounter
from smdwidgets.storage.s3.signing import Signer, read_authorization

#: Headers that boto3 sends by default. A request with other headers is not used as a template.
_DEFAULT_HEADERS = frozenset(
    {
        "accept-encoding",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "authorization",
        "host",
        "if-match",
        "range",
        "user-agent",
        "x-amz-content-sha256",
        "x-amz-date",
        "x-amz-security-token",
        "x-amzn-trace-id",
    }
)
_EVENT = "before-send.s3.GetObject"
#: Seconds after throttling in which all requests use boto3, which adapts its rate.
_BACKOFF = 15.0
_LONGEST_ERROR = 1 << 16
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class _Pattern:
    """Common parts of all GETs of a bucket: URL up to the key, region, connections."""

    host: str
    path: str
    user_agent: str
    signer: Signer
    region: str
    pool: ConnectionPool


class Readable(Protocol):
    """Body of a response."""

    def read(self, most: int, /) -> bytes:
        """Return up to ``most`` bytes; empty at the end."""


class DirectGets:
    """Direct ``get_object`` requests of a client that is not shared.

    :meth:`get` returns None if the caller has to use boto3, and then calls :meth:`learn` to record boto3's request.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pattern: _Pattern | None = None
        self._seen = threading.local()
        self._backoff_until = 0.0
        self._refused = False
        # Registered last, so that it is not called if another handler (such as a test double) returns a response.
        client.meta.events.register_last(_EVENT, self._see)

    @property
    def ready(self) -> bool:
        """Whether direct requests are currently possible."""
        return self._pattern is not None and time.monotonic() >= self._backoff_until

    def _see(self, request: Any, **_: Any) -> None:
        self._seen.request = request

    def learn(self, key: str) -> None:
        """Use boto3's request for ``key`` on this thread as the template, if suitable."""
        request = self._seen.__dict__.pop("request", None)
        if self._pattern is None and request is not None and not self._refused:
            self._pattern = self._read(request, key)

    def _read(self, request: Any, key: str) -> _Pattern | None:
        headers = {name.lower(): _text(value) for name, value in request.headers.items()}
        signed = read_authorization(headers.get("authorization", ""))
        end = quote(key, safe="/~")
        parts = urlsplit(request.url)
        if (
            signed is None
            or not headers.keys() <= _DEFAULT_HEADERS
            or not parts.path.endswith("/" + end)
            or parts.query
            or parts.scheme not in _PORTS
            or parts.username is not None
        ):
            return None
        host = parts.netloc.removesuffix(f":{_PORTS[parts.scheme]}")
        try:
            credentials = self._credentials(signed.region)
            signer = Signer(signed.region, headers["x-amz-content-sha256"])
            signed_headers = {name: ({"host": host} | headers)[name] for name in signed.headers}
            ours = signer.authorization(credentials, parts.path, signed_headers, headers["x-amz-date"])
            # boto3 signs differently, or the credentials were renewed meanwhile.
            if ours != headers["authorization"]:
                return None
            pool = self._connecting(request.url)
        except (AttributeError, LookupError):  # a proxy, or an unknown botocore version
            return None
        return _Pattern(
            host=host,
            path=parts.path.removesuffix(end),
            user_agent=headers.get("user-agent", ""),
            signer=signer,
            region=signed.region,
            pool=pool,
        )

    def _connecting(self, url: str) -> ConnectionPool:
        """Return connections with the certificates, options and timeouts of the client."""
        session = self._client._endpoint.http_session
        if session._proxy_config.proxy_url_for(url):
            raise LookupError("a proxy is configured")
        pool = session._manager.connection_from_url(url)

        def connect() -> Any:
            connection = pool._new_conn()
            try:
                connection.connect()
            except BaseException:
                connection.close()
                raise
            return connection

        return ConnectionPool(connect, pool.timeout.read_timeout)

    def _credentials(self, region: str) -> Any:
        # Resolved for each request, as boto3 does, so that expiring credentials are renewed.
        return self._client._request_signer.get_auth_instance("s3", region, "s3v4").credentials

    def _request(self, pattern: _Pattern, key: str, conditions: Mapping[str, str]) -> bytes:
        target = pattern.path + quote(key, safe="/~")
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = pattern.signer.headers(self._credentials(pattern.region), pattern.host, target, conditions, moment)
        return compose(pattern.host, target, {"user-agent": pattern.user_agent, **headers})

    def get(self, key: str, conditions: Mapping[str, str]) -> dict[str, Any] | None:
        """Return the needed part of ``get_object``'s response, or None to use boto3.

        ``conditions`` are headers with lower-case names. Raises the same exceptions as boto3.
        """
        pattern = self._pattern
        if pattern is None or not self.ready:
            return None
        head, body = pattern.pool.get(self._request(pattern, key, conditions))
        if head.status not in (200, 206):
            with closing(body):
                raise self._error(head, body)
        return {
            "ETag": head.headers.get("etag", ""),
            "ContentLength": head.length,
            "ContentRange": head.headers.get("content-range", ""),
            "Body": body,
        }

    def whole(
        self, keys: Iterable[str], most: int, stopped: Callable[[], bool], counter: RequestCounter
    ) -> Iterator[tuple[str, bytes | Exception | None]]:
        """Yield objects in order of arrival, or the exception that boto3 would raise.

        Yields None for a key that needs boto3. Keys that were not requested remain in ``keys``.
        """
        pattern = self._pattern
        if pattern is None:
            return

        def request(key: str) -> bytes | None:
            if not self.ready:
                return None
            try:
                made = self._request(pattern, key, {})
            except Exception:  # credential errors have many types: let boto3 raise them
                return None
            counter.add("gets")
            return made

        for key, head, content in prefetch(pattern.pool, keys, request, most, stopped):
            counter.add("bytes", len(content))
            if head is None or isinstance(head, Exception):
                yield key, head
            elif head.status != 200:
                yield key, self._error(head, BytesIO(content))
            else:
                yield key, content

    def reset_after_fork(self) -> None:
        """Drop the connections of the parent process."""
        if self._pattern is not None:
            self._pattern.pool.drop()

    def close(self) -> None:
        """Close the connections."""
        if self._pattern is not None:
            self._pattern.pool.close()

    def _error(self, head: Head, body: Readable) -> Any:
        from botocore.exceptions import ClientError
        from botocore.parsers import ResponseParserError, create_parser

        if head.status in (429, 503):
            self._backoff_until = time.monotonic() + _BACKOFF
        content = bytearray()
        while len(content) < _LONGEST_ERROR and (more := body.read(_LONGEST_ERROR)):
            content += more
        response = {"status_code": head.status, "headers": head.headers, "body": bytes(content), "context": {}}
        try:
            parsed = create_parser("rest-xml").parse(response, None)
        except ResponseParserError:
            parsed = {}
        if not parsed.get("Error", {}).get("Code"):
            parsed["Error"] = {"Code": str(head.status), "Message": "unexpected response"}
        code = parsed["Error"]["Code"]
        if not final(code) and not retryable(code):
            # Only boto3 handles these errors, such as a redirect to another region.
            self._pattern, self._refused = None, True
        return ClientError(parsed, "GetObject")


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
