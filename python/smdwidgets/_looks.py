"""When to look again at what costs too much to look at each time.

Such as a file, at every step of a training.
"""

from __future__ import annotations

import time

__all__ = ["Looks"]


class Looks:
    """Counts looks as due at most once in so many seconds.

    >>> looks = Looks(seconds=60.0)
    >>> looks.is_due(), looks.is_due()
    (True, False)
    >>> looks.repeat()
    >>> looks.is_due()
    True
    """

    __slots__ = ("_next", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds, self._next = seconds, 0.0

    def is_due(self) -> bool:
        """Whether to look now. The time until the next look begins then."""
        if (now := time.monotonic()) < self._next:
            return False
        self._next = now + self._seconds
        return True

    def repeat(self) -> None:
        """Make the next look due at once."""
        self._next = 0.0
