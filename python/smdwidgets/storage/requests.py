"""Numbers of requests and received bytes."""

from __future__ import annotations

from dataclasses import dataclass

from smdwidgets._text import byte_size


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Number of requests by type, retries and received bytes.

    >>> RequestCount(lists=2, gets=1000, bytes=15_000_000)
    2 LIST, 1,000 GET, 15.0 MB received
    """

    lists: int = 0
    gets: int = 0
    heads: int = 0
    puts: int = 0
    deletes: int = 0
    retries: int = 0
    bytes: int = 0

    def __repr__(self) -> str:
        parts = [f"{self.lists:,} LIST", f"{self.gets:,} GET"]
        parts += [
            f"{n:,} {word}"
            for n, word in (
                (self.heads, "HEAD"),
                (self.puts, "PUT"),
                (self.deletes, "DELETE"),
                (self.retries, "retries"),
            )
            if n
        ]
        return f"{', '.join(parts)}, {byte_size(self.bytes)} received"

    def __sub__(self, earlier: RequestCount) -> RequestCount:
        """Return the difference from an earlier count."""
        return RequestCount(
            self.lists - earlier.lists,
            self.gets - earlier.gets,
            self.heads - earlier.heads,
            self.puts - earlier.puts,
            self.deletes - earlier.deletes,
            self.retries - earlier.retries,
            self.bytes - earlier.bytes,
        )
