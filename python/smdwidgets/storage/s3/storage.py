"""S3 storage: lists, reads and writes the objects below ``s3://bucket/prefix``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
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
from smdwidgets.storage.s3.errors import S3Error, S3ObjectMissing, from_client_error, from_transport_error
from smdwidgets.storage.s3.forks import reset_in_forks
from smdwidgets.storage.s3.plan import Get, coalesce
from smdwidgets.storage.s3.requests import RequestCount, RequestCounter

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_CONCURRENCY = 16
#: Maximum connections while many small objects are read, if concurrency is not set.
MOST_CONNECTIONS = 64
DEFAULT_CACHE_BYTES = 256 << 20
DEFAULT_DISK_BYTES = 10 << 30
_PAGE = 1000
_PUT_PART = 16 << 20


@dataclass(frozen=True, slots=True)
class Listed:
    """A listed object: key relative to the run, size, and write time since the epoch."""

    key: str
    size: int
    written: float


def _stem(key: str) -> str:
    """Return the file name without extension, such as ``000000000005_worker_0``.

    It is the same for the index object and the event object of a step and worker.
    """
    return key.rpartition("/")[2].rpartition(".")[0]


@contextmanager
def shutting_down(pool: ThreadPoolExecutor) -> Iterator[None]:
    """Shut down a pool at the end of a block, without waiting for running tasks."""
    try:
        yield
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class S3Storage:
    """The objects below one prefix of one bucket.

    Thread-safe. ``close()`` cancels running requests.

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
            raise ValueError(f"concurrency must be >= 1, got {concurrency}")
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self._client = client
        self._owns_client = owns_client
        self._counter = RequestCounter()
        # A client of the caller is used unchanged.
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
        reset_in_forks(self)

    def _prepare(self) -> None:
        """Create the state that belongs to one process: caches, threads and locks."""
        self._memory = MemoryCache(self._cache_bytes)
        self._disk = None if self._cache_dir is None else DiskCache(self._cache_dir, DEFAULT_DISK_BYTES)
        self._in_flight: dict[tuple[str, int, int], Future[bytes]] = {}
        self._in_flight_lock = threading.Lock()
        self._pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="smdwidgets-s3")
        # A separate pool, so that foreground reads do not queue behind prefetching.
        self._ahead = ThreadPoolExecutor(max(1, self.concurrency // 2), thread_name_prefix="smdwidgets-s3-ahead")

    def reset_after_fork(self) -> None:
        """Create new threads and connections in a forked process."""
        if not self._closed.is_set():
            self._prepare()
            self._counter.reset_after_fork()
            if self._direct is not None:
                self._direct.reset_after_fork()
            # Closes the client's connections; the client opens new ones.
            self._client.close()

    def __repr__(self) -> str:
        return f"S3Storage({self.url!r}, {self.requests!r})"

    @property
    def url(self) -> str:
        """``s3://bucket/prefix``."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def requests(self) -> RequestCount:
        """Number of requests so far."""
        return self._counter.now()

    def cache_info(self) -> CacheInfo:
        """Return size and hit counts of the memory cache."""
        return self._memory.info()

    @property
    def cache_limit(self) -> int:
        """Maximum bytes of the memory cache."""
        return self._memory.info().limit

    def enter(self, folder: str) -> None:
        """Append a folder to the prefix."""
        self.prefix = self._below_prefix(folder)

    # ------------------------------------------------------------------------------------------------------ listing

    def list(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Return sorted keys that start with ``prefix`` and sort after ``start_after``."""
        return (found.key for found in self.listing(prefix, start_after))

    def forget(self) -> None:
        """Drop the memory cache: objects were overwritten."""
        self._memory.clear()

    def listing(self, prefix: str, start_after: str = "") -> Iterator[Listed]:
        """Yield keys like :meth:`list`, with sizes and write times."""
        arguments: dict[str, Any] = {"Bucket": self.bucket, "Prefix": self._below_prefix(prefix), "MaxKeys": _PAGE}
        if start_after:
            arguments["StartAfter"] = self._below_prefix(start_after)
        skip = len(self._below_prefix(""))
        while True:
            page = self._send("lists", prefix, partial(self._client.list_objects_v2, **arguments))
            for found in page.get("Contents", ()):
                yield self._to_listed(found["Key"][skip:], found)
            if not page.get("IsTruncated"):
                return
            token = page.get("NextContinuationToken")
            if not token or token == arguments.get("ContinuationToken"):
                raise S3Error(
                    self.bucket,
                    self._below_prefix(prefix),
                    "NextContinuationToken",
                    "the server returned an invalid continuation token",
                )
            arguments["ContinuationToken"] = token

    def _to_listed(self, key: str, found: dict[str, Any]) -> Listed:
        written = found["LastModified"].timestamp() if "LastModified" in found else 0.0
        if self._disk is not None:
            # Event objects are not listed. An overwritten one has an index object with a new write time.
            self._versions[_stem(key) if key.startswith("index/") else key] = f"{found.get('ETag', '')} {written}"
        return Listed(key, int(found.get("Size", 0)), written)

    def _version_of(self, key: str) -> str:
        return self._versions.get(key) or self._versions.get(_stem(key), "")

    def exists(self, key: str) -> bool:
        """Return whether an object exists."""
        return self.age(key) is not None

    def age(self, key: str) -> float | None:
        """Return the seconds since an object was written, or None if it does not exist."""
        try:
            head = self._send("heads", key, lambda: self._client.head_object(Bucket=self.bucket, Key=self._full(key)))
        except S3ObjectMissing:
            return None
        return max(0.0, time.time() - float(head["LastModified"].timestamp()))

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, key: str) -> bytes:
        """Return a whole object."""
        return self._downloader.whole(self._full(key), self._closed)

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield objects in order of arrival, read in parallel; skip missing ones.

        At most twice as many objects as connections are in memory at a time.
        """
        names = {self._full(key): key for key in keys}
        todo = iter(names)
        remaining = []
        for full, content in self._read_directly(todo):
            if content is None:
                remaining.append(full)
            else:
                yield from self._unless_missing(names[full], content)
        stop = threading.Event()
        pool = ThreadPoolExecutor(self._most, thread_name_prefix="smdwidgets-s3-index")
        read = self._in_parallel(
            pool, self._most, chain(remaining, todo), lambda full: self._downloader.whole(full, stop), stop
        )
        with closing(read), shutting_down(pool):
            for full, content in read:
                yield from self._unless_missing(names[full], content)

    def _read_directly(self, todo: Iterator[str]) -> Iterator[tuple[str, bytes | SMDebugError | None]]:
        """Yield objects read directly. If needed, boto3 reads the first one as template."""
        if self._direct is not None and not self._direct.ready:
            for full in islice(todo, 1):
                try:
                    yield full, self._downloader.whole(full, self._closed)
                except SMDebugError as error:
                    yield full, error
        yield from self._downloader.many(todo, self._most, self._closed)

    @staticmethod
    def _unless_missing(key: str, content: bytes | SMDebugError) -> Iterator[tuple[str, bytes]]:
        """Yield the object unless it is missing; raise other errors."""
        if isinstance(content, bytes):
            yield key, content
        elif not isinstance(content, S3ObjectMissing):
            raise content

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[memoryview]:
        """Return the bytes of each range; raise the first error.

        Nearby ranges of one object are fetched in one request. Cached ranges and running requests are reused.
        """
        answers: list[memoryview | None] = [self._memory.get(wanted) for wanted in ranges]
        missing = [i for i, answer in enumerate(answers) if answer is None]
        gets = coalesce([ranges[i] for i in missing])
        if len(gets) == 1:  # avoid the overhead of the pool
            fetched: Iterable[tuple[Get, bytes | SMDebugError]] = [(gets[0], self._fetch(gets[0], self._closed))]
        else:
            stop = threading.Event()
            fetched = self._in_parallel(self._pool, self.concurrency, gets, lambda get: self._fetch(get, stop), stop)
        for get, data in fetched:
            if isinstance(data, SMDebugError):
                raise data
            for n in get.answers:
                wanted = ranges[missing[n]]
                start = wanted.offset - get.offset
                answers[missing[n]] = memoryview(data)[start : start + wanted.length]
        return [answer for answer in answers if answer is not None]

    def prefetch(self, ranges: Sequence[Range]) -> None:
        """Start reading ranges into the cache in the background. Errors are ignored."""
        for get in coalesce([wanted for wanted in ranges if not self._memory.contains(wanted)]):
            with suppress(RuntimeError):  # the storage is being closed
                self._ahead.submit(self._fetch_quietly, get)

    def _fetch_quietly(self, get: Get) -> None:
        if not self._memory.contains(Range(get.key, get.offset, get.length)):
            with suppress(SMDebugError, Cancelled):
                self._fetch(get, self._closed)

    def _fetch(self, get: Get, stop: threading.Event) -> bytes:
        """Return the bytes of one request; share it between threads."""
        place = (get.key, get.offset, get.length)
        mine: Future[bytes] = Future()
        while True:
            with self._in_flight_lock:
                in_flight = self._in_flight.setdefault(place, mine)
            if in_flight is mine:
                break
            try:
                return in_flight.result()
            except Cancelled:
                # The thread that sent the request cancelled it; retry unless this caller is cancelled too.
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
            with self._in_flight_lock:
                del self._in_flight[place]

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

    def _in_parallel(
        self,
        pool: ThreadPoolExecutor,
        width: int,
        items: Iterable[T],
        work: Callable[[T], R],
        stop: threading.Event,
    ) -> Generator[tuple[T, R | SMDebugError], None, None]:
        """Run ``work`` on a pool; yield results as they complete, and errors as results."""
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
            # Also if the caller stops early or presses Ctrl-C: running reads end at their next chunk.
            stop.set()
            for future in running:
                future.cancel()

    # ------------------------------------------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes | bytearray | memoryview | Path) -> None:
        """Write an object atomically. Large ones use multipart uploads."""
        full = self._full(key)
        if isinstance(data, Path):
            self._send("puts", key, lambda: self._upload(self._client.upload_file, lambda: str(data), full))
        elif len(data) < _PUT_PART:
            self._send("puts", key, lambda: self._client.put_object(Bucket=self.bucket, Key=full, Body=bytes(data)))
        else:
            self._send("puts", key, lambda: self._upload(self._client.upload_fileobj, lambda: BytesIO(data), full))

    def _upload(self, upload: Callable[..., object], source: Callable[[], object], full: str) -> None:
        from boto3.s3.transfer import TransferConfig

        config = TransferConfig(
            multipart_threshold=_PUT_PART, multipart_chunksize=_PUT_PART, max_concurrency=self.concurrency
        )
        try:
            upload(source(), self.bucket, full, Config=config)
        except RuntimeError:  # no thread can be started: the script has ended, perhaps during this upload
            config.use_threads = False
            upload(source(), self.bucket, full, Config=config)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; ignore missing ones."""
        objects = [{"Key": self._full(key)} for key in keys]
        for at in range(0, len(objects), _PAGE):
            some = {"Objects": objects[at : at + _PAGE], "Quiet": True}
            self._send("deletes", "", partial(self._client.delete_objects, Bucket=self.bucket, Delete=some))

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """Cancel running requests and close connections.

        A client of the caller stays open.
        """
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
        # S3 treats `..` literally, but proxies may not, so such a key could read another object.
        if any(part in {".", ".."} for part in key.split("/")):
            raise OutsideRunError(
                f"key {key!r} points outside the run {self.url!r}: it contains '.' or '..' as a path component"
            )
        return self._below_prefix(key)

    def _send(self, what: str, key: str, request: Callable[[], R]) -> R:
        """Send a request with boto3, count it, and convert its exceptions."""
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
