"""What a place that keeps runs must offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

#: The most bytes of a file that is read whole: as in the core, for the files that Python reads.
LARGEST_WHOLE = 1 << 30
TOO_LARGE = "it is larger than 1 GiB, and was not read"


class Range(NamedTuple):
    """Some bytes of one file."""

    key: str
    offset: int
    length: int


@runtime_checkable
class Storage(Protocol):
    """The files of one run. A key is a path relative to the run, with slashes: ``index/000000000/000000000005_worker_0.json``.

    Every method may be called from several threads at once. What is not there raises FileNotFoundError (a
    :class:`~smdwidgets.exceptions.RunIOError` that is one), anything else that fails a
    :class:`~smdwidgets.exceptions.RunIOError` that names the key.
    """

    @property
    def url(self) -> str:
        """The place as a person would name it."""

    def list(self, prefix: str, start_after: str = "") -> Iterator[str]:
        """Keys that begin with ``prefix`` and come after ``start_after``, in the order of their characters."""

    def read(self, key: str) -> bytes:
        """A whole file, of up to ``LARGEST_WHOLE`` bytes."""

    def read_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Whole files, side by side where that helps, in any order. Those that are gone are left out."""

    def read_ranges(self, ranges: Sequence[Range]) -> Sequence[bytes | memoryview]:
        """Parts of files, in the order asked for; shorter where a file ends early."""

    def exists(self, key: str) -> bool:
        """Whether there is such a file."""

    def age(self, key: str) -> float | None:
        """Seconds since the file was written; None if there is none."""

    def close(self) -> None:
        """Let go of connections and files."""
