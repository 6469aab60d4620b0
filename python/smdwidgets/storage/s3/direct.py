"""GET requests by the short way: signed as boto3 signs them, sent over connections as boto3 makes them, and nothing else.

boto3 spends a millisecond of CPU on each request, mostly on what is the same for all objects of a bucket: which endpoint it is,
which headers go along, how each header of the answer is to be understood. So one request goes through boto3, and what it sent is
the pattern for those that follow. A request that shows anything out of the ordinary (headers that somebody added, another way of
signing or another signature than ours, a proxy on the way) is no pattern, and everything goes through boto3 as before. So does
whatever fails: repeating, slowing down when throttled and following a bucket into its region stay boto3's business.
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
from smdwidgets.storage.s3.requests import RequestCounter
from smdwidgets.storage.s3.signing import Signer, read_authorization
from smdwidgets.storage.s3.volley import volley
from smdwidgets.storage.s3.wire import Head, Wires, compose

#: Headers that boto3 sends with a GET of its own accord, and that a request without them does as well with.
_ORDINARY = frozenset(
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
#: Seconds in which boto3, which adapts its pace, does everything after S3 asked for less.
_REST = 15.0
_LONGEST_ERROR = 1 << 16
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class _Pattern:
    """What all GETs of a bucket have in common: the URL up to the key, the region it is signed for, the connections."""

    host: str
    path: str
    user_agent: str
    signer: Signer
    region: str
    wires: Wires


class Readable(Protocol):
    """What is still to come of an answer."""

    def read(self, most: int, /) -> bytes:
        """Some of it; nothing at its end."""


class DirectGets:
    """``get_object`` of a client that nobody else uses, without what boto3 does around it.

    :meth:`get` answers None as long as boto3 has to be asked; what boto3 sent is then told by :meth:`learn`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pattern: _Pattern | None = None
        self._seen = threading.local()
        self._rests_until = 0.0
        self._refused = False
        # Last in line: where another handler answers in the network's place (as test doubles do), this one hears nothing.
        client.meta.events.register_last(_EVENT, self._see)

    @property
    def ready(self) -> bool:
        """Whether requests take the short way now."""
        return self._pattern is not None and time.monotonic() >= self._rests_until

    def _see(self, request: Any, **_: Any) -> None:
        self._seen.request = request

    def learn(self, key: str) -> None:
        """boto3 got ``key`` on this thread: take what it sent as the pattern, if it is one."""
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
            or not headers.keys() <= _ORDINARY
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
            told = {name: ({"host": host} | headers)[name] for name in signed.headers}
            ours = signer.authorization(credentials, parts.path, told, headers["x-amz-date"])
            # Not as boto3 signs it, hence not to be signed by us; or the credentials have been renewed since: later then.
            if ours != headers["authorization"]:
                return None
            wires = self._connecting(request.url)
        except (AttributeError, LookupError):  # a proxy, or another botocore than those known: boto3 does it all
            return None
        return _Pattern(
            host=host,
            path=parts.path.removesuffix(end),
            user_agent=headers.get("user-agent", ""),
            signer=signer,
            region=signed.region,
            wires=wires,
        )

    def _connecting(self, url: str) -> Wires:
        """Connections as the client's session makes them: with its certificates, its socket options and its limits of time."""
        session = self._client._endpoint.http_session
        if session._proxy_config.proxy_url_for(url):
            raise LookupError("there is a proxy on the way")
        pool = session._manager.connection_from_url(url)

        def connect() -> Any:
            connection = pool._new_conn()
            try:
                connection.connect()
            except BaseException:
                connection.close()
                raise
            return connection

        return Wires(connect, pool.timeout.read_timeout)

    def _credentials(self, region: str) -> Any:
        # Asked for each request, as boto3 does: credentials that run out are renewed on the way.
        return self._client._request_signer.get_auth_instance("s3", region, "s3v4").credentials

    def _request(self, pattern: _Pattern, key: str, conditions: Mapping[str, str]) -> bytes:
        target = pattern.path + quote(key, safe="/~")
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = pattern.signer.headers(self._credentials(pattern.region), pattern.host, target, conditions, moment)
        return compose(pattern.host, target, {"user-agent": pattern.user_agent, **headers})

    def get(self, key: str, conditions: Mapping[str, str]) -> dict[str, Any] | None:
        """The part of ``get_object``'s answer that is needed; None if boto3 has to be asked.

        ``conditions`` are headers, their names in small letters. Raises what boto3 raises.
        """
        pattern = self._pattern
        if pattern is None or not self.ready:
            return None
        head, body = pattern.wires.get(self._request(pattern, key, conditions))
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
        """Whole objects in the order in which they arrive, and what boto3 would raise in place of those that do not.

        Where boto3 has to be asked there is None, and keys that were not come to stay in ``keys``.
        """
        pattern = self._pattern
        if pattern is None:
            return

        def request(key: str) -> bytes | None:
            if not self.ready:
                return None
            try:
                made = self._request(pattern, key, {})
            except Exception:  # credentials that can't be renewed have many names: boto3 shall say it
                return None
            counter.add("gets")
            return made

        for key, head, content in volley(pattern.wires, keys, request, most, stopped):
            counter.add("bytes", len(content))
            if head is None or isinstance(head, Exception):
                yield key, head
            elif head.status != 200:
                yield key, self._error(head, BytesIO(content))
            else:
                yield key, content

    def begin_anew(self) -> None:
        """In a process that was forked: other connections."""
        if self._pattern is not None:
            self._pattern.wires.drop()

    def close(self) -> None:
        """Let the connections go."""
        if self._pattern is not None:
            self._pattern.wires.close()

    def _error(self, head: Head, body: Readable) -> Any:
        from botocore.exceptions import ClientError
        from botocore.parsers import ResponseParserError, create_parser

        if head.status in (429, 503):
            self._rests_until = time.monotonic() + _REST
        content = bytearray()
        while len(content) < _LONGEST_ERROR and (more := body.read(_LONGEST_ERROR)):
            content += more
        said = {"status_code": head.status, "headers": head.headers, "body": bytes(content), "context": {}}
        try:
            parsed = create_parser("rest-xml").parse(said, None)
        except ResponseParserError:
            parsed = {}
        if not parsed.get("Error", {}).get("Code"):
            parsed["Error"] = {"Code": str(head.status), "Message": "an answer that S3 does not give"}
        code = parsed["Error"]["Code"]
        if not final(code) and not retryable(code):
            # Not taken as boto3's are, for a reason that only boto3 may know (a bucket that has moved to another region).
            self._pattern, self._refused = None, True
        return ClientError(parsed, "GetObject")


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
