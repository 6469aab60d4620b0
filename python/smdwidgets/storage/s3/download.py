"""Download objects and ranges, resuming after broken connections."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from smdwidgets.exceptions import RunIOError, SMDebugError, TruncatedDataError
from smdwidgets.storage.protocol import LARGEST_WHOLE, TOO_LARGE, Range
from smdwidgets.storage.s3.direct import DirectGets
from smdwidgets.storage.s3.errors import final, from_client_error, from_transport_error, retryable, s3_url
from smdwidgets.storage.s3.requests import RequestCounter

_CHUNK = 1 << 20
_FRUITLESS_ATTEMPTS = 8
"""Maximum consecutive attempts without data."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_LONGEST_SILENCE = 120.0
"""Seconds without data after which no more attempts are made, since attempts of boto3 may be long."""


class Cancelled(SMDebugError):
    """The caller cancelled the read, or the run was closed."""

    def _message(self) -> str:
        return "read cancelled: the run was closed, or another read of the same call failed"


class Downloader:
    """Reads objects of one bucket. Thread-safe.

    boto3 retries a request without a response, but not a body that breaks off. This class resumes at the first missing
    byte, if the object's ETag is unchanged.

    ``direct`` is used for first attempts; retries use boto3.
    """

    def __init__(self, client: Any, bucket: str, counter: RequestCounter, direct: DirectGets | None = None) -> None:
        self._client = client
        self._bucket = bucket
        self._counter = counter
        self._direct = direct

    def whole(self, key: str, stop: threading.Event) -> bytes:
        """Return a whole object."""
        return self._read(key, 0, None, stop)[0]

    def many(
        self, keys: Iterable[str], most: int, stop: threading.Event
    ) -> Iterator[tuple[str, bytes | SMDebugError | None]]:
        """Yield objects read directly over up to ``most`` connections.

        Yields None for a key that needs boto3. Keys that were not requested remain in ``keys``.
        """
        from botocore.exceptions import ClientError

        if self._direct is None:
            return
        for key, got in self._direct.whole(keys, most, stop.is_set, self._counter):
            if got is None or isinstance(got, bytes):
                yield key, got
            elif isinstance(got, ClientError) and final(str(got.response["Error"]["Code"])):
                yield key, from_client_error(got, self._bucket, key)
            else:
                self._counter.add("retries")
                yield key, None
        if stop.is_set():
            raise Cancelled

    def range(self, wanted: Range, stop: threading.Event) -> tuple[bytes, str]:
        """Return the bytes of a range and the ETag of the object."""
        if wanted.length == 0:
            return b"", ""
        return self._read(wanted.key, wanted.offset, wanted.length, stop)

    def _read(self, key: str, offset: int, length: int | None, stop: threading.Event) -> tuple[bytes, str]:
        data = bytearray()
        etag = ""
        fruitless = 0
        silent_since = time.monotonic()
        while length is None or len(data) < length:
            if stop.is_set():
                raise Cancelled
            before = len(data)
            failure: Exception
            direct = fruitless == 0 and self._direct is not None and self._direct.ready
            try:
                last = None if length is None else offset + length - 1
                response = self._request(key, offset + before, last, etag, direct=direct)
                received = str(response.get("ETag", ""))
                # An ETag that is not printable cannot be sent back in If-Match.
                etag = received if received and received.isprintable() else etag
                with closing(response["Body"]) as body:
                    length = self._length(response, key, offset, length, before)
                    failure = self._drain(body, data, length, stop)
                if len(data) == length:
                    break
            except Cancelled:
                raise
            except Exception as error:  # botocore creates exception classes at run time; _raise_or_retry handles them
                failure = error
            if len(data) > before:
                fruitless, silent_since = 0, time.monotonic()
            else:
                fruitless += 1
            last_time = fruitless >= _FRUITLESS_ATTEMPTS or time.monotonic() - silent_since > _LONGEST_SILENCE
            self._raise_or_retry(failure, key, last_time=last_time, direct=direct)
            self._counter.add("retries")
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**fruitless)
            if stop.wait(random.uniform(pause / 2, pause)):
                raise Cancelled
        return bytes(data), etag

    def _request(self, key: str, first: int, last: int | None, etag: str, *, direct: bool) -> Any:
        span = f"bytes={first}-{'' if last is None else last}" if first or last is not None else ""
        self._counter.add("gets")
        if direct and self._direct is not None:
            conditions = {name: value for name, value in (("range", span), ("if-match", etag)) if value}
            answer = self._direct.get(key, conditions)
            if answer is not None:
                return answer
        arguments = {name: value for name, value in (("Range", span), ("IfMatch", etag)) if value}
        answer = self._client.get_object(Bucket=self._bucket, Key=key, **arguments)
        if self._direct is not None:
            self._direct.learn(key)
        return answer

    def _length(self, response: Any, key: str, offset: int, length: int | None, have: int) -> int:
        """Return the total number of bytes to read; raise if the response is too short."""
        coming = int(response["ContentLength"])
        if length is None:
            if have + coming > LARGEST_WHOLE:
                raise RunIOError(f"{s3_url(self._bucket, key)}: {TOO_LARGE}")
            return have + coming
        # Use Content-Range, since some servers send a range with status 200, and some the whole object.
        span, _, total = str(response.get("ContentRange", "")).removeprefix("bytes ").partition("/")
        begin = span.partition("-")[0] or "0"
        if not (begin.isascii() and begin.isdigit()):
            raise ConnectionError("invalid Content-Range in the response")
        first = int(begin)
        if first != offset + have:
            if first > offset + have:
                raise ConnectionError(f"the response starts at byte {first}, expected {offset + have}")
            self._skip(response["Body"], offset + have - first)
            coming -= offset + have - first
        if total.isdigit():
            coming = min(coming, max(0, int(total) - offset - have))
        if have + coming < length:
            raise TruncatedDataError(
                f"{s3_url(self._bucket, key)}, byte {offset}: truncated data: expected {length} bytes, got {have + coming}"
            )
        return length

    @staticmethod
    def _skip(body: Any, n: int) -> None:
        while n > 0:
            skipped = len(body.read(min(n, _CHUNK)))
            if not skipped:
                raise ConnectionError("the response ended before the start of the range")
            n -= skipped

    def _drain(self, body: Any, data: bytearray, length: int, stop: threading.Event) -> Exception:
        """Append the body to ``data``, up to ``length``; return the error that ended it."""
        before = len(data)
        try:
            while len(data) < length:
                if stop.is_set():
                    raise Cancelled
                chunk = body.read(min(_CHUNK, length - len(data)))
                if not chunk:
                    return ConnectionError("the response is shorter than its Content-Length")
                data += chunk
        except Cancelled:
            raise
        except Exception as error:  # urllib3 and botocore have many exceptions for broken connections
            return error
        finally:
            self._counter.add("bytes", len(data) - before)
        return ConnectionError("the response is complete")

    def _raise_or_retry(self, failure: Exception, key: str, *, last_time: bool, direct: bool) -> None:
        from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, ParamValidationError

        if isinstance(failure, SMDebugError):  # invalid content, which a retry does not change
            raise failure
        if isinstance(failure, ClientError):
            code = str(failure.response.get("Error", {}).get("Code", ""))
            if last_time or not (retryable(code) or (direct and not final(code))):
                raise from_client_error(failure, self._bucket, key) from failure
            return
        broken_connection = isinstance(failure, (HTTPClientError, OSError)) or type(failure).__module__.startswith(
            "urllib3"
        )
        incomplete = type(failure).__name__ in {"IncompleteReadError", "ResponseStreamingError"}
        if last_time or isinstance(failure, ParamValidationError):
            raise from_transport_error(failure, self._bucket, key) from failure
        if not (broken_connection or incomplete):
            if isinstance(failure, BotoCoreError):
                raise from_transport_error(failure, self._bucket, key) from failure
            raise failure
