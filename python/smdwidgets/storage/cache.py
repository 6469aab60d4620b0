"""Read caches in memory and, optionally, on disk.

Objects of a run are written once, so a cached range is valid as long as the object's version is unchanged.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import zlib
from bisect import bisect_right, insort
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from smdwidgets._text import byte_size
from smdwidgets.storage.protocol import Range


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Hits, misses and size of the read cache.

    >>> CacheInfo(hits=90, misses=10, size=1_000_000, limit=256_000_000)
    90 % of 100 reads from the cache, 1.0 MB of 256.0 MB held
    """

    hits: int
    misses: int
    size: int
    limit: int

    def __repr__(self) -> str:
        reads = self.hits + self.misses
        share = f"{100 * self.hits / reads:.0f} %" if reads else "0 %"
        return f"{share} of {reads:,} reads from the cache, {byte_size(self.size)} of {byte_size(self.limit)} held"


class MemoryCache:
    """LRU cache of byte ranges, limited to ``limit`` bytes. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = max(0, limit)
        self._lock = threading.Lock()
        # (key, offset) -> bytes in order of use, and the sorted offsets by key, to find the piece that covers a range.
        self._pieces: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._offsets: dict[str, list[int]] = {}
        self._size = self._hits = self._misses = 0

    def get(self, wanted: Range) -> memoryview | None:
        """Return the bytes of a range if one cached piece covers it."""
        with self._lock:
            offsets = self._offsets.get(wanted.key, ())
            at = bisect_right(offsets, wanted.offset) - 1
            if at >= 0:
                place = (wanted.key, offsets[at])
                piece = self._pieces[place]
                start = wanted.offset - offsets[at]
                if start + wanted.length <= len(piece):
                    self._pieces.move_to_end(place)
                    self._hits += 1
                    return memoryview(piece)[start : start + wanted.length]
            self._misses += 1
            return None

    def contains(self, wanted: Range) -> bool:
        """Return whether a range is cached, without counting a hit or miss."""
        with self._lock:
            offsets = self._offsets.get(wanted.key, ())
            at = bisect_right(offsets, wanted.offset) - 1
            if at < 0:
                return False
            return wanted.offset + wanted.length <= offsets[at] + len(self._pieces[(wanted.key, offsets[at])])

    def put(self, key: str, offset: int, data: bytes) -> None:
        """Add a piece, unless it is larger than the cache."""
        with self._lock:
            if len(data) > self._limit:
                return
            place = (key, offset)
            old = self._pieces.pop(place, None)
            if old is None:
                insort(self._offsets.setdefault(key, []), offset)
            else:
                self._size -= len(old)
                data = max(data, old, key=len)
            self._pieces[place] = data
            self._size += len(data)
            while self._size > self._limit:
                (dropped, at), piece = self._pieces.popitem(last=False)
                self._size -= len(piece)
                self._remove_offset(dropped, at)

    def drop(self, key: str) -> None:
        """Remove an object that was overwritten."""
        with self._lock:
            for at in self._offsets.pop(key, ()):
                self._size -= len(self._pieces.pop((key, at)))

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._pieces.clear()
            self._offsets.clear()
            self._size = 0

    def info(self) -> CacheInfo:
        """Return the current hits, misses and size."""
        with self._lock:
            return CacheInfo(self._hits, self._misses, self._size, self._limit)

    def _remove_offset(self, key: str, at: int) -> None:
        offsets = self._offsets[key]
        offsets.remove(at)
        if not offsets:
            del self._offsets[key]


class DiskCache:
    """Cache of byte ranges in a directory, which processes may share.

    Files may be deleted at any time. They are written atomically and start with a checksum, so damaged files are
    ignored. Each use updates the file's mtime; the least recently used files are deleted when the size exceeds
    ``limit``.
    """

    _HEAD = 4
    _PRUNE_EVERY = 64 << 20

    def __init__(self, directory: str | os.PathLike[str], limit: int) -> None:
        self._directory = Path(directory).expanduser()
        self._limit = limit
        self._lock = threading.Lock()
        self._since_pruned = 0

    def get(self, identity: str, wanted: Range) -> bytes | None:
        """Return the piece that was stored with exactly this range, or None."""
        path = self._path(identity, wanted)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        body = content[self._HEAD :]
        if len(body) != wanted.length or content[: self._HEAD] != zlib.crc32(body).to_bytes(self._HEAD, "little"):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def put(self, identity: str, wanted: Range, data: bytes) -> None:
        """Store a piece. Write errors are ignored."""
        path = self._path(identity, wanted)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
                try:
                    file.write(zlib.crc32(data).to_bytes(self._HEAD, "little"))
                    file.write(data)
                except BaseException:
                    file.close()
                    Path(file.name).unlink()
                    raise
            os.replace(file.name, path)
        except OSError:
            return
        with self._lock:
            self._since_pruned += len(data)
            if self._since_pruned < self._PRUNE_EVERY:
                return
            self._since_pruned = 0
        self._prune()

    def _path(self, identity: str, wanted: Range) -> Path:
        # Keys are untrusted, so file names contain only their digest.
        name = hashlib.sha256(
            f"{identity}\0{wanted.key}\0{wanted.offset}\0{wanted.length}".encode("utf-8", "surrogatepass")
        )
        digest = name.hexdigest()
        return self._directory / digest[:2] / digest[2:]

    def _prune(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._directory.glob("??/*"):
            with contextlib.suppress(OSError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        size = sum(bytes_ for _, bytes_, _ in found)
        for _, bytes_, path in sorted(found, key=lambda piece: piece[0]):
            if size <= self._limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            size -= bytes_
