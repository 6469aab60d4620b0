"""Which GET requests fetch a set of byte ranges: neighbours in one object travel together.

A request costs some 20 ms and a fraction of a cent whatever its size, so reading a gap of up to a mebibyte is cheaper than
asking twice.

>>> [get.length for get in coalesce([Range("events/1", 0, 100), Range("events/1", 500, 100), Range("events/2", 0, 10)])]
[600, 10]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smdwidgets.storage.protocol import Range

GAP = 1 << 20
"""Ranges of one object that lie at most this far apart are fetched together."""

LARGEST_GET = 64 << 20
"""Ranges are no longer joined beyond this size, so that large steps travel in parallel."""


@dataclass(frozen=True, slots=True)
class Get:
    """One request, and the numbers of the ranges that it answers."""

    key: str
    offset: int
    length: int
    answers: tuple[int, ...]

    @property
    def end(self) -> int:
        """The first byte after it."""
        return self.offset + self.length


def end_of(wanted: Range) -> int:
    """The first byte after a range."""
    return wanted.offset + wanted.length


def coalesce(ranges: Sequence[Range], *, gap: int = GAP, largest: int = LARGEST_GET) -> list[Get]:
    """The fewest requests that answer ``ranges``: in the order of their first range, none joining over a larger gap.

    A single range larger than ``largest`` is still one request: it was asked for as one.
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
