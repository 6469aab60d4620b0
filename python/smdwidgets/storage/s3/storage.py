"""A run's objects below ``s3://bucket/prefix``: listed, and read in as few requests as will do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from smdwidgets.exceptions import OutsideRunError, SMDebugError
from smdwidgets.storage.protocol import Range
from smdwidgets.storage.s3.cache import CacheInfo, DiskCache, MemoryCache
from smdwidgets.storage.s3.direct import DirectGets
from smdwidgets.storage.s3.download import Cancelled, Downloader
from smdwidgets.storage.s3.errors import S3Error, S3ObjectMissing, from_client_error, from_transport_error, s3_url
from smdwidgets.storage.s3.forks import anew_in_a_fork
from smdwidgets.storage.s3.plan import Get, coalesce
from smdwidgets.storage.s3.requests import RequestCount, RequestCounter

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_CONCURRENCY = 16
#: While many small objects are read, which is all waiting, unless somebody said how many requests there may be.
MOST_CONNECTIONS = 64
DEFAULT_CACHE_BYTES = 256 << 20
DEFAULT_DISK_BYTES = 10 << 30
_PAGE = 1000
_PUT_PART = 16 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """An object as a listing shows it: its key below the run, its size, and when it was written (seconds since 1970)."""

    key: str
    size: int
    written: float


def _stem(key: str) -> str:
    """What the index object and the event object of one step and worker share: ``000000000005_worker_0``."""
    return key.rpartition("/")[2].rpartition(".")[0]


@contextmanager
def shutting_down(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Let go of a pool at the end, without waiting for what is still under way."""
    try:
        yield
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class S3Storage:
    """The objects below one prefix of one bucket.

    Safe to use from many threads. ``close()`` ends what is under way.

    >>> storage = S3Storage("bucket", "jobs/mnist/debug-output", client=client)          # doctest: +SKIP
    >>> list(storage.list("index/"))                                            # doctest: +SKIP
    ['index/000000000/000000000000_worker_0.json']
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        *,
        client: Any,
        concurrency: int | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_dir: str | PathLike[str] | None = None,
        owns_client: bool = False,
    ) -> None:
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._client = client
        self._owns_client = owns_client
        self._counter = RequestCounter()
        # A client that somebody brought is used as it is.
        self._direct = DirectGets(client) if owns_client else None
        self._downloader = Downloader(client, bucket, self._counter, self._direct)
        self._cache_bytes = cache_bytes
        self._cache_dir = cache_dir
        self._etags: dict[str, str] = {}
        self.concurrency = concurrency or DEFAULT_CONCURRENCY
        self._most = concurrency or MOST_CONNECTIONS
        self._versions: dict[str, str] = {}
        self._closed = threading.Event()
        self._prepare()
        anew_in_a_fork(self)

    def _prepare(self) -> None:
        """What belongs to one process: threads, and what they may be at work on."""
        self._memory = MemoryCache(self._cache_bytes)
        self._disk = None if self._cache_dir is None else DiskCache(self._cache_dir, DEFAULT_DISK_BYTES)
        self._flying: dict[tuple[str, int, int], Future[bytes]] = {}
        self._flying_lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="smdwidgets-s3")
        # Apart from the pool, so that what a person waits for never queues behind what they might want next.
        self._ahead = ThreadPoolExecutor(max(1, self.concurrency // 2), thread_name_prefix="smdwidgets-s3-ahead")

    def begin_anew(self) -> None:
        """In a process that was forked: threads and connections of its own."""
        if not self._closed.is_set():
            self._prepare()
            self._counter.begin_anew()
            if self._direct is not None:
                self._direct.begin_anew()
            # Which a client outlives: it makes others.
            self._client.close()

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

    @property
    def cache_limit(self) -> int:
        """How many bytes the in-memory cache may hold."""
        return self._memory.info().limit

    def enter(self, folder: str) -> None:
        """Go one folder deeper: where the run turns out to lie."""
        self.prefix = self._below_prefix(folder)

    # ------------------------------------------------------------------------------------------------------ listing

    def list(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with ``prefix`` and come after ``start_after``, in their order."""
        return (found.key for found in self.listing(prefix, start_after))

    def listing(self, prefix: str, start_after: str = "") -> Iterator[Listed]:
        """The same, with what a listing says of each object."""
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self._below_prefix(prefix), "MaxKeys": _PAGE}
        if start_after:
            arguments["StartAfter"] = self._below_prefix(start_after)
        skip = len(self._below_prefix(""))
        while True:
            page = self._asked("lists", prefix, partial(self._client.list_objects_v2, **arguments))
            for found in page.get("Contents", ()):
                yield self._noted(found["Key"][skip:], found)
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == arguments.get("ContinuationToken"):
                raise S3Error(
                    self.bucket,
                    self._below_prefix(prefix),
                    "NextContinuationToken",
                    "the server's listing does not go on",
                )
            arguments["ContinuationToken"] = token

    def _noted(self, key: str, found: dict[str, Any]) -> Listed:
        written = found["LastModified"].timestamp() if "LastModified" in found else 0.0
        if self._disk is not None:
            # The event objects of steps are not listed: one that is written again has an index object of another time.
            self._versions[_stem(key) if key.startswith("index/") else key] = f"{found.get('ETag', '')} {written}"
        return Listed(key, int(found.get("Size", 0)), written)

    def _version_of(self, key: str) -> str:
        return self._versions.get(key) or self._versions.get(_stem(key), "")

    def exists(self, key: str) -> bool:
        """Whether there is an object of exactly this key."""
        return self.age(key) is not None

    def age(self, key: str) -> float | None:
        """Seconds since the object was written; None if there is none."""
        try:
            head = self._asked("heads", key, lambda: self._client.head_object(Bucket=self.bucket, Key=self._full(key)))
        except S3ObjectMissing:
            return None
        return max(0.0, time.time() - float(head["LastModified"].timestamp()))

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, key: str) -> bytes:
        """A whole object."""
        return self._downloader.whole(self._full(key), self._closed)

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Whole objects, fetched side by side, as they arrive; those that are gone are left out.

        At most twice as many as there are connections are held at a time, whatever the number asked for.
        """
        names = {self._full(key): key for key in keys}
        todo = iter(names)
        late = []
        for full, content in self._first_and_short(todo):
            if content is None:
                late.append(full)
            else:
                yield from self._there(names[full], content)
        stop = threading.Event()
        pool = ThreadPoolExecutor(self._most, thread_name_prefix="smdwidgets-s3-index")
        read = self._side_by_side(
            pool, self._most, chain(late, todo), lambda full: self._downloader.whole(full, stop), stop
        )
        with closing(read), shutting_down(pool):
            for full, content in read:
                yield from self._there(names[full], content)

    def _first_and_short(self, todo: Iterator[str]) -> Iterator[tuple[str, bytes | SMDebugError | None]]:
        """What the short way gives, after the object that shows it if none has yet."""
        if self._direct is not None and not self._direct.ready:
            for full in islice(todo, 1):
                try:
                    yield full, self._downloader.whole(full, self._closed)
                except SMDebugError as error:
                    yield full, error
        yield from self._downloader.many(todo, self._most, self._closed)

    @staticmethod
    def _there(key: str, content: bytes | SMDebugError) -> Iterator[tuple[str, bytes]]:
        """Nothing for an object that is gone."""
        if isinstance(content, bytes):
            yield key, content
        elif not isinstance(content, S3ObjectMissing):
            raise content

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[memoryview]:
        """The bytes of each range; the first one that can't be read is the error.

        Neighbours in one object are fetched together; what was fetched before, or is on its way, is not asked for again.
        """
        answers: list[memoryview | None] = [self._memory.get(wanted) for wanted in ranges]
        missing = [i for i, answer in enumerate(answers) if answer is None]
        gets = coalesce([ranges[i] for i in missing])
        if len(gets) == 1:  # the pool would only add a wait
            fetched: Iterable[tuple[Get, bytes | SMDebugError]] = [(gets[0], self._fetch(gets[0], self._closed))]
        else:
            stop = threading.Event()
            fetched = self._side_by_side(self._pool, self.concurrency, gets, lambda get: self._fetch(get, stop), stop)
        for get, data in fetched:
            if isinstance(data, SMDebugError):
                raise data
            for n in get.answers:
                wanted = ranges[missing[n]]
                start = wanted.offset - get.offset
                answers[missing[n]] = memoryview(data)[start : start + wanted.length]
        return [answer for answer in answers if answer is not None]

    def prefetch(self, ranges: Sequence[Range]) -> None:
        """Start reading ranges that will be asked for soon; errors wait for whoever asks."""
        for get in coalesce([wanted for wanted in ranges if not self._memory.holds(wanted)]):
            with suppress(RuntimeError):  # the storage is being closed
                self._ahead.submit(self._fetch_quietly, get)

    def _fetch_quietly(self, get: Get) -> None:
        if not self._memory.holds(Range(get.key, get.offset, get.length)):
            with suppress(SMDebugError, Cancelled):
                self._fetch(get, self._closed)

    def _fetch(self, get: Get, stop: threading.Event) -> bytes:
        """The bytes of one request, which several threads may want at once: one asks, the others wait for it."""
        place = (get.key, get.offset, get.length)
        mine: Future[bytes] = Future()
        while True:
            with self._flying_lock:
                flying = self._flying.setdefault(place, mine)
            if flying is mine:
                break
            try:
                return flying.result()
            except Cancelled:
                # Given up by whoever asked; not by us.
                if stop.is_set():
                    raise
        try:
            data = self._fetch_now(get, stop)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(data)
            return data
        finally:
            with self._flying_lock:
                del self._flying[place]

    def _fetch_now(self, get: Get, stop: threading.Event) -> bytes:
        piece = Range(get.key, get.offset, get.length)
        identity = f"{self._client.meta.endpoint_url}\0{self.bucket}\0{self.prefix}\0{self._version_of(get.key)}"
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
        self,
        pool: ThreadPoolExecutor,
        width: int,
        items: Iterable[T],
        work: Callable[[T], R],
        stop: threading.Event,
    ) -> Generator[tuple[T, R | SMDebugError], None, None]:
        """``work`` of each item on a pool so wide; results as they come, errors of the vocabulary as results."""
        todo = iter(items)
        running: dict[Future[R], T] = {}
        done: SimpleQueue[Future[R]] = SimpleQueue()
        try:
            while True:
                while len(running) < 2 * width and (item := next(todo, None)) is not None:
                    future = pool.submit(work, item)
                    running[future] = item
                    future.add_done_callback(done.put)
                if not running:
                    return
                future = done.get()
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
            multipart_threshold=_PUT_PART,
            multipart_chunksize=_PUT_PART,
            max_concurrency=self.concurrency,
            # A hook that is open when the interpreter ends is closed after the last thread pool could be used.
            use_threads=threading.main_thread().is_alive(),
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

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are no error."""
        doomed = [{"Key": self._full(key)} for key in keys]
        for at in range(0, len(doomed), _PAGE):
            some = {"Objects": doomed[at : at + _PAGE], "Quiet": True}
            self._asked("deletes", "", partial(self._client.delete_objects, Bucket=self.bucket, Delete=some))

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """End what is under way and let the connections go. A client that the caller brought stays open."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._ahead.shutdown(wait=False, cancel_futures=True)
        self._memory.clear()
        if self._direct is not None:
            self._direct.close()
        if self._owns_client:
            self._client.close()

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
