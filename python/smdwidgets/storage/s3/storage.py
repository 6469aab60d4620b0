"""A run's objects below ``s3://bucket/prefix``: listed, and read in as few requests as will do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from smdwidgets.exceptions import OutsideRunError, SMDebugError
from smdwidgets.storage.s3.cache import CacheInfo, DiskCache, MemoryCache
from smdwidgets.storage.s3.download import Cancelled, Downloader
from smdwidgets.storage.s3.errors import S3ObjectMissing, from_client_error, from_transport_error, s3_url
from smdwidgets.storage.s3.plan import Get, Range, coalesce
from smdwidgets.storage.s3.requests import RequestCount, RequestCounter

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_CONCURRENCY = 16
DEFAULT_CACHE_BYTES = 256 << 20
DEFAULT_DISK_BYTES = 10 << 30
_PAGE = 1000
_PUT_PART = 16 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it; ``key`` is relative to the run, ``version`` changes when it is written again."""

    key: str
    size: int
    version: str


class S3Storage:
    """The objects below one prefix of one bucket.

    Safe to use from many threads. ``close()`` ends what is under way.

    >>> storage = S3Storage("bucket", "jobs/mnist/debug-output", client=client)          # doctest: +SKIP
    >>> [found.key for found in storage.list("index/")]                                  # doctest: +SKIP
    ['index/000000000/000000000000_worker_0.json']
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        client: Any,
        concurrency: int = DEFAULT_CONCURRENCY,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_dir: str | PathLike[str] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._client = client
        self._counter = RequestCounter()
        self._downloader = Downloader(client, bucket, self._counter)
        self._memory = MemoryCache(cache_bytes)
        self._disk = DiskCache(cache_dir, DEFAULT_DISK_BYTES) if cache_dir is not None else None
        self._etags: dict[str, str] = {}
        self._concurrency = concurrency
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="smdwidgets-s3")
        self._closed = threading.Event()

    def __repr__(self) -> str:
        return f"S3Storage({self.url!r}, {self.requests!r})"

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def requests(self) -> RequestCount:
        """What has been asked of S3 so far."""
        return self._counter.now()

    def cache_info(self) -> CacheInfo:
        """How well the in-memory cache does."""
        return self._memory.info()

    def below(self, folder: str) -> S3Storage:
        """The same bucket, one folder deeper, with the same client."""
        deeper = S3Storage(
            self.bucket, f"{self.prefix}/{folder}", client=self._client, concurrency=self._concurrency, cache_bytes=0
        )
        deeper._counter, deeper._downloader = self._counter, self._downloader
        deeper._memory, deeper._disk = self._memory, self._disk
        return deeper

    # ------------------------------------------------------------------------------------------------------ listing

    def list(self, folder: str, start_after: str | None = None) -> Iterator[Listed]:
        """The objects below ``folder`` in the order of their keys, from the first after ``start_after`` on."""
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self._below_prefix(folder), "MaxKeys": _PAGE}
        if start_after:
            arguments["StartAfter"] = self._below_prefix(start_after)
        skip = len(self._below_prefix(""))
        while True:
            page = self._asked("lists", folder, partial(self._client.list_objects_v2, **arguments))
            for found in page.get("Contents", ()):
                version = (
                    f"{found.get('ETag', '')}{found['LastModified'].timestamp() if 'LastModified' in found else ''}"
                )
                yield Listed(found["Key"][skip:], int(found.get("Size", 0)), version)
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def exists(self, key: str) -> bool:
        """Whether there is an object of exactly this key."""
        try:
            self._asked("heads", key, lambda: self._client.head_object(Bucket=self.bucket, Key=self._full(key)))
        except S3ObjectMissing:
            return False
        return True

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, key: str) -> bytes:
        """A whole object."""
        return self._downloader.whole(self._full(key), self._closed)

    def read_many(self, keys: Sequence[str]) -> Iterator[tuple[str, bytes | SMDebugError]]:
        """Whole objects, fetched side by side, as they arrive; one that can't be read is its error.

        At most twice as many as there are connections are held at a time, whatever the number asked for.
        """
        stop = threading.Event()
        yield from self._side_by_side(keys, lambda key: self._downloader.whole(self._full(key), stop), stop)

    def read_ranges(self, ranges: Sequence[Range], version: str = "") -> Sequence[memoryview | SMDebugError]:
        """The bytes of each range, or the error that stands in its way.

        Neighbours in one object are fetched together; what was fetched before is not asked for again. ``version`` is part of
        a piece's name in the cache directory: give what changes when the run's objects are written again.
        """
        answers: list[memoryview | SMDebugError | None] = [self._memory.get(wanted) for wanted in ranges]
        missing = [i for i, answer in enumerate(answers) if answer is None]
        gets = coalesce([ranges[i] for i in missing])
        stop = threading.Event()
        for get, fetched in self._side_by_side(gets, lambda get: self._fetch(get, version, stop), stop):
            for n in get.answers:
                i = missing[n]
                if isinstance(fetched, SMDebugError):
                    answers[i] = fetched
                else:
                    start = ranges[i].offset - get.offset
                    answers[i] = memoryview(fetched)[start : start + ranges[i].length]
        return [answer for answer in answers if answer is not None]

    def _fetch(self, get: Get, version: str, stop: threading.Event) -> bytes:
        piece = Range(get.key, get.offset, get.length)
        identity = f"{self._client.meta.endpoint_url}\0{self.bucket}\0{self.prefix}\0{version}"
        if self._disk is not None and (known := self._disk.get(identity, piece)) is not None:
            self._memory.put(get.key, get.offset, known)
            return known
        data, etag = self._downloader.range(Range(self._full(get.key), get.offset, get.length), stop)
        if self._etags.setdefault(get.key, etag) != etag:
            self._memory.drop(get.key)
            self._etags[get.key] = etag
        self._memory.put(get.key, get.offset, data)
        if self._disk is not None:
            self._disk.put(identity, piece, data)
        return data

    def _side_by_side(
        self, items: Sequence[T], work: Callable[[T], R], stop: threading.Event
    ) -> Iterator[tuple[T, R | SMDebugError]]:
        """``work`` of each item on the pool; results as they come, errors of the vocabulary as results."""
        todo = iter(items)
        running: dict[Future[R], T] = {}
        try:
            while True:
                while len(running) < 2 * self._concurrency and (item := next(todo, None)) is not None:
                    running[self._pool.submit(work, item)] = item
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    item = running.pop(future)
                    try:
                        yield item, future.result()
                    except SMDebugError as error:
                        yield item, error
        finally:
            # Also when the caller stops early or presses Ctrl-C: what is under way ends at its next chunk.
            stop.set()
            for future in running:
                future.cancel()

    # ------------------------------------------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        """Write an object; it is there in whole when this returns, and not at all if it raises.

        Large ones go up in parts.
        """
        from io import BytesIO

        from boto3.s3.transfer import TransferConfig

        config = TransferConfig(
            multipart_threshold=_PUT_PART, multipart_chunksize=_PUT_PART, max_concurrency=self._concurrency
        )
        full = self._full(key)
        if isinstance(data, Path):
            self._asked("puts", key, lambda: self._client.upload_file(str(data), self.bucket, full, Config=config))
        elif len(data) < _PUT_PART:
            self._asked("puts", key, lambda: self._client.put_object(Bucket=self.bucket, Key=full, Body=bytes(data)))
        else:
            self._asked(
                "puts", key, lambda: self._client.upload_fileobj(BytesIO(data), self.bucket, full, Config=config)
            )

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """End what is under way and let the connections go. The client stays the caller's."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._memory.clear()

    # ------------------------------------------------------------------------------------------------------ details

    def _below_prefix(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _full(self, key: str) -> str:
        # S3 takes `..` as two dots, but what lies between may not: such a key could read another object.
        if any(part in {".", ".."} for part in key.split("/")):
            raise OutsideRunError(
                f"{s3_url(self.bucket, self._below_prefix(key))} leads out of the run: it holds '.' or '..' as a folder"
            )
        return self._below_prefix(key)

    def _asked(self, what: str, key: str, request: Callable[[], R]) -> R:
        """One request, counted; its failure in our vocabulary. boto3 has done the repeating."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        self._counter.add(what)
        try:
            return request()
        except ClientError as error:
            raise from_client_error(error, self.bucket, self._below_prefix(key)) from error
        except (BotoCoreError, Boto3Error) as error:
            raise from_transport_error(error, self.bucket, self._below_prefix(key)) from error


__all__ = ["Cancelled", "Listed", "S3Storage"]
