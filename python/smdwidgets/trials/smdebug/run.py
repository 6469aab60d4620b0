"""Runs in smdebug's format: one index file per step and worker.

Subclasses implement access to the files.
"""
# Methods are described in `Run`.
# ruff: noqa: D102

from __future__ import annotations

import copy
import itertools
import re
import threading
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.checks.record import CheckRecords
from smdwidgets.config.collection_manager import COLLECTIONS_PREFIX, CollectionManager
from smdwidgets.exceptions import RunFileMissing, RunIOError
from smdwidgets.run_end import END_FILE, LARGEST_END_FILE, RunEnd
from smdwidgets.signals.record import Signals
from smdwidgets.storage.protocol import Range, Storage, beginning, reads_at_once
from smdwidgets.trials.checks import read_checks
from smdwidgets.trials.incidents import IncidentFiles, read_incidents
from smdwidgets.trials.run import SWEEP, CollectionFiles, Getter, Reductions, Row, Run, Selection, SweepOptions, Values
from smdwidgets.trials.shards import Part, Sharded
from smdwidgets.trials.signals import SignalFiles
from smdwidgets.trials.smdebug.assembly import COVERAGE, assembled_reductions, assembled_values
from smdwidgets.trials.smdebug.manifest import Manifest, Trust
from smdwidgets.trials.smdebug.segments import SEGMENTS, SegmentFiles
from smdwidgets.trials.statistics.file import StatisticsFile
from smdwidgets.trials.statistics.reductions import SAVED, from_saved_reductions
from smdwidgets.trials.tables import Table, joined

#: Runs with more index files than this are opened lazily: queries read the index files that they need.
LAZY_ABOVE = 2_000

#: Seconds between two looks for incidents of a run that is read through a storage.
_INCIDENTS_EVERY = 10.0

_COLLECTION_FILE = re.compile(r"(?P<worker>.+?)_?collections\.(json|ts)")


