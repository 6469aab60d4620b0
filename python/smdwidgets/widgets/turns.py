"""Threads take turns quickly while somebody waits for an answer.

A cell that trains in Python gives the interpreter away only when another thread has waited for it for the switch interval, 5 ms
unless somebody set it. An answer takes it back a hundred times (after each call into the core, each message, each lock), so
that half a second of an answer would be spent in waiting for turns.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

QUICK = 0.0005
"""Seconds a thread may keep the interpreter from one that waits, while a question is open."""


class QuickTurns:
    """A context in which the switch interval is short. Any number of threads may be in it; the last one out restores it.

    >>> before = sys.getswitchinterval()
    >>> with QuickTurns():
    ...     sys.getswitchinterval() <= QUICK
    True
    >>> sys.getswitchinterval() == before
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = self._set = 0.0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, QUICK))
                self._set = sys.getswitchinterval()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            # Where somebody has set another one meanwhile it is theirs.
            if not self._inside and sys.getswitchinterval() == self._set:
                sys.setswitchinterval(self._before)


quick_turns = QuickTurns()
