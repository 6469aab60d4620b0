"""Storage: the interface to the files of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from smdwidgets.exceptions import RunIOError, TruncatedDataError

#: Maximum bytes of a file that is read whole, as in the Rust core.
LARGEST_WHOLE = 1 << 30
#: Prefix of the files of a run that only this package reads.
OWN_PREFIX = "_smdwidgets/"
TOO_LARGE = "the file is larger than 1 GiB"


class Range(NamedTuple):
    """A byte range of one file."""

    key: str
    offset: int
    length: int


@runtime_checkable
class Storage(Protocol):
    """The files of one run.

    A key is a path relative to the run, with slashes: ``index/000000000/000000000005_worker_0.json``. All methods are
    thread-safe. A missing file raises :class:`~smdwidgets.exceptions.RunFileMissing`, a FileNotFoundError; other
    failures raise :class:`~smdwidgets.exceptions.RunIOError` with the key.
    """

    @property
    def url(self) -> str:
        """The directory or URL."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Return sorted keys that start with ``prefix`` and sort after ``start_after``."""

    def read(self, key: str) -> bytes:
        """Return the content of a file of up to ``LARGEST_WHOLE`` bytes."""

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the content of files, in any order; skip files that do not exist."""

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        """Return parts of files, in order; a part is shorter if the file ends early."""

    def exists(self, key: str) -> bool:
        """Return whether a file exists."""

    def age(self, key: str) -> float | None:
        """Return the seconds since a file was written, or None if it does not exist."""

    def close(self) -> None:
        """Close connections and files."""


def beginning(storage: Storage, key: str, length: int, offset: int = 0) -> bytes:
    """Return up to so many bytes from the beginning of a file, or from an offset."""
    try:
        [content] = storage.read_ranges([Range(key, offset, length)])
    except TruncatedDataError:  # a bucket refuses a range beyond the end of an object
        return storage.read(key)[offset : offset + length]
    except RunIOError as error:
        if getattr(error, "code", "") != "range":  # the offset is at the end of an object, or behind it
            raise
        return b""
    return bytes(content)


def reads_at_once(storage: Storage) -> int | None:
    """Return how many reads may wait at the same time; None for local files."""
    found: int | None = getattr(storage, "reads_at_once", None)
    return found
