"""The interface to the objects of one bucket, which several clients implement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

#: Key, size, time of the last write since the epoch, and ETag. A size of -1 and a time of 0 are unknown.
Entry = tuple[str, int, float, str]


class Objects(Protocol):
    """The objects of one bucket by whole key.

    All methods are thread-safe and raise ``_core.StoreError``.
    """

    def pages(self, prefix: str, start_after: str = "") -> Iterator[list[Entry]]:
        """Yield the objects whose keys begin with ``prefix``, in the order of keys."""

    def folder(self, folder: str) -> tuple[Sequence[str], Sequence[Entry]]:
        """Return the folders and the objects that are directly in a folder.

        Its name ends with a slash, unless it is empty. Those of the folders in it do not.
        """

    def head(self, key: str) -> tuple[int, float, str] | None:
        """Return size, time of the last write and ETag; None if there is no object."""

    def get(self, key: str, limit: int) -> tuple[bytes, str]:
        """Return the content of an object of up to ``limit`` bytes, and its ETag."""

    def get_range(self, key: str, offset: int, length: int, etag: str = "") -> tuple[bytes, str]:
        """Return a part of an object, shorter if the object ends, and its ETag."""

    def get_many(self, keys: Sequence[str], limit: int) -> Iterator[tuple[str, bytes | Exception]]:
        """Yield the contents of objects in order of arrival."""

    def get_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> Sequence[tuple[bytes, str] | Exception]:
        """Return parts of objects with ETags; close ones are read together."""

    def put(self, key: str, content: bytes, if_match: str | None = None) -> str:
        """Write an object and return its ETag.

        With an ETag as ``if_match``, only over the object that has it; with ``""``, only if there is none.
        """

    def put_file(self, key: str, path: str) -> str:
        """Write an object from a file, a large one in parts."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; ignore missing ones."""

    def requests(self) -> tuple[int, ...]:
        """Return the counts in the order of ``RequestCount``."""

    def close(self) -> None:
        """End all operations, and close connections."""
