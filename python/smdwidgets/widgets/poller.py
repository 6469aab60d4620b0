"""A thread that polls the runs of all live widgets for new steps."""

from __future__ import annotations

import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

logger = logging.getLogger("smdwidgets.widgets")

INTERVAL = 0.25
"""Polling interval in seconds."""


class Pollable(Protocol):
    """An object that can be polled."""

    def poll(self) -> bool:
        """Send new data to the browser; return whether more may follow."""


class WidgetPoller:
    """Polls registered objects from one thread.

    The objects are held weakly. The thread stops when none is left.
    """

    def __init__(self) -> None:
        self._widgets: weakref.WeakSet[Pollable] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._woken = threading.Event()

    def wake(self) -> None:
        """Poll now, because there is something new."""
        self._woken.set()

    def add(self, widget: Pollable) -> None:
        """Poll an object until its ``poll`` returns False."""
        with self._lock:
            self._widgets.add(widget)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="smdwidgets-poller", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._woken.wait(INTERVAL)
            self._woken.clear()
            with self._lock:
                widgets = list(self._widgets)
                if not widgets:
                    self._thread = None
                    return
            for widget in widgets:
                try:
                    more = widget.poll()
                except Exception:  # a failure of one widget must not stop the others
                    logger.exception("cannot update a widget; retrying")
                    more = True
                if not more:
                    with self._lock:
                        self._widgets.discard(widget)
            del widgets[:]
            widget = None  # type: ignore[assignment]


poller = WidgetPoller()

workers = ThreadPoolExecutor(4, thread_name_prefix="smdwidgets-widget")
"""Threads that answer requests. Message handlers must not compute, because they can delay the user's cells."""
