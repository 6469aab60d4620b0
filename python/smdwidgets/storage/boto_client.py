"""A boto3 client that the caller provides, as the objects of a bucket.

Only public calls of boto3 are used, so that a client with any configuration works.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from smdwidgets import _core
from smdwidgets.exceptions import SMDebugError, SMDebugValueError
from smdwidgets.storage.address import scheme_of
from smdwidgets.storage.forks import reset_in_forks
from smdwidgets.storage.objects import Entry
from smdwidgets.storage.requests import RequestCounter

if TYPE_CHECKING:
    import boto3

T = TypeVar("T")
R = TypeVar("R")

_PAGE = 1000
_PUT_PART = 16 << 20
_CHUNK = 1 << 20
#: Maximum gap in bytes between ranges of one request, and maximum bytes of a request for several ranges.
_GAP, _PIECE = 1 << 20, 8 << 20
#: Maximum consecutive attempts without data. boto3 repeats requests, but not a body that breaks off.
_FRUITLESS_ATTEMPTS = 8
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
#: Seconds without data after which no more attempts are made, since attempts of boto3 may be long.
_LONGEST_SILENCE = 120.0

#: The core's code of errors by S3's.
_CODES = {
    **dict.fromkeys(("NoSuchKey", "404", "NotFound"), "missing"),
    "NoSuchBucket": "no_bucket",
    **dict.fromkeys(("AccessDenied", "403", "Forbidden", "AllAccessDisabled", "AccountProblem"), "denied"),
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"), "credentials"),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"), "expired"),
    **dict.fromkeys(("PreconditionFailed", "412"), "changed"),
    **dict.fromkeys(("InvalidRange", "416"), "range"),
    **dict.fromkeys(("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "503", "429"), "busy"),
    **dict.fromkeys(("InternalError", "ServiceUnavailable", "500", "502", "504", "RequestTimeout"), "fault"),
    **dict.fromkeys(("PermanentRedirect", "301", "IllegalLocationConstraintException"), "region"),
    "AuthorizationHeaderMalformed": "region",
    # Exceptions of botocore.
    **dict.fromkeys(
        ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "UnauthorizedSSOTokenError"),
        "credentials",
    ),
    **dict.fromkeys(("SSOTokenLoadError", "TokenRetrievalError"), "expired"),
    **dict.fromkeys(("EndpointConnectionError", "ConnectionRefusedError", "ConnectTimeoutError"), "connect"),
    "ReadTimeoutError": "timeout",
}


class MissingBoto3(SMDebugError, ImportError):
    """boto3, which finds the credentials of S3, is not installed."""

    def _message(self) -> str:
        return (
            "runs on S3 require boto3, which is not installed, unless the credentials are given explicitly; "
            "run: pip install 'smdwidgets[s3]'"
        )


def connect(*, session: boto3.Session | None = None, endpoint_url: str | None = None, concurrency: int = 16) -> Any:
    """Create an S3 client with boto3's default chain of credentials and configuration.

    >>> client = connect(endpoint_url="http://127.0.0.1:9000")                       # doctest: +SKIP
    """
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise MissingBoto3 from error

    if endpoint_url is not None and scheme_of(endpoint_url) not in {"http", "https"}:
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
    return (session or boto3.Session()).client("s3", endpoint_url=endpoint_url, config=config)


class BotoObjects:
    """The objects of one bucket, through a boto3 client of the caller.

    The client stays open. Thread-safe.

    Args:
        client: the client.
        bucket: name of the bucket.
        concurrency: maximum number of concurrent requests of one call.
    """

    def __init__(self, client: Any, bucket: str, concurrency: int = 16) -> None:
        self._client = client
        self._bucket = bucket
        self._concurrency = concurrency
        self._counter = RequestCounter()
        self._closed = threading.Event()
        reset_in_forks(self)

    def pages(self, prefix: str, start_after: str = "") -> Iterator[list[Entry]]:
        """Yield the objects whose keys begin with ``prefix``, in the order of keys."""
        arguments = {"StartAfter": start_after} if start_after else {}
        for page in self._listed(prefix, arguments):
            yield [_entry(found) for found in page.get("Contents", ())]

    def folder(self, folder: str) -> tuple[list[str], list[Entry]]:
        """Return the folders and the objects that are directly in a folder."""
        folders: list[str] = []
        entries: list[Entry] = []
        for page in self._listed(folder, {"Delimiter": "/"}):
            folders += [found["Prefix"].removesuffix("/") for found in page.get("CommonPrefixes", ())]
            entries += [_entry(found) for found in page.get("Contents", ())]
        return folders, entries

    def _listed(self, prefix: str, options: dict[str, str]) -> Iterator[dict[str, Any]]:
        """Yield the answers of a listing."""
        arguments: dict[str, Any] = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": _PAGE, **options}
        while True:
            page = self._send("lists", prefix, lambda: self._client.list_objects_v2(**arguments))
            yield page
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == arguments.get("ContinuationToken"):
                raise _core.StoreError(prefix, "other", "the server returned an invalid continuation token")
            arguments["ContinuationToken"] = token

    def head(self, key: str) -> tuple[int, float, str] | None:
        """Return size, time of the last write and ETag; None if there is no object."""
        try:
            head = self._send("heads", key, lambda: self._client.head_object(Bucket=self._bucket, Key=key))
        except _core.StoreError as error:
            if error.args[1] == "missing":
                return None
            raise
        _, size, written, etag = _entry({"Size": head["ContentLength"], "Key": key, **head})
        return size, written, etag

    def get(self, key: str, limit: int) -> tuple[bytes, str]:
        """Return the content of an object of up to ``limit`` bytes, and its ETag."""
        return self._read(key, 0, None, "", limit, self._closed.is_set)

    def get_range(self, key: str, offset: int, length: int, etag: str = "") -> tuple[bytes, str]:
        """Return a part of an object, shorter if the object ends, and its ETag."""
        return self._read(key, offset, length, etag, length, self._closed.is_set)

    def get_many(self, keys: Sequence[str], limit: int) -> Iterator[tuple[str, bytes | Exception]]:
        """Yield the contents of objects in order of arrival."""
        done = self._in_parallel(keys, lambda key, stopped: self._read(key, 0, None, "", limit, stopped)[0])
        with closing(done):
            yield from done

    def get_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> Sequence[tuple[bytes, str] | Exception]:
        """Return parts of objects with ETags; close ones are read together."""
        answers: dict[int, tuple[bytes, str] | Exception] = {}

        def read(get: tuple[str, int, int, list[int]], stopped: Callable[[], bool]) -> tuple[bytes, str]:
            key, begin, end, _ = get
            return self._read(key, begin, end - begin, "", end - begin, stopped)

        for (_, begin, _, places), answer in self._in_parallel(coalesced(ranges), read):
            for place in places:
                _, offset, length = ranges[place]
                at = offset - begin
                if isinstance(answer, Exception):
                    answers[place] = answer
                else:
                    answers[place] = answer[0][at : at + length], answer[1]
        return [answers[place] for place in range(len(ranges))]

    def put(self, key: str, content: bytes, if_match: str | None = None) -> str:
        """Write an object, with a condition in one part only."""
        condition = {} if if_match is None else {"IfMatch": _quoted(if_match)} if if_match else {"IfNoneMatch": "*"}
        if len(content) >= _PUT_PART and not condition:
            return self._upload(key, lambda how: self._client.upload_fileobj(BytesIO(content), *how[0], **how[1]))
        put = self._send(
            "puts", key, lambda: self._client.put_object(Bucket=self._bucket, Key=key, Body=content, **condition)
        )
        return _bare(put.get("ETag"))

    def put_file(self, key: str, path: str) -> str:
        """Write an object from a file, a large one in parts."""
        return self._upload(key, lambda how: self._client.upload_file(path, *how[0], **how[1]))

    def _upload(self, key: str, upload: Callable[[Any], object]) -> str:
        from boto3.s3.transfer import TransferConfig

        config = TransferConfig(
            multipart_threshold=_PUT_PART, multipart_chunksize=_PUT_PART, max_concurrency=self._concurrency
        )
        how = ((self._bucket, key), {"Config": config})
        try:
            self._send("puts", key, lambda: upload(how))
        except RuntimeError:  # no thread can be started: the script has ended, perhaps during this upload
            config.use_threads = False
            self._send("puts", key, lambda: upload(how))
        return ""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; ignore missing ones."""
        objects = [{"Key": key} for key in keys]
        for at in range(0, len(objects), _PAGE):
            some = {"Objects": objects[at : at + _PAGE], "Quiet": True}
            self._send("deletes", "", lambda: self._client.delete_objects(Bucket=self._bucket, Delete=some))  # noqa: B023

    def requests(self) -> tuple[int, ...]:
        """Return the counts of requests."""
        count = self._counter.now()
        return (count.lists, count.gets, count.heads, count.puts, count.deletes, count.retries, count.bytes)

    def reset_after_fork(self) -> None:
        """Replace locks, and let the client open new connections."""
        self._counter.reset_after_fork()
        self._client.close()

    def close(self) -> None:
        """End running reads at their next chunk."""
        self._closed.set()

    # ------------------------------------------------------------------------------------------------------ details

    def _send(self, what: str, key: str, request: Callable[[], R]) -> R:
        """Send a request and count it; convert boto3's exceptions."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        self._counter.add(what)
        try:
            return request()
        except (BotoCoreError, Boto3Error, ClientError) as error:
            raise store_error(error, key) from error

    def _in_parallel(
        self, items: Sequence[T], work: Callable[[T, Callable[[], bool]], R]
    ) -> Generator[tuple[T, R | Exception], None, None]:
        """Do work in threads; yield results as they complete, and errors as results."""
        stop = threading.Event()

        def stopped() -> bool:
            return stop.is_set() or self._closed.is_set()

        todo = iter(items)
        running: dict[Future[R], T] = {}
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="smdwidgets-boto3")
        try:
            while True:
                for item in islice(todo, 2 * self._concurrency - len(running)):
                    running[pool.submit(work, item, stopped)] = item
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    item = running.pop(future)
                    try:
                        yield item, future.result()
                    except _core.StoreError as error:
                        yield item, error
        finally:
            # Also if the caller stops early or presses Ctrl-C: running reads end at their next chunk.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _read(
        self, key: str, offset: int, length: int | None, etag: str, limit: int, stopped: Callable[[], bool]
    ) -> tuple[bytes, str]:
        """Return the bytes of an object; resume at the first missing byte."""
        data = bytearray()
        fruitless = 0
        silent_since = time.monotonic()
        while length is None or len(data) < length:
            if stopped():
                raise _core.StoreError(key, "cancelled", "the read was cancelled")
            before = len(data)
            try:
                last = "" if length is None else offset + length - 1
                span = f"bytes={offset + before}-{last}" if offset or before or length is not None else ""
                conditions = {name: value for name, value in (("Range", span), ("IfMatch", _quoted(etag))) if value}
                self._counter.add("gets")
                answer = self._client.get_object(Bucket=self._bucket, Key=key, **conditions)
                received = _bare(answer.get("ETag"))
                # An ETag that is not printable cannot be sent back in If-Match.
                etag = received if received.isprintable() else etag
                with closing(answer["Body"]) as body:
                    length = _length(answer, key, offset, length, before, limit)
                    self._drain(body, data, length, stopped)
                failure: Exception = ConnectionError("the response is shorter than its Content-Length")
            except _core.StoreError:
                raise
            except Exception as error:  # botocore creates exception classes at run time, and urllib3 has many
                failure = error
            if length is not None and len(data) >= length:
                break
            if len(data) > before:
                fruitless, silent_since = 0, time.monotonic()
            else:
                fruitless += 1
            converted = store_error(failure, key)
            lasts = fruitless >= _FRUITLESS_ATTEMPTS or time.monotonic() - silent_since > _LONGEST_SILENCE
            if lasts or converted.args[1] not in {"busy", "fault", "broken", "connect", "timeout"}:
                raise converted from failure
            self._counter.add("retries")
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**fruitless)
            time.sleep(random.uniform(pause / 2, pause))
        return bytes(data), etag

    def _drain(self, body: Any, data: bytearray, length: int, stopped: Callable[[], bool]) -> None:
        """Append the body to ``data``, up to ``length``."""
        before = len(data)
        try:
            while len(data) < length and not stopped():
                chunk = body.read(min(_CHUNK, length - len(data)))
                if not chunk:
                    return
                data += chunk
        finally:
            self._counter.add("bytes", len(data) - before)


def _bare(etag: str | None) -> str:
    """Return an ETag without quotes, which listings of some servers omit."""
    etag = etag or ""
    return etag[1:-1] if len(etag) > 1 and etag[0] == etag[-1] == '"' else etag


def _quoted(etag: str) -> str:
    return etag if not etag or etag.startswith(('"', "W/")) else f'"{etag}"'


def _entry(found: dict[str, Any]) -> Entry:
    written = found["LastModified"].timestamp() if "LastModified" in found else 0.0
    return str(found["Key"]), int(found.get("Size", 0)), written, _bare(found.get("ETag"))


def _length(answer: Any, key: str, offset: int, length: int | None, have: int, limit: int) -> int:
    """Return the number of bytes to read, up to ``length`` or the object's end."""
    coming = int(answer["ContentLength"])
    if length is None:
        if have + coming > limit:
            raise _core.StoreError(key, "too_large", "the object is too large")
        return have + coming
    # Use Content-Range, since some servers send a range with status 200, and some the whole object.
    span, _, total = str(answer.get("ContentRange", "")).removeprefix("bytes ").partition("/")
    begin = span.partition("-")[0] or "0"
    if not (begin.isascii() and begin.isdigit()) or int(begin) > offset + have:
        raise ConnectionError("invalid Content-Range in the response")
    skipped = offset + have - int(begin)
    left = skipped
    while left > 0:
        piece = len(answer["Body"].read(min(left, _CHUNK)))
        if not piece:
            raise _core.StoreError(key, "range", "the object ends before the range")
        left -= piece
    coming -= skipped
    if total.isdigit():
        coming = min(coming, max(0, int(total) - offset - have))
    return min(length, have + coming)


