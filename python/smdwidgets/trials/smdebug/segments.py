"""Segments of a run in a store: many steps in two files. Their index is read.

In a directory, the core reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from smdwidgets import _core
from smdwidgets.storage.protocol import Storage, beginning

__all__ = ["SEGMENTS", "SegmentFiles", "newest"]

#: Folder of the segments of a run.
SEGMENTS: Final = "segments/"
_INDEX: Final = re.compile(r"segments/([^/]+)/(\d{6,})(?:-(\d+))?\.index")
#: Bytes of an index that are read at once.
_PIECE: Final = 16 << 20


class SegmentFiles:
    """Reads what was appended to the indexes of segments since it was asked last."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._read: dict[str, int] = {}

    def follow(self, catalog: _core.Catalog, found: Iterable[tuple[str, int | None]]) -> int:
        """Add steps to a catalog, and return how many are new.

        ``found``: the files of segments, and their sizes if known.
        """
        sizes = dict(found)
        new = 0
        for key in newest(sizes):
            size = sizes[key]
            while size is None or self._read.get(key, 0) < size:
                start = self._read.get(key, 0)
                piece = beginning(self._storage, key, _PIECE, start)
                added, whole = catalog.load_segment(key, piece)
                new += added
                if not whole:
                    break
                self._read[key] = start + whole
        return new


def newest(keys: Iterable[str]) -> list[str]:
    """Return the indexes of segments, each in the version that was written last.

    >>> newest(["segments/w/000000.index", "segments/w/000000-1.index", "segments/w/000000-1.tfevents"])
    ['segments/w/000000-1.index']
    """
    best: dict[tuple[int, str], tuple[int, str]] = {}
    for key in keys:
        if found := _INDEX.fullmatch(key):
            which = int(found[2]), found[1]
            best[which] = max(best.get(which, (-1, "")), (int(found[3] or 0), key))
    return [key for _, (_, key) in sorted(best.items())]
