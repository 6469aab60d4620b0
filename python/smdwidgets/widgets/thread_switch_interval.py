"""Shorten the interpreter's thread switch interval during a request.

A cell that runs Python code releases the GIL only after another thread has waited for the switch interval, which is 5
ms by default. Answering a request acquires the GIL about a hundred times: after each call into the core, each message
and each lock. With the default interval, it would wait for the GIL for half a second.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

SHORT = 0.0005
"""Switch interval in seconds while a request is open."""


class ShortSwitchInterval:
    """A context manager that shortens the switch interval.

    Several threads can be in the context; the last one to leave restores the interval.

    >>> before = sys.getswitchinterval()
    >>> with ShortSwitchInterval():
    ...     sys.getswitchinterval() <= SHORT
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
                sys.setswitchinterval(min(self._before, SHORT))
                self._set = sys.getswitchinterval()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            # Keep an interval that other code has set in the meantime.
            if not self._inside and sys.getswitchinterval() == self._set:
                sys.setswitchinterval(self._before)


short_switch_interval = ShortSwitchInterval()
