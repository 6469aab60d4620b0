"""Send messages to the browser without blocking the kernel.

If a kernel handles widget messages on a subshell, a message sent from any other thread blocks the browser's next
message until the running cell ends. On such kernels, a timer on the handler's event loop sends all messages. On other
kernels, a message is sent by the thread that posts it. See docs/widget-protocol.md, "Push modes".
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

Send = Callable[[dict[str, Any], "Sequence[bytes]"], object]

_SOON, _LATER = 0.01, 0.15
_IDLE_AFTER = 100
"""Number of fast timer ticks without a message after which the timer slows down."""


class SendQueue:
    """A thread-safe queue of outgoing messages.

    The thread on which the last message from the browser arrived determines which thread sends.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._messages: deque[tuple[dict[str, Any], Sequence[bytes]]] = deque()
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle_ticks = 0
        self._closed = False

    @property
    def push_mode(self) -> str:
        """How messages are sent: ``"loop"`` or ``"thread"``, as in the reply to ``hello``."""
        return "loop" if self._loop is not None else "thread"

    def message_received(self) -> None:
        """Choose how to send messages.

        Called on the thread that received a message from the browser.
        """
        loop = None
        if threading.current_thread() is not threading.main_thread():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                loop = None
        with self._lock:
            self._idle_ticks = 0
            if loop is None or loop is not self._loop:
                self._stop_timer()
                self._loop = loop
            if loop is not None:
                self._schedule(_SOON)

    def post(self, message: dict[str, Any], packets: Sequence[bytes] = ()) -> None:
        """Send a message, now or at the next timer tick."""
        with self._lock:
            if self._closed:
                return
            if self._loop is not None and self._loop.is_closed():
                self._loop = None  # the subshell and its listener are gone; the next message from the browser decides
            self._messages.append((message, packets))
            self._idle_ticks = 0
            if self._loop is None:
                self._drain()

    def close(self) -> None:
        """Discard all messages, and send none from now on."""
        with self._lock:
            self._closed = True
            self._messages.clear()
            self._loop = None
            # Only the loop's thread may cancel the timer. At its next tick it sees the closed state and stops.

    def _drain(self) -> None:
        while self._messages:
            self._send(*self._messages.popleft())

    def _schedule(self, seconds: float) -> None:
        """Schedule the next timer tick. Call this only on the loop's thread."""
        self._stop_timer()
        assert self._loop is not None
        self._timer = self._loop.call_later(seconds, _on_timer, weakref.ref(self))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def tick(self) -> None:
        """Send what is queued, and set the timer again."""
        with self._lock:
            if self._closed or self._loop is None:
                return
            self._idle_ticks = 0 if self._messages else self._idle_ticks + 1
            try:
                self._drain()
            finally:
                self._schedule(_SOON if self._idle_ticks < _IDLE_AFTER else _LATER)


def _on_timer(reference: weakref.ref[SendQueue]) -> None:
    queue = reference()
    if queue is not None:
        queue.tick()
