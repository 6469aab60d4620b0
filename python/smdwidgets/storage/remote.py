"""Storage in a bucket or behind a web server: objects below an address."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.exceptions import OutsideRunError, SMDebugError, TruncatedDataError
from smdwidgets.storage.address import Address
from smdwidgets.storage.cache import CacheInfo, DiskCache, MemoryCache
from smdwidgets.storage.errors import ObjectMissing, StoreError, from_store
from smdwidgets.storage.forks import reset_in_forks
from smdwidgets.storage.objects import Entry, Objects
from smdwidgets.storage.protocol import LARGEST_WHOLE, Range
from smdwidgets.storage.requests import RequestCount

R = TypeVar("R")

DEFAULT_CONCURRENCY = 16
#: Maximum requests at a time while many small objects are read, if concurrency is not set.
MOST_REQUESTS = 64
DEFAULT_CACHE_BYTES = 256 << 20
DEFAULT_DISK_BYTES = 10 << 30
#: No run contains keys with these characters, which the core does not request.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Precedes the region in the core's message about a bucket in another region.
_IN_REGION = "the bucket is in region "


@dataclass(frozen=True, slots=True)
class Listed:
    """A listed object: key in the run, size, write time since the epoch, ETag.

    A web server's listing may lack size and time, which are then None.
    """

    key: str
    size: int | None
    written: float | None
    etag: str = ""


def _stem(key: str) -> str:
    """Return the file name without extension, such as ``000000000005_worker_0``.

    It is the same for the index object and the event object of a step and worker.
    """
    return key.rpartition("/")[2].rpartition(".")[0]


class RemoteStorage:
    """The objects below one prefix of one bucket.

    Thread-safe. ``close()`` cancels running requests. :meth:`smdwidgets.storage.Connection.storage` creates it.

    Args:
        address: the address of the prefix.
        objects: the objects of the bucket.
        concurrency: maximum number of concurrent requests of one call; default 16.
        cache_bytes: size limit of the memory cache.
        cache_dir: directory of the disk cache.
        endpoint: the server, which separates equal buckets of several servers in the disk cache.
        in_region: opens the bucket in another region.
        reduce: returns what pickles the storage at a URL.

    >>> storage = Connection().storage("s3://bucket/jobs/mnist")                         # doctest: +SKIP
    >>> list(storage.list("index/"))                                            # doctest: +SKIP
    ['index/000000000/000000000000_worker_0.json']
    """

    def __init__(
        self,
        address: Address,
        objects: Objects,
        *,
        concurrency: int | None = None,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        cache_dir: str | PathLike[str] | None = None,
        endpoint: str = "",
        in_region: Callable[[str], Objects] | None = None,
        reduce: Callable[[str], tuple[Any, ...]] | None = None,
    ) -> None:
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be >= 1, got {concurrency}")
        self.address = address
        self.concurrency = concurrency or DEFAULT_CONCURRENCY
        #: Reads of a sweep that wait at the same time.
        self.reads_at_once = concurrency or MOST_REQUESTS
        self._objects = objects
        self._endpoint = endpoint
        self._in_region = in_region
        self._reduce = reduce
        self._cache_bytes = cache_bytes
        self._cache_dir = cache_dir
        self._etags: dict[str, str] = {}
        self._versions: dict[str, str] = {}
        self._closed = threading.Event()
        self._prepare()
        reset_in_forks(self)

    def _prepare(self) -> None:
        """Create the state that belongs to one process: caches, threads and locks."""
        self._memory = MemoryCache(self._cache_bytes)
        self._disk = None if self._cache_dir is None else DiskCache(self._cache_dir, DEFAULT_DISK_BYTES)
        self._in_flight: dict[Range, Future[bytes]] = {}
        self._in_flight_lock = threading.Lock()
        self._ahead = ThreadPoolExecutor(max(1, self.concurrency // 2), thread_name_prefix="smdwidgets-ahead")

    def reset_after_fork(self) -> None:
        """Create new threads and locks in a forked process."""
        if not self._closed.is_set():
            self._prepare()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reduce is None:
            raise TypeError("cannot pickle a storage that was not created by a Connection")
        return self._reduce(self.url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, {self.requests!r})"

    @property
    def bucket(self) -> str:
        """The bucket, container or host."""
        return self.address.bucket

    @property
    def prefix(self) -> str:
        """The prefix of all keys, without slashes at its ends."""
        return self.address.prefix

    @property
    def url(self) -> str:
        """The URL of the prefix, such as ``s3://bucket/prefix``."""
        return self.address.url

    @property
    def requests(self) -> RequestCount:
        """Number of requests so far."""
        return RequestCount(*self._objects.requests())

    def cache_info(self) -> CacheInfo:
        """Return size and hit counts of the memory cache."""
        return self._memory.info()

    @property
    def cache_limit(self) -> int:
        """Maximum bytes of the memory cache."""
        return self._memory.info().limit

    def enter(self, folder: str) -> None:
        """Append a folder to the prefix."""
        self.address = self.address.enter(folder)

    # ------------------------------------------------------------------------------------------------------ listing

    def list(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Return sorted keys that start with ``prefix`` and sort after ``start_after``."""
        return (found.key for found in self.listing(prefix, start_after))

    def forget(self, key: str | None = None) -> None:
        """Drop an object from the memory cache, or all: it was overwritten."""
        if key is None:
            self._memory.clear()
        else:
            self._memory.drop(key)

    def listing(
        self, prefix: str, start_after: str = "", measured: Callable[[str], bool] | None = None
    ) -> Iterator[Listed]:
        """Yield keys like :meth:`list`, with sizes and write times.

        Keys with control characters are left out. A web server's listing may lack sizes and times. Each object for
        whose key ``measured`` returns True is then asked for.
        """
        below, after = self._full(prefix, is_prefix=True), self._full(start_after) if start_after else ""
        skip = len(self.address.below(""))
        pages: Iterator[list[Entry]] | None = None
        while True:
            if pages is None:
                pages, page = self._ask(lambda objects: _begun(objects.pages(below, after)))
            else:
                with self._errors():
                    page = next(pages, None)
            if page is None:
                return
            for full, size, written, etag in page:
                key = full[skip:]
                if _CONTROL.search(key):
                    continue
                if size < 0 and measured is not None and measured(key):
                    head = self._ask(lambda objects: objects.head(full))  # noqa: B023 - called at once
                    if head is None:
                        continue
                    size, written, etag = head
                if self._disk is not None and (etag or written):
                    # Event objects are not listed. An overwritten one has an index object with a new write time.
                    self._versions[_stem(key) if key.startswith("index/") else key] = f"{etag} {written}"
                yield Listed(key, None if size < 0 else size, written or None, etag)

    def folder(self, folder: str) -> tuple[Sequence[str], Sequence[Listed]]:
        """Return the keys of the folders and the objects directly in a folder.

        It is a key that ends with a slash, or empty for the prefix. The keys of the folders in it do not end with one.
        A folder of up to 1,000 entries takes one request.
        """
        below, skip = self._full(folder, is_prefix=True), len(self.address.below(""))
        folders, entries = self._ask(lambda objects: objects.folder(below))
        return [key[skip:] for key in folders if not _CONTROL.search(key)], [
            Listed(key[skip:], None if size < 0 else size, written or None, etag)
            for key, size, written, etag in entries
            # Some programs create an empty object for a folder.
            if not _CONTROL.search(key) and key != below
        ]

    def _version_of(self, key: str) -> str:
        return self._versions.get(key) or self._versions.get(_stem(key), "")

    def exists(self, key: str) -> bool:
        """Return whether an object exists."""
        return self.head(key) is not None

    def age(self, key: str) -> float | None:
        """Return the seconds since an object was written, or None if it does not exist."""
        head = self.head(key)
        return None if head is None else max(0.0, time.time() - head[1])

    def head(self, key: str) -> tuple[int, float, str] | None:
        """Return size, time of the last write and ETag; None if there is no object."""
        full = self._full(key)
        return self._ask(lambda objects: objects.head(full))

    # ------------------------------------------------------------------------------------------------------ reading

    def read(self, key: str) -> bytes:
        """Return a whole object."""
        full = self._full(key)
        return self._ask(lambda objects: objects.get(full, LARGEST_WHOLE))[0]

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield objects in order of arrival, read in parallel; skip missing ones.

        At most twice as many objects as concurrent requests are in memory at a time.
        """
        names = {self._full(key): key for key in keys}
        if not names:
            return
        with self._errors():
            arriving = self._objects.get_many([*names], LARGEST_WHOLE)
        while True:
            with self._errors():
                found = next(arriving, None)
            if found is None:
                return
            full, content = found
            if isinstance(content, bytes):
                yield names[full], content
            elif not isinstance(error := self._converted(content), ObjectMissing):
                raise error

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        """Return the bytes of each range; raise the first error.

        Nearby ranges of one object are fetched in one request. Cached ranges and running requests are reused.
        """
        answers = [self._memory.get(wanted) for wanted in ranges]
        missing: dict[Range, bytes] = {
            wanted: b"" for wanted, answer in zip(ranges, answers, strict=True) if answer is None
        }
        if not missing:
            return [answer for answer in answers if answer is not None]
        self._fetch(missing)
        return [missing[wanted] if answer is None else answer for wanted, answer in zip(ranges, answers, strict=True)]

    def prefetch(self, ranges: Sequence[Range]) -> None:
        """Start reading ranges into the cache in the background. Errors are ignored."""
        for wanted in ranges:
            if not self._memory.contains(wanted):
                with suppress(RuntimeError):  # the storage is being closed
                    self._ahead.submit(self._fetch_quietly, wanted)

    def _fetch_quietly(self, wanted: Range) -> None:
        if not self._memory.contains(wanted) and not self._closed.is_set():
            with suppress(SMDebugError):
                self._fetch({wanted: b""})

    def _fetch(self, wanted: dict[Range, bytes]) -> None:
        """Fill in the bytes of ranges. Threads that want the same range share one request."""
        while wanted_now := [place for place, data in wanted.items() if not data and place[2]]:
            mine: dict[Range, Future[bytes]] = {}
            others: dict[Range, Future[bytes]] = {}
            with self._in_flight_lock:
                for place in wanted_now:
                    running = self._in_flight.get(place)
                    if running is None:
                        self._in_flight[place] = mine[place] = Future()
                    else:
                        others[place] = running
            try:
                for place, data in self._fetch_now([*mine]):
                    mine[place].set_result(data)
                    wanted[place] = data
            finally:
                with self._in_flight_lock:
                    for place, future in mine.items():
                        del self._in_flight[place]
                        if not future.done():
                            future.cancel()  # also after Ctrl-C: those who wait ask for themselves
            for place, future in others.items():
                with suppress(CancelledError):
                    wanted[place] = future.result()

    def _fetch_now(self, places: Sequence[Range]) -> Iterator[tuple[Range, bytes]]:
        """Yield the bytes of ranges from disk and bucket; raise the first error."""
        asked = []
        for place in places:
            identity = self._identity(place.key)
            known = self._disk.get(identity, place) if self._disk is not None and identity else None
            if known is None:
                asked.append(place)
            else:
                self._memory.put(place.key, place.offset, known)
                yield place, known
        if not asked:
            return
        full = [(self._full(key), offset, length) for key, offset, length in asked]
        answers: Sequence[tuple[bytes, str] | Exception]
        if len(full) == 1:
            answers = [self._ask(lambda objects: objects.get_range(*full[0]))]
        else:
            answers = self._ask(lambda objects: objects.get_ranges(full))
        for place, answer in zip(asked, answers, strict=True):
            if isinstance(answer, Exception):
                raise self._converted(answer)
            data, etag = answer
            if self._etags.setdefault(place.key, etag) != etag:
                self._memory.drop(place.key)
                self._etags[place.key] = etag
            yield place, self._keep(place, data)

    def _keep(self, place: Range, data: bytes) -> bytes:
        """Cache and return the bytes of a range; raise if there are too few."""
        key, offset, length = place
        if len(data) < length:
            raise TruncatedDataError(
                f"{shown(f'{self.address.root}/{self.address.below(key)}', 400)}, byte {offset}: truncated data: "
                f"expected {length} bytes, got {len(data)}"
            )
        self._memory.put(key, offset, data)
        if self._disk is not None and (identity := self._identity(key)):
            self._disk.put(identity, place, data)
        return data

    def _identity(self, key: str) -> str:
        """Return what identifies a version of an object; empty if it is unknown."""
        version = self._version_of(key)
        return f"{self._endpoint}\0{self.address.root}\0{self.prefix}\0{version}" if version else ""

    def direct(self, fetch: Callable[[str, int, int], bytes]) -> _core.Fetched:
        """Return what reads objects in the core, past the memory cache.

        It calls ``fetch`` if there is a disk cache, or another client than this package's.
        """
        objects = getattr(self._objects, "core", self._objects)
        if self._disk is not None or not isinstance(objects, _core.ObjectStore):
            return _core.Fetched(fetch, self.reads_at_once)
        return _core.Fetched(fetch, self.reads_at_once, (objects, self.address.below(""), self._converted))

    # ------------------------------------------------------------------------------------------------------ writing

    def put(self, key: str, data: bytes | bytearray | memoryview | Path, if_match: str | None = None) -> None:
        """Write an object atomically. Large files use multipart uploads.

        With an ETag as ``if_match``, only over the object that has it; with ``""``, only if there is none. Otherwise
        :class:`~smdwidgets.storage.ObjectChanged` is raised, unless the server ignores conditions.
        """
        full = self._full(key)
        if isinstance(data, Path):
            self._ask(lambda objects: objects.put_file(full, str(data)))
        else:
            self._ask(lambda objects: objects.put(full, bytes(data), if_match))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; ignore missing ones."""
        whole = [self._full(key) for key in keys]
        self._ask(lambda objects: objects.delete(whole))

    # ------------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """Cancel running requests and close connections.

        A client of the caller stays open.
        """
        self._closed.set()
        self._ahead.shutdown(wait=False, cancel_futures=True)
        self._memory.clear()
        self._objects.close()

    # ------------------------------------------------------------------------------------------------------ details

    def _full(self, key: str, *, is_prefix: bool = False) -> str:
        # Stores treat `..` literally, but proxies may not, so such a key could read another object.
        if not is_prefix and any(part in {".", ".."} for part in key.split("/")):
            raise OutsideRunError(
                f"key {key!r} points outside the run {self.url!r}: it contains '.' or '..' as a path component"
            )
        if _CONTROL.search(key):
            raise StoreError(
                self.address, self.address.below(key), "other", "a key with a control character is not requested"
            )
        return self.address.below(key)

    def _ask(self, request: Callable[[Objects], R]) -> R:
        """Make a request; repeat it in the bucket's region if that is another one."""
        with self._errors():
            try:
                return request(self._objects)
            except _core.StoreError as error:
                _, found, region = error.args[2].rpartition(_IN_REGION)
                if self._in_region is None or not found:
                    raise
                self._objects = self._in_region(region)
                self._in_region = None
                return request(self._objects)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _core.StoreError as error:
            raise self._converted(error) from error

    def _converted(self, error: Exception) -> Exception:
        return from_store(error, self.address) if isinstance(error, _core.StoreError) else error


def _begun(pages: Iterator[R]) -> tuple[Iterator[R], R | None]:
    """Return an iterator and its first item."""
    return pages, next(pages, None)
