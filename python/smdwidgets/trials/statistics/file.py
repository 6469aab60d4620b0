"""Statistics files: the rows of a run, or of a cache directory, as columns."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.exceptions import RunFileMissing, SMDebugError
from smdwidgets.storage.protocol import Storage, beginning, reads_at_once
from smdwidgets.trials.tables import Table

logger = logging.getLogger("smdwidgets.trials")

#: The directory of a run that has the statistics.
DIRECTORY = "statistics"
#: New rows after which a pyramid is opened again, because it may have grown.
_REOPENED = 2_000_000
#: File, offset and reason in an error of the core.
_PLACE = re.compile(r"(.*), byte (\d+): (.*)", re.DOTALL)


class StatisticsFile:
    """The statistics files of a run, read incrementally.

    Args:
        storage: files of the run.
        files: event files of a local run; None: statistics are read through ``storage``.

    >>> from smdwidgets.storage import LocalStorage
    >>> file = StatisticsFile(LocalStorage("."))
    >>> file.refresh(), file.names()
    (False, [])
    """

    def __init__(self, storage: Storage, files: _core.Files | None = None) -> None:
        self._storage = storage
        self._source = _core.Fetched(self._fetch, reads_at_once(storage)) if files is None else files
        self._reader = _core.StatisticsReader()
        #: Pyramids, with the number of rows when they were opened.
        self._pyramids: dict[str, tuple[_core.Pyramid, int]] = {}
        #: The keys of the statistics, as they were listed last.
        self._keys: frozenset[str] = frozenset()
        #: The names of the tensors; None: they are to be read.
        self._names: list[str] | None = None

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        names, self._names = self._names, None  # also if this fails
        listing = getattr(self._storage, "listing", None)  # only that of a store has sizes
        if listing is None:
            self._keys = frozenset(self._storage.list(f"{DIRECTORY}/"))
            has_more = self._reader.refresh(self._source, sorted(self._keys))
        else:
            sizes = {listed.key: listed.size for listed in listing(f"{DIRECTORY}/")}
            self._keys = frozenset(sizes)
            has_more = self._reader.refresh(self._source, [*sizes], [*sizes.values()])
        if not has_more:
            self._names = names
        return has_more

    def _fetch(self, key: str, offset: int, length: int) -> bytes:
        try:
            return beginning(self._storage, key, length, offset)
        except RunFileMissing:
            return b""

    def names(self) -> list[str]:
        """Return the names of the tensors, in the order of the file."""
        names = self._names
        if names is None:
            names = self._names = self._read_names()
        return [*names]

    def _read_names(self) -> list[str]:
        # Each segment has all names, a pyramid has them once. That of a local run is opened in a moment, and is kept
        # only if it was in use, as it takes memory.
        in_use = {**self._pyramids}
        listed = [worker for worker in self.workers() if pyramid_key(worker) in self._keys]
        pyramids = {worker: pyramid for worker in listed if (pyramid := self.pyramid(worker)) is not None}
        names = dict.fromkeys(name for pyramid in pyramids.values() for name in pyramid.names())
        covered = [(worker, pyramid.covered, pyramid.ends[1]) for worker, pyramid in pyramids.items()]
        names |= dict.fromkeys(name for name, *_ in self._reader.names(self._source, covered))
        if reads_at_once(self._storage) is None:
            self._pyramids = in_use
        return [*names]

    def workers(self) -> list[str]:
        """Return the workers, by their names in files."""
        return self._reader.workers()

    def read(
        self,
        names: Sequence[str] | None = None,
        steps: Sequence[int] | None = None,
        workers: Sequence[str] | None = None,
        mode: int | None = None,
    ) -> Table:
        """Return rows as columns, sorted by name in the order of `names`, step and worker."""
        files = None if workers is None else [_core.worker_file_name(worker) for worker in workers]
        return self._reader.read(self._source, names, steps, files, mode)

    def scan(self, after: int, progress: Callable[[int, int], object]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the steps with rows, and those at which values are first lost.

        At the latter, values of some tensor are not finite for the first time.

        Memory does not grow with the rows.

        Args:
            after: only later steps.
            progress: called with the number of rows read and their total; what it raises ends the work.
        """
        return self._reader.scan(self._source, after, progress)

    def pyramid(self, worker: str) -> _core.Pyramid | None:
        """Return the pyramid of a worker's statistics.

        None without one, or if it is damaged or of other statistics.
        """
        rows = self.size()[1]
        pyramid, before = self._pyramids.get(worker, (None, 0))
        is_other = pyramid is not None and rows > before and not self.covers(pyramid, worker)
        if pyramid is None or is_other or rows - before > _REOPENED:
            try:
                if not self._storage.exists(pyramid_key(worker)):
                    return None
                pyramid = _core.Pyramid(self._source, worker)
            except SMDebugError:
                logger.warning("%s of %s is not used", pyramid_key(worker), self._storage.url, exc_info=True)
                self._keys -= {pyramid_key(worker)}  # until they are listed again
                return None
            self._pyramids[worker] = pyramid, rows
        return pyramid if self.covers(pyramid, worker) else None

    def covers(self, pyramid: _core.Pyramid, worker: str) -> bool:
        """Return whether a pyramid was made of these statistics.

        They may have later steps.
        """
        return pyramid.belongs_to(self._reader, worker)

    def has_current_pyramid(self, worker: str) -> bool:
        """Return whether a worker's pyramid has all of its statistics."""
        pyramid = self.pyramid(worker)
        return pyramid is not None and pyramid.is_current(self._reader, worker)

    def write_pyramid(
        self, worker: str, path: str | os.PathLike[str], whole: Sequence[str], progress: Callable[[int, int], object]
    ) -> None:
        """Write the pyramid of a worker to a path, or continue the one there.

        Args:
            worker: a worker, by its name in files.
            path: a file; one that has no earlier rows of these statistics is replaced.
            whole: tensors of which all records are kept, such as losses.
            progress: called with the number of rows read and their total.

        Raises:
            ValueError: steps were written again in a way that needs the statistics, or another process writes the file.
        """
        _core.Pyramid.write(self._source, self._reader, worker, os.fspath(path), list(whole), progress)
        self._pyramids.pop(worker, None)

    def segment_index(self, worker: str) -> bytes | None:
        """Return the index of a worker's segments; None of a single segment."""
        return self._reader.segment_index(worker)

    def faults(self, ended: bool) -> list[tuple[str, int | None, str]]:
        """Check all batches; return file, offset and reason of each fault.

        Bytes after the last complete batch are a fault if the segment cannot grow.
        """
        faults: list[tuple[str, int | None, str]] = [(key, None, reason) for key, reason in self._reader.problems()]
        for key, count, superseded in self._reader.dropped(self._source):
            if ended or superseded:
                faults.append((key, None, f"{count} bytes dropped: the process that wrote them did not finish"))
        for error in self._reader.verify(self._source):
            at = _PLACE.fullmatch(str(error))
            faults.append((at[1], int(at[2]), at[3]) if at else (DIRECTORY, None, str(error)))
        return faults

    def size(self) -> tuple[int, int, int]:
        """Return the numbers of batches, rows and bytes."""
        return self._reader.size()


def pyramid_key(worker: str) -> str:
    """Return the key of a worker's pyramid.

    >>> pyramid_key("worker_0")
    'statistics/worker_0/survey.pyramid'
    """
    return f"{DIRECTORY}/{worker}/survey.pyramid"


def segment_index_key(worker: str) -> str:
    """Return the key of the index of a worker's segments.

    >>> segment_index_key("worker_0")
    'statistics/worker_0/segments.index'
    """
    return f"{DIRECTORY}/{worker}/segments.index"