class SmdebugRun(Run):
    """A run in smdebug's format."""

    catalog: _core.Catalog

    def __init__(
        self,
        storage: Storage,
        first_step: int | None = None,
        end_step: int | None = None,
        lazy: bool | None = None,
        trust: Trust = "listing",
    ) -> None:
        self.path = storage.url
        self.storage = storage
        self._range = first_step, end_step
        self._lazy = lazy
        self._trust = trust
        self._loading = threading.Lock()
        self.start_over()

    def start_over(self) -> None:
        self.catalog = _core.Catalog(*self._range)
        self.index = self.catalog
        self.settled = -1
        self.partly_read = False
        self._collections_read: object = None
        self._incidents = IncidentFiles([], [])
        self._incidents_read: object = None
        self._checks = CheckRecords()
        self._checks_read: object = None
        self._signals = SignalFiles(self.storage)
        self._signals_read: object = None
        #: The workers that have written a collection file.
        self.known_workers: frozenset[str] = frozenset()
        self._statistics: StatisticsFile | None = None
        self._segments = SegmentFiles(self.storage)
        #: The compacted index.
        self._manifest = Manifest(self.storage)

    def reading(self, catalog: _core.Catalog, workers: frozenset[str]) -> Self:
        """Return a run that reads the same files from another catalog of them."""
        run = copy.copy(self)
        run.catalog = run.index = catalog
        run.known_workers = workers
        run.partly_read = bool(catalog.unread())
        return run

    def reading_once(self) -> Self:
        """Return the run for a sweep on a worker, which needs no cache."""
        return self

    # ------------------------------------------------------------------------------------------------ file access

    @abstractmethod
    def _list(self) -> int:
        """Add new index files to the catalog and return their number."""

    @abstractmethod
    def _load(self, steps: Sequence[int] | None) -> None:
        """Read the index files of these steps (None: all) that are not read yet."""

    @abstractmethod
    def _source(self) -> Any:
        """Return the object from which `_core.sweep` reads event files."""

    # ------------------------------------------------------------------------------------------------- refreshing

    def refresh(self) -> None:
        new = self._list()
        if self._lazy or self.partly_read or (self._lazy is None and new > LAZY_ABOVE):
            self.partly_read = self.partly_read or new > 0
            # Read a few new steps immediately, since they are likely to be queried next.
            if self._lazy is None and 0 < new <= LAZY_ABOVE:
                self._load(self._newest(new))
        elif new or self.catalog.problems() or self.catalog.unread():
            # Unreadable files are read again after they change. A step in a segment may have got an index file.
            self._load(None)

    def _newest(self, count: int) -> list[int]:
        return self.catalog.steps()[-count:]

    def load(self, steps: Sequence[int] | None = None) -> None:
        if not self.partly_read:
            return
        with self._loading:
            if steps is not None:
                self._load(steps)
            elif self.partly_read:
                self._load(None)
                self.partly_read = False

    def incidents(self) -> IncidentFiles:
        version = self._incidents_version()
        if version != self._incidents_read:
            found = read_incidents(self.storage)
            written = found.steps - self._incidents.steps
            self._incidents, self._incidents_read = found, version
            if written:
                # The flight recorder writes steps that are older than steps already listed, or adds tensors to them.
                self.settled = -1
                self.refresh()
                for step in sorted(written):
                    self.reread(step)
        return self._incidents

    def checks(self) -> CheckRecords:
        return read_checks(self.storage)

    def signals(self) -> Signals:
        return self._signals.update()

    @abstractmethod
    def _incidents_version(self) -> object:
        """Return a value that changes with the records; None before the first one."""

    def has_file(self, key: str) -> bool:
        return self.file_there(key)

    def declares_workers(self) -> bool:
        return True

    def end_age(self) -> float | None:
        return self.storage.age(END_FILE)

    def end(self) -> RunEnd | None:
        try:
            content = beginning(self.storage, END_FILE, LARGEST_END_FILE)
        except FileNotFoundError:
            return None
        except RunIOError:
            return None if self.end_age() is None else RunEnd()
        return RunEnd.parse(content)

    def collections(self) -> CollectionFiles | None:
        version = self._collections_version()
        if version is not None and version == self._collections_read:
            return None
        keys = self._collection_keys()
        found = merge_collections(self.storage, keys)
        if found is not None:
            self.known_workers = found.workers
        self._collections_read = version if found is not None and found.files == len(keys) else None
        return found

    def _collections_version(self) -> object:
        """Return a value that changes with the collection files, or None if unknown."""
        return self._collection_keys()

    def _collection_keys(self) -> list[str]:
        return collection_files(self.storage.list(COLLECTIONS_PREFIX + "/"))

    # ---------------------------------------------------------------------------------------------------- reading

    def has(self, name: str) -> bool:
        if self.catalog.has(name):
            return True
        if self.partly_read:
            # Most tensors are saved at most steps, so try the newest step before reading all of them.
            self.load(self._newest(1))
            if not self.catalog.has(name):
                self.load(None)
        return self.catalog.has(name)

    def getter(self) -> Getter:
        return self._get

    def _get(self, name: str, step: int, worker: str | None = None) -> NDArray[Any] | None:
        place = self.catalog.find(name, step, worker)
        if place is None and self.partly_read:
            self.load([step])
            place = self.catalog.find(name, step, worker)
        if worker is None and self.is_sharded(name, step):
            return None
        return None if place is None else self.value(place)

    def is_sharded(self, name: str, step: int) -> bool:
        if self.partly_read:
            self.load([step])
        return self.catalog.has_shards and bool(self.catalog.shards(name, step))

    def sharded(self, name: str, step: int) -> Sharded | None:
        if self.partly_read:
            self.load([step])
        parts = self.catalog.shards(name, step) if self.catalog.has_shards else []
        if not parts:
            return None
        workers = sorted(self.known_workers.union(self.catalog.workers()))
        return Sharded(name, step, itertools.starmap(Part, parts), workers)

    def value(self, place: _core.Entry) -> NDArray[Any]:
        return place.decode(self._record(place))

    def head(self, place: _core.Entry) -> tuple[str, tuple[int, ...]]:
        [head], errors = _core.heads(self.catalog, self._source(), [(place.name, place.step, place.worker)])
        if errors:
            raise errors[0][1]
        assert head is not None  # the place is that of a value
        return head

    def part(self, place: _core.Entry, start: int, stop: int, verify: bool) -> NDArray[Any] | None:
        return _core.part(self._source(), place, start, stop, verify)

    def _record(self, place: _core.Entry) -> bytes:
        [data] = self.storage.read_ranges([Range(place.event_key, place.offset, place.length)])
        return bytes(data)

    def reductions(self, selection: Selection, wanted: Reductions, options: SweepOptions = SWEEP) -> Table:
        self.load(selection.steps)
        kinds, counts, coverage = wanted
        swept = _core.sweep(self.catalog, self._source(), *selection, kinds, counts=counts, **options._asdict())
        if coverage:
            swept[COVERAGE] = np.ones(len(swept["name"]))
        return assembled_reductions(self, swept) if selection.workers is None and self.catalog.has_shards else swept

    def statistics(self, selection: Selection, options: SweepOptions = SWEEP) -> Table:
        self.load(selection.steps)
        table = _core.sweep_statistics(self.catalog, self._source(), *selection, **options._asdict())
        table["flags"] = np.zeros(len(table["step"]), np.uint16)
        with_values = set(table["name"].tolist())
        others = [name for name in selection.names if name not in with_values]
        if not others:
            return table
        stored = self.reductions(selection._replace(names=others), Reductions(SAVED), options)
        return joined([table, from_saved_reductions(stored)])

    def statistics_file(self) -> StatisticsFile | None:
        if self._statistics is None:
            source = self._source()
            self._statistics = StatisticsFile(self.storage, source if isinstance(source, _core.Files) else None)
        self._statistics.refresh()
        return self._statistics

    def values(self, rows: Sequence[Row], options: SweepOptions = SWEEP) -> Values:
        self.load(sorted({step for _, step, _ in rows}))

        def read(rows: Sequence[Row]) -> Values:
            return _core.values(self.catalog, self._source(), rows, **options._asdict())

        return assembled_values(self, rows, read) if self.catalog.has_shards else read(rows)

    def verify(self, steps: Sequence[int] | None = None, options: SweepOptions = SWEEP) -> dict[str, Any]:
        return _core.verify(self.catalog, self._source(), steps, **options._asdict())


