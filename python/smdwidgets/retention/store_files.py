"""The objects of a run in a store, as they are thinned.

An object cannot be cut off or extended. The small values of a step are therefore copied to another event object, its
index object is replaced by one that names the copy, and the old event object is deleted: a reader finds either the old
or the new objects at any time. The log of thinned steps is written before. An index object is replaced only if it is
the one that was read for the plan; otherwise the training goes on, and the run is left from there on.

What an interrupted deletion leaves are event objects of logged steps that no index object names.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final

from smdwidgets._text import shown
from smdwidgets.exceptions import RunFileMissing, RunIOError
from smdwidgets.hooks.writing.capture_log import CAPTURE, THINNED_FILE
from smdwidgets.hooks.writing.compacted import forget_compacted_in
from smdwidgets.hooks.writing.thinning import COPIES, reduced
from smdwidgets.retention.run_files import Left, damaged, without_index
from smdwidgets.retention.saved_steps import SMALL, SavedStep, lengths_in, saved_step
from smdwidgets.run_end import END_FILE
from smdwidgets.storage.conditional import put_if
from smdwidgets.storage.connection import Connection
from smdwidgets.storage.protocol import Range
from smdwidgets.trials.smdebug.thinned import ThinnedSteps

#: Steps whose event objects are deleted with one request, and whose lines are added to the log with one.
_BATCH: Final = 64
#: Attempts to write the log while others do.
_ATTEMPTS: Final = 10


class RunChanged(RunIOError):
    """Another program writes the run that is thinned."""


class StoreFiles:
    """The objects of a run in a store.

    Its methods are those of :class:`~.run_files.RunFiles`.

    Args:
        address: the address of the run.
        connection: the fields of :class:`~smdwidgets.storage.Connection`.
    """

    def __init__(self, address: str, connection: Mapping[str, Any]) -> None:
        self._storage = Connection(**{**connection, "cache_bytes": 0, "cache_dir": None}).storage(address)
        self._index: dict[str, str] = {}
        self._events: dict[str, int] = {}
        self._end: tuple[int, float, str] | None = None

    def size(self) -> int:
        """Return the bytes of all objects."""
        return sum(one.size or 0 for one in self._storage.listing(""))

    def version(self) -> object:
        """Return the end marker and the versions of all index objects."""
        self._end = self._storage.head(END_FILE)
        digest = hashlib.sha256()
        for one in self._storage.listing("index/"):
            digest.update(f"{one.key} {one.size} {one.etag}\n".encode())
        return self._end, digest.digest()

    def steps(self) -> list[SavedStep]:
        """Return the saved steps in order."""
        self._index, self._events = {}, {}
        for one in self._storage.listing(""):
            if one.key.startswith("index/"):
                self._index[one.key] = one.etag
            elif one.key.startswith("events/"):
                self._events[one.key] = one.size or 0
        contents = self._storage.read_many(self._index)
        steps = (saved_step(key, content, self._index[key]) for key, content in contents)
        return sorted(step for step in steps if step is not None)

    def thinned(self) -> frozenset[tuple[int, str]]:
        """Return the steps that were thinned."""
        return ThinnedSteps(self._storage).by_worker()

    def left(self, steps: Sequence[SavedStep]) -> list[Left]:
        """Return objects that were not deleted."""
        thinned = self.thinned() - damaged(self._index, steps)
        if not thinned:
            return []
        empty = [Left(step.key, 0, 0) for step in steps if not step.end and (step.step, step.worker) in thinned]
        return without_index(self._events, thinned, steps) + empty

    def thin(self, steps: Sequence[SavedStep], left: Sequence[Left], every: int) -> Iterator[int]:
        """Delete the large values of steps, many at the same time.

        Raises :class:`RunChanged` if another program writes the run.
        """
        forget_compacted_in(self._storage)
        self._storage.delete([one.key for one in left])
        pool = ThreadPoolExecutor(self._storage.concurrency, thread_name_prefix="smdwidgets-thin")
        try:
            for start in range(0, len(steps), _BATCH):
                batch = steps[start : start + _BATCH]
                for worker, own in groupby(sorted(batch, key=lambda step: step.worker), key=lambda step: step.worker):
                    self._log(worker, list(own), every)
                unnamed = [key for keys in pool.map(self._replace, batch) for key in keys]
                # A hook that continues or overwrites a run deletes its end marker first.
                if self._storage.head(END_FILE) != self._end:
                    raise self._changed(END_FILE)
                self._storage.delete(unnamed)
                yield start + len(batch)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        forget_compacted_in(self._storage)

    def close(self) -> None:
        """Close connections."""
        self._storage.close()

    def _replace(self, step: SavedStep) -> list[str]:
        """Replace the index object of a step; return the objects to delete."""
        try:
            content = self._storage.read(step.key)
        except RunFileMissing:
            raise self._changed(step.key) from None
        keep = {name for name, length in lengths_in(content) if length <= SMALL}
        copy = posixpath.join(posixpath.dirname(step.events), COPIES, posixpath.basename(step.events))
        index, ranges = reduced(json.loads(content), keep, copy)
        if ranges:
            places = [Range(step.events, offset, length) for offset, length in ranges]
            self._storage.put(copy, b"".join(map(bytes, self._storage.read_ranges(places))))
        if not put_if(self._storage, step.key, json.dumps(index).encode(), step.etag or None):
            raise self._changed(step.key)
        return [step.events] if ranges else [step.events, step.key]

    def _log(self, worker: str, steps: Sequence[SavedStep], every: int) -> None:
        """Append lines to the log of a worker, which is replaced as a whole."""
        key = f"{CAPTURE}/{worker}/{THINNED_FILE}"
        lines = "".join(_line(step, every) for step in steps).encode("ascii")
        for _ in range(_ATTEMPTS):
            about = self._storage.head(key)
            old = b"" if about is None else self._storage.read(key)
            if old and not old.endswith(b"\n"):
                old += b"\n"
            if put_if(self._storage, key, old + lines, "" if about is None else about[2] or None):
                return
        raise self._changed(key)

    def _changed(self, key: str) -> RunChanged:
        return RunChanged(f"{shown(f'{self._storage.url}/{key}', 400)}: another program writes this run")


def _line(step: SavedStep, every: int) -> str:
    about = {"step": step.step, "mode": step.mode, "mode_step": step.mode_step, "every": every}
    return json.dumps({"time": round(time.time(), 3), **about}) + "\n"
