"""Runs in stores: list only new index files, and read one step per request."""
# Methods are described in `Run`.
# ruff: noqa: D102

from __future__ import annotations

import copy
import functools
import time
from bisect import bisect_left
from typing import Any, Self

from numpy.typing import NDArray

from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX
from smdwidgets.exceptions import RunNotFound
from smdwidgets.run_end import END_FILE
from smdwidgets.storage.cache import CacheInfo
from smdwidgets.storage.connection import Connection, check_picklable
from smdwidgets.storage.protocol import Range
from smdwidgets.storage.remote import Listed, RemoteStorage
from smdwidgets.storage.requests import RequestCount
from smdwidgets.trials.reader import Reopening, checked_range, reopened
from smdwidgets.trials.run import CollectionFiles, Getter
from smdwidgets.trials.smdebug.manifest import WORTHWHILE, Stamp, as_trust, digests, plain_etag
from smdwidgets.trials.smdebug.run import StorageRun, collection_files
from smdwidgets.trials.smdebug.segments import SEGMENTS
from smdwidgets.trials.smdebug.thinned import ThinnedSteps
from smdwidgets.trials.trial import Trial

#: Folder of a run below the prefix of a SageMaker job.
SAGEMAKER_FOLDER = "debug-output"
#: Event objects up to this size are fetched whole, since values of one step are often read together.
WHOLE_BELOW = 8 << 20
#: Number of steps to prefetch when a tensor is read step by step.
STEPS_AHEAD = 8
#: Number of recent steps that are listed again while a worker's file is missing.
LOOK_BACK = 200
#: Seconds after the end marker in which an uploader may still deliver files.
UPLOADS_SETTLE = 60.0
#: Maximum bytes of the cache of a run that another process reads: a sweep reads each object once, and a worker of a
#: cluster has little memory.
WORKER_CACHE = 32 << 20
#: Seconds between checks of the collection files, which rarely change.
_COLLECTIONS_EVERY = 60.0
#: Seconds between two looks at the log of deleted values, each of which takes requests.
_DELETED_EVERY = 10.0
#: Seconds between two checks for another run in the same place, each of which is a request.
_CHECK_REPLACED_EVERY = 10.0