class StorageRun(SmdebugRun):
    """A run accessed only through the storage protocol.

    >>> from smdwidgets.storage import LocalStorage
    >>> run = StorageRun(LocalStorage("."))
    >>> run.refresh()
    >>> run.index.steps()
    []
    """

    def __init__(self, storage: Storage, *args: Any, **kwargs: Any) -> None:
        super().__init__(storage, *args, **kwargs)
        self.fetched = _core.Fetched(self.fetch, reads_at_once(storage))

    def reading(self, catalog: _core.Catalog, workers: frozenset[str]) -> Self:
        run = super().reading(catalog, workers)
        run.fetched = _core.Fetched(run.fetch, reads_at_once(run.storage))
        return run

    def check(self) -> None:
        next(self.storage.list(""), None)

    def refresh(self) -> None:
        if self.settled < 0:  # all steps are listed again, as at the end of the run: the records, too
            self._incidents_read = self._checks_read = self._signals_read = None
        super().refresh()

    def _incidents_version(self) -> object:
        # Listing the records costs a request, and nothing tells whether there are new ones.
        return int(time.monotonic() // _INCIDENTS_EVERY)

    def checks(self) -> CheckRecords:
        version = self._incidents_version()
        if version != self._checks_read:
            self._checks, self._checks_read = super().checks(), version
        return self._checks

    def signals(self) -> Signals:
        version = self._incidents_version()
        if version != self._signals_read:
            self._signals_read = version
            return super().signals()
        return self._signals.latest

    def _list(self) -> int:
        settled = self.settled
        # A backtick sorts after the underscore that follows the step, hence after all workers of that step.
        after = f"index/{settled // 1000:09d}/{settled:012d}`" if settled >= 0 else ""
        new = self.catalog.add_keys(list(self.storage.list("index/", after)))
        return new + self._follow_segments()

    def _follow_segments(self) -> int:
        return self._segments.follow(self.catalog, ((key, None) for key in self.storage.list(SEGMENTS)))

    def _load(self, steps: Sequence[int] | None) -> None:
        unread = self.catalog.unread(steps)
        if unread and self._manifest.usable:
            self._manifest.load(self.catalog, unread)
            unread = self.catalog.unread(steps)
        if unread:
            self.catalog.load_many(list(self.storage.read_many(unread)))

    def _source(self) -> _core.Fetched:
        return self.fetched

    def fetch(self, key: str, offset: int, length: int) -> bytes:
        """Return a range of a file."""
        [data] = self.storage.read_ranges([Range(key, offset, length)])
        return bytes(data)


def _worker_of(key: str) -> str | None:
    """Return the worker that wrote a collection file, or None for other files.

    >>> _worker_of("collections/000000000/worker_1_collections.json")
    'worker_1'
    """
    match = _COLLECTION_FILE.fullmatch(key.rpartition("/")[2])
    if match is None:
        return "worker_0" if key.endswith("/collections.json") else None
    worker = match["worker"]
    # Restore the slashes and colons of a TensorFlow device such as `/job:worker/replica:0`.
    return worker.replace("_", "/").replace("-", ":") if worker.startswith("_") else worker


def collection_files(keys: Iterable[str]) -> list[str]:
    """Return the keys that are collection files.

    >>> collection_files(["collections/000000000/worker_0_collections.json", "collections/notes.json"])
    ['collections/000000000/worker_0_collections.json']
    """
    return [key for key in keys if _worker_of(key) is not None]


def merge_collections(storage: Storage, keys: Sequence[str]) -> CollectionFiles | None:
    """Merge collection files, most of which are identical; skip deleted files."""
    manager: CollectionManager | None = None
    workers: set[str] = set()
    contents: set[bytes] = set()
    for key in keys:
        try:
            content = storage.read(key)
        except RunFileMissing:
            continue
        except RunIOError as error:
            raise RunIOError(f"cannot read collection file {shown(key)}: {error}") from error
        workers.add(_worker_of(key) or "worker_0")
        if content in contents:
            continue
        contents.add(content)
        read = CollectionManager.load_from_string(content, source=key)
        if manager is None:
            manager = read
        else:
            manager.merge(read)
    return None if manager is None else CollectionFiles(manager, frozenset(workers), len(workers))
