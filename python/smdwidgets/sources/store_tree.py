"""The objects below a prefix of a store as files that formats read by position."""

from __future__ import annotations

import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from smdwidgets._text import byte_size, shown
from smdwidgets.exceptions import RunFileMissing, RunIOError, TruncatedDataError
from smdwidgets.sources.tree import HEAD, Tree, Version
from smdwidgets.storage.protocol import LARGEST_WHOLE, Range
from smdwidgets.storage.remote import Listed, RemoteStorage

#: Bytes of a database that are copied at once.
_PIECE: Final = 8 << 20
#: What SQLite keeps beside a database that is being written.
_BESIDE: Final = "-wal"
#: Seconds after which the listing with which a tree was opened is made again.
_NEW: Final = 10.0
#: Databases of which a copy is kept.
_MOST_COPIES: Final = 4

#: Directories of the runs of hooks, and all other objects by key.
Listing = tuple[Iterable[str], Mapping[str, Listed]]


class StoreTree(Tree):
    """The objects below the prefix of a storage, or one object.

    Objects are read by ranges. Each :meth:`scan` lists them again.

    Args:
        storage: the storage, which stays open.
        look: returns the runs of hooks and the objects.
        listing: what ``look`` returned before, if it was called.
        only: the key of the object that is opened; empty: all.

    >>> StoreTree(storage, look).read("metrics.csv", 0, 9)                 # doctest: +SKIP
    b'step,loss'
    """

    def __init__(
        self, storage: RemoteStorage, look: Callable[[], Listing], listing: Listing | None = None, only: str = ""
    ) -> None:
        self.root = storage.url.rstrip("/")
        self.storage: RemoteStorage = storage
        self._only = only
        self._look = look
        self._listed: dict[str, Listed] = {}
        #: Copies that a query may be reading.
        self._held: dict[str, _Copy] = {}
        self._next: Listing | None = listing
        self._is_new = True
        self._begin()

    def scan(self) -> None:
        """List the objects again."""
        hooks, files = self._next or self._look()
        self._next = None
        self._scanned = time.monotonic()
        listed = dict(files)
        for key, one in self._listed.items():
            if listed.get(key) != one:
                self.storage.forget(key)
        self._listed = listed
        self.hooks = [] if self._only else sorted(hooks)
        self.keys = sorted(listed) if not self._only else [self._only] if self._only in listed else []
        self._sort_by_suffix()

    def changed(self, resolution: int) -> bool:
        """Return whether there may be new objects, which only a listing tells.

        The listing with which the tree was opened counts for the first call.
        """
        was_new, self._is_new = self._is_new, False
        return not (was_new and time.monotonic() - self._scanned < _NEW)

    def named(self, *suffixes: str) -> list[str]:
        """Return up to 10,000 keys with these suffixes, whose beginnings are read."""
        keys = super().named(*suffixes)
        self.read_heads(keys)
        return keys

    def path(self, key: str) -> str:
        """Return the address of an object."""
        return f"{self.root}/{key}"

    def size(self, key: str) -> int | None:
        """Return the size of an object; None if it is not listed."""
        about = self._about(key)
        return None if about is None else about.size

    def version(self, key: str) -> Version | None:
        """Return size, time and a hash of the ETag; None if it is not listed."""
        about = self._about(key)
        if about is None or about.size is None:
            return None
        return about.size, int((about.written or 0.0) * 1e9), hash(about.etag)

    def age(self, keys: Sequence[str]) -> float | None:
        """Return the seconds since the last write to these objects, or None."""
        written = [about.written for key in keys if (about := self._about(key)) is not None and about.written]
        return max(0.0, time.time() - max(written)) if written else None

    def _about(self, key: str) -> Listed | None:
        """Return a listed object.

        Listings of web servers may lack sizes, which are then asked for.
        """
        about = self._listed.get(key)
        if about is not None and about.size is None:
            head = self.storage.head(key)
            if head is None:
                return None
            about = self._listed[key] = Listed(key, *head)
        return about

    def read(self, key: str, offset: int, length: int) -> bytes:
        """Return up to ``length`` bytes; fewer if the object ends before.

        Raises :class:`~smdwidgets.exceptions.RunIOError`, with the address.
        """
        size = self.size(key)
        if size is None:
            raise RunFileMissing(f"{shown(self.path(key), 400)}: no such object")
        length = max(0, min(length, size - offset))
        if not length:
            return b""
        # Formats read headers piece by piece: one request brings the next ones, too.
        piece = Range(key, offset, min(max(length, HEAD), size - offset))
        try:
            [data] = self.storage.read_ranges([piece])
        except TruncatedDataError as error:
            raise RunIOError(f"{error}: the object was replaced while it was read") from error
        return bytes(data[:length])

    def fetch_ahead(self, ranges: Sequence[tuple[str, int, int]]) -> None:
        """Read parts of objects in parallel, as far as they fit half of the cache.

        What cannot be read raises an error when it is needed.
        """
        parts, left = [], self.storage.cache_limit // 2
        for key, offset, length in ranges:
            length = min(length, (self.size(key) or 0) - offset)
            left -= max(length, 0)
            if left < 0:
                break
            if length > 0:
                parts.append(Range(key, offset, length))
        try:
            self.storage.read_ranges(parts)
        except (RunIOError, TruncatedDataError):
            return

    def read_heads(self, keys: Iterable[str]) -> None:
        """Read the beginnings of objects in parallel."""
        self.fetch_ahead([(key, 0, HEAD) for key in keys])

    def local_file(self, key: str) -> str:
        """Return the path of a copy of an object.

        The runs in a database share it. It is deleted when another version or other databases were copied since.
        """
        version = self.version(key), self.version(key + _BESIDE)
        if version[0] is None:
            raise RunFileMissing(f"{shown(self.path(key), 400)}: no such object")
        identity = self.path(key), version
        with _lock:
            copy = _copies.pop(identity, None) or self._copy(key)
            _copies[identity] = copy
            while len(_copies) > _MOST_COPIES:
                del _copies[next(iter(_copies))]
        self._held[key] = copy
        return copy.path

    def _copy(self, key: str) -> _Copy:
        size = self.size(key) or 0
        if size > LARGEST_WHOLE:
            raise RunIOError(
                f"{shown(self.path(key), 400)}: a database of {byte_size(size)} is not read from a store, which takes a copy; "
                f"the limit is {byte_size(LARGEST_WHOLE)}: copy it to a local directory"
            )
        copy = _Copy()
        for one, target in ((key, copy.path), (key + _BESIDE, copy.path + _BESIDE)):
            with Path(target).open("wb") as file:
                for at in range(0, self.size(one) or 0, _PIECE):
                    file.write(self.read(one, at, _PIECE))
        return copy


class _Copy:
    """A file in a temporary directory, which is deleted with this object."""

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="smdwidgets-")
        self.path = str(Path(folder.name, "copy.db"))
        weakref.finalize(self, folder.cleanup)


#: Copies of databases by address and version, the last used ones last.
_copies: dict[tuple[object, ...], _Copy] = {}
_lock = threading.Lock()