class RemoteRun(StorageRun):
    """A run below a prefix of a bucket or a web server."""

    storage: RemoteStorage

    def start_over(self) -> None:
        super().start_over()
        self.storage.forget()
        self._ended_at: float | None = None
        self._all_listed = False
        self._listed = False
        self._keys_listed: list[str] | None = None
        self._collections_checked = 0.0
        self._last_request: tuple[str, str | None, int] | None = None
        self._thinned = ThinnedSteps(self.storage, _DELETED_EVERY)
        #: The first index object, which is written once.
        self._first: tuple[str, float] | None = None
        self._new_in_segments = 0
        self._next_check = time.monotonic() + _CHECK_REPLACED_EVERY

    def replaced_at(self) -> float | None:
        if self._first is None or time.monotonic() < self._next_check:
            return None
        self._next_check = time.monotonic() + _CHECK_REPLACED_EVERY
        key, written = self._first
        begun = None
        for found in self.storage.listing("index/"):
            begun = found.written if begun is None else begun
            if found.key == key:
                return None if found.written == written else found.written
            if found.key > key:
                break
        return begun

    # ------------------------------------------------------------------------------------------------- refreshing

    def check(self) -> None:
        """Find the run at the prefix or in SageMaker's folder below it."""
        if self._listed:
            return
        given = self.storage.address
        for folder in ("", SAGEMAKER_FOLDER):
            if folder:
                self.storage.enter(folder)
            keys = list(self.storage.list(COLLECTIONS_PREFIX + "/"))
            if keys or self._has_signs():
                self._keys_listed = collection_files(keys)
                self.path = self.storage.url
                return
        self.storage.address = given
        raise RunNotFound(given.url, f"found none of collections/, index/ and events/ there or in {SAGEMAKER_FOLDER}/")

    def _has_signs(self) -> bool:
        """Return whether the folder has steps or an end of a run of a hook."""
        folders, files = self.storage.folder("")
        return any(key in {"index", "events", END_FILE} for key in [*folders, *(file.key for file in files)])

    def collections(self) -> CollectionFiles | None:
        now = time.monotonic()
        if self._collections_read is not None and now - self._collections_checked < _COLLECTIONS_EVERY:
            return None
        self._collections_checked = now
        self._collections_read = None
        found = super().collections()
        if found is not None and found.files < found.manager.get_num_workers():
            self._collections_read = None  # read again: files of other workers are missing
        return found

    def _collection_keys(self) -> list[str]:
        # Reuse the listing of `check`.
        keys, self._keys_listed = self._keys_listed, None
        return super()._collection_keys() if keys is None else keys

    def _collections_version(self) -> object:
        # A separate listing costs as much as reading the files, so `collections` limits how often they are read.
        return "read"

    def _list(self) -> int:
        if self._all_listed:
            return 0
        if self._trust == "root" and not self._listed:
            return self._list_behind_root()
        start = self._start_after()
        new = self._list_from(start)
        looks = self._trust != "none" and start == "index/" and len(new) >= WORTHWHILE
        if looks and self._manifest.read_root():
            self._manifest.compare(digests(Stamp(one.key, one.size or 0, plain_etag(one.etag)) for one in new))
        return self.catalog.add_keys([one.key for one in new]) + self._new_in_segments

    def _list_behind_root(self) -> int:
        """Add the index files of the compacted index, and list those that follow."""
        count = 0
        if self._manifest.read_root():
            self._note_first(next(self.storage.listing("index/"), None))
            count = self.catalog.add_keys(list(self._manifest.keys()))
            self._manifest.trust()
        count += self.catalog.add_keys([one.key for one in self._list_from(self._manifest.end())])
        return count + self._new_in_segments

    def _note_first(self, found: Listed | None) -> None:
        """Remember the first index object, unless the listing has no times."""
        if self._first is None and found is not None and found.written is not None:
            self._first = (found.key, found.written)

    def _list_from(self, start: str) -> list[Listed]:
        """Return new index objects after a key, and look for the end marker."""
        new = []
        segments: list[tuple[str, int | None]] = []
        # Segments and the end marker follow the index in key order, so one listing covers all.
        for found in self.storage.listing("", start, measured=lambda key: key == END_FILE or key.startswith(SEGMENTS)):
            if found.key.startswith("index/"):
                self._note_first(found)
                new.append(found)
            elif found.key.startswith(SEGMENTS):
                segments.append((found.key, found.size))
            elif found.key == END_FILE:
                self._ended_at = found.written or time.time()
                # No files arrive after the uploader's delay has passed.
                self._all_listed = time.time() - self._ended_at > UPLOADS_SETTLE
            elif found.key > END_FILE:
                break
        self._listed = True
        self._new_in_segments = self._segments.follow(self.catalog, segments)
        return new

    def _start_after(self) -> str:
        """Return the key after which new index files may appear.

        Uploaders do not preserve order, so recent steps with missing workers are listed again.
        """
        settled = self.settled
        if settled < 0:
            return self._manifest.end() if self._trust == "root" else "index/"
        workers = len(self.catalog.workers())
        steps = self.catalog.steps()
        recent = steps[-LOOK_BACK:]
        for before, step in zip([recent[0] - 1, *recent], recent, strict=False):
            if step > settled or len(self.catalog.workers_at(step)) < workers:
                settled = min(settled, before)
                break
        # A backtick sorts after the underscore that follows the step, hence after all workers of that step.
        after = f"index/{settled // 1000:09d}/{settled:012d}`" if settled >= 0 else "index/"
        return max(after, self._manifest.end()) if self._trust == "root" else after

    def reread(self, step: int) -> bool:
        keys = list(self.storage.list(f"index/{step // 1000:09d}/{step:012d}_"))
        if keys:
            return self.catalog.load_many(list(self.storage.read_many(keys))) > 0
        return self._follow_segments() >= 0  # a segment may have been written again

    def deleted(self, step: int) -> int | None:
        return self._thinned.every(step)

    def end_age(self) -> float | None:
        if self._ended_at is not None:
            return max(0.0, time.time() - self._ended_at)
        # Before the first listing, the end matters only if collection files are missing.
        return self.storage.age(END_FILE) if not self._listed and self._collections_checked else None

    # ---------------------------------------------------------------------------------------------------- reading

    def getter(self) -> Getter:
        return self._get_and_prefetch

    def _get_and_prefetch(self, name: str, step: int, worker: str | None = None) -> NDArray[Any] | None:
        value = self._get(name, step, worker)
        before, self._last_request = self._last_request, (name, worker, step)
        if value is not None and before is not None and before[:2] == (name, worker) and before[2] != step:
            self._prefetch(name, step, worker, forward=before[2] < step)
        return value

    def _prefetch(self, name: str, step: int, worker: str | None, *, forward: bool) -> None:
        steps = self.catalog.steps_of(name)
        at = bisect_left(steps, step)
        following = steps[at + 1 : at + 1 + STEPS_AHEAD] if forward else steps[max(0, at - STEPS_AHEAD) : at][::-1]
        budget = self.storage.cache_limit // 4
        wanted = []
        for later in following:
            place = self.catalog.find(name, later, worker)
            if place is None:
                continue
            piece = self._widened(Range(place.event_key, place.offset, place.length), later)
            budget -= piece.length
            if budget < 0:
                break
            wanted.append(piece)
        self.storage.prefetch(wanted)

    def _record(self, place: Any) -> bytes:
        return self._read(Range(place.event_key, place.offset, place.length), place.step)

    def reading_once(self) -> Self:
        run = copy.copy(self)
        run.fetched = self.storage.direct(self.fetch)
        return run

    def fetch(self, key: str, offset: int, length: int) -> bytes:
        name = key.rpartition("/")[2]
        step = name.partition("_")[0]
        return self._read(Range(key, offset, length), int(step) if step.isdigit() else -1)

    def _read(self, wanted: Range, step: int) -> bytes:
        whole = self._widened(wanted, step)
        [data] = self.storage.read_ranges([whole])
        start = wanted.offset - whole.offset
        return bytes(data[start : start + wanted.length])

    def _widened(self, wanted: Range, step: int) -> Range:
        """Return the range of the whole step if it is small, else ``wanted``."""
        for key, begin, end in self.catalog.extents(step):
            if key == wanted.key and begin <= wanted.offset and wanted.offset + wanted.length <= end:
                return Range(key, begin, end - begin) if end - begin <= WHOLE_BELOW else wanted
        return wanted


