"""A store whose requests are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from smdwidgets.exceptions import TruncatedDataError
from smdwidgets.storage import LocalStorage, Range
from smdwidgets.storage.remote import Listed


class Store(LocalStorage):
    """A storage whose listing has sizes, and that counts the requests for files."""

    reads_at_once = 4
    requests = 0

    def listing(self, prefix: str) -> Iterator[Listed]:
        """Return the files with their sizes."""
        return (Listed(key, Path(self.url, key).stat().st_size, None) for key in self.list(prefix))

    def read(self, key: str) -> bytes:
        """Count a request."""
        self.requests += 1
        return super().read(key)

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        """Count a request, and refuse what is behind the end of a file."""
        self.requests += len(ranges)
        if any(each.offset + each.length > Path(self.url, each.key).stat().st_size for each in ranges):
            raise TruncatedDataError("range not satisfiable")
        return super().read_ranges(ranges)
