"""One thread for all live widgets, that looks for news in their runs."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

logger = logging.getLogger("smdwidgets.widgets")

EVERY = 0.25
"""Seconds between two looks at a running job."""


class Living(Protocol):
    """What has news from time to time."""

    def look(self) -> bool:
        """Tell the browser what is new; whether there may be more later."""


class Pulse:
    """Calls ``look`` of what is alive, a few times a second. Holds nothing alive itself, and rests when all is quiet."""

    def __init__(self) -> None:
        self._living: weakref.WeakSet[Living] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, living: Living) -> None:
        """Look at this from now on, until it says that nothing more will come."""
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
                except Exception:  # a widget's trouble must not silence the others
                    logger.exception("looking for news failed")
                    goes_on = True
                if not goes_on:
                    with self._lock:
                        self._living.discard(each)
            del living[:]
            each = None  # type: ignore[assignment]


pulse = Pulse()

workers = ThreadPoolExecutor(4, thread_name_prefix="smdwidgets-widget")
"""Where questions are answered: a widget's handler never computes, since it may run beside, or before, the user's cells."""
