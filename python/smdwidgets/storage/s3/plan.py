"""Coalesce byte ranges into GET requests.

A request takes about 20 ms and costs the same for every size, so reading a gap of up to 1 MiB is cheaper than two
requests.

>>> [get.length for get in coalesce([Range("events/1", 0, 100), Range("events/1", 500, 100), Range("events/2", 0, 10)])]
[600, 10]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smdwidgets.storage.protocol import Range

GAP = 1 << 20
"""Maximum gap in bytes between ranges of one request."""

LARGEST_GET = 64 << 20
"""Maximum bytes of a coalesced request, so that large steps are read in parallel."""


@dataclass(frozen=True, slots=True)
class Get:
    """One request, and the indices of the ranges that it covers."""

    key: str
    offset: int
    length: int
    answers: tuple[int, ...]

    @property
    def end(self) -> int:
        """End offset (exclusive)."""
        return self.offset + self.length


def end_of(wanted: Range) -> int:
    """Return the end offset (exclusive) of a range."""
    return wanted.offset + wanted.length


def coalesce(ranges: Sequence[Range], *, gap: int = GAP, largest: int = LARGEST_GET) -> list[Get]:
    """Return the requests that cover ``ranges``, in the order of their first range.

    A single range larger than ``largest`` remains one request.
    """
    by_place = sorted(range(len(ranges)), key=lambda i: (ranges[i].key, ranges[i].offset, end_of(ranges[i])))
    gets: list[Get] = []
    for i in by_place:
        wanted = ranges[i]
        last = gets[-1] if gets else None
        if last is not None and last.key == wanted.key and wanted.offset - last.end <= gap:
            end = max(last.end, end_of(wanted))
            if end - last.offset <= max(largest, last.length):
                gets[-1] = Get(last.key, last.offset, end - last.offset, (*last.answers, i))
                continue
        gets.append(Get(wanted.key, wanted.offset, wanted.length, (i,)))
    gets.sort(key=lambda get: min(get.answers))
    return gets