class RemoteTrial(Trial):
    """A run in a bucket or behind a web server.

    Usually created by :func:`smdwidgets.create_trial`.

    ``trust="root"``: use the compacted index of the run, if there is one, without listing its index files. Other
    keyword arguments are the fields of a :class:`~smdwidgets.storage.Connection`.

    >>> trial = RemoteTrial("mnist", "s3://bucket/jobs/mnist")    # doctest: +SKIP
    >>> trial.requests                                        # doctest: +SKIP
    2 LIST, 101 GET, 1.5 MB received
    """

    def __init__(
        self,
        name: str | None,
        url: str,
        range_steps: tuple[int | None, int | None] | None = None,
        *,
        lazy: bool | None = None,
        wait: float | None = None,
        skip_bad_index: bool = False,
        unread: bool = False,
        trust: str = "listing",
        **connection: Any,
    ) -> None:
        reached = Connection(**connection)
        options = {"lazy": lazy, "wait": wait, "skip_bad_index": skip_bad_index, "trust": trust, **connection}
        self._opened_with = {"name": name, "url": url, "range_steps": range_steps, **options}
        first, end = checked_range(range_steps)
        storage = reached.storage(url)
        try:
            name = (storage.prefix or storage.bucket).rpartition("/")[2] if name is None else name
            self._run = run = RemoteRun(storage, first, end, lazy, as_trust(trust))
            super().__init__(
                run,
                name,
                range_steps,
                wait=wait,
                skip_bad_index=skip_bad_index,
                lazy=unread,
                reopening=functools.partial(_reopening, type(self), name, run, range_steps, options),
            )
        except BaseException:
            storage.close()
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        check_picklable(self._opened_with)
        return reopened, (type(self), self._opened_with)

    @property
    def requests(self) -> RequestCount:
        """Number of requests so far, and bytes received."""
        return self._run.storage.requests

    def cache_info(self) -> CacheInfo:
        """Return size and hit counts of the read cache."""
        return self._run.storage.cache_info()


def _reopening(
    cls: type[RemoteTrial],
    name: str,
    run: RemoteRun,
    range_steps: tuple[int | None, int | None] | None,
    options: dict[str, Any],
) -> Reopening:
    check_picklable(options)
    cache = min(options.get("cache_bytes", WORKER_CACHE), WORKER_CACHE)
    # The run may be in a folder below the URL that was given.
    return Reopening(cls, (name, run.path, range_steps), {**options, "unread": True, "cache_bytes": cache}, True)
