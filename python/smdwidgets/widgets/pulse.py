"""A thread that polls the runs of all live widgets for new steps."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

logger = logging.getLogger("smdwidgets.widgets")

EVERY = 0.25
"""Polling interval in seconds."""


class Living(Protocol):
    """An object that can be polled."""

    def look(self) -> bool:
        """Send new data to the browser; return whether more may follow."""


class Pulse:
    """Polls registered objects from one thread.

    The objects are held weakly. The thread stops when none is left.
    """

    def __init__(self) -> None:
        self._living: weakref.WeakSet[Living] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, living: Living) -> None:
        """Poll an object until its ``look`` returns False."""
        with self._lock:
            self._living.add(living)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="smdwidgets-pulse", daemon=True)
                self._thread.start()

    def _beat(self) -> None:
        while True:
            time.sleep(EVERY)
            with self._lock:
                living = list(self._living)
                if not living:
                    self._thread = None
                    return
            for each in living:
                try:
                    goes_on = each.look()
                except Exception:  # a failure of one widget must not stop the others
                    logger.exception("cannot update a widget; retrying")
                    goes_on = True
                if not goes_on:
                    with self._lock:
                        self._living.discard(each)
            del living[:]
            each = None  # type: ignore[assignment]


pulse = Pulse()

workers = ThreadPoolExecutor(4, thread_name_prefix="smdwidgets-widget")
"""Threads that answer requests. Message handlers must not compute, because they can delay the user's cells."""