def coalesced(ranges: Sequence[tuple[str, int, int]]) -> list[tuple[str, int, int, list[int]]]:
    """Return the requests for ranges: key, begin, end, and the places of the ranges.

    >>> coalesced([("a", 0, 100), ("a", 500, 100), ("b", 0, 10)])
    [('a', 0, 600, [0, 1]), ('b', 0, 10, [2])]
    """
    gets: list[tuple[str, int, int, list[int]]] = []
    for place in sorted(range(len(ranges)), key=lambda at: ranges[at]):
        key, offset, length = ranges[place]
        if gets:
            last, begin, end, places = gets[-1]
            both = max(end, offset + length) - begin
            if last == key and offset - end <= _GAP and both <= max(_PIECE, end - begin):
                gets[-1] = (key, begin, begin + both, [*places, place])
                continue
        gets.append((key, offset, offset + length, [place]))
    return gets


def store_error(error: Exception, key: str) -> _core.StoreError:
    """Return an exception of botocore or urllib3 as the core's error."""
    if isinstance(error, _core.StoreError):
        return error
    code, message = type(error).__name__, str(error)
    response: dict[str, Any] = getattr(error, "response", None) or {}
    with contextlib.suppress(AttributeError):
        code = str(response.get("Error", {}).get("Code", "")) or code
        message = str(response.get("Error", {}).get("Message", "")) or message
    status = f"the server answered {code}: {message}" if response else f"{code}: {message}"
    known = _CODES.get(code)
    if known == "credentials" and not response:
        status = "no usable credentials found: sign in, set AWS_PROFILE, or pass session= or client="
    if known is None:
        is_input = code in {"ParamValidationError", "InvalidBucketNameError", "UnicodeEncodeError"}
        known = "other" if response or is_input else "broken"
    return _core.StoreError(key, known, status)
