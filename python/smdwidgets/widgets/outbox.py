"""How messages leave for the browser without ever jamming the kernel.

On a kernel that handles widget messages on a subshell, a write to the widget from any other thread holds up the browser's
next message until the running cell ends. There, everything leaves from a timer on the handler's own event loop. On other
kernels the thread that has something to say sends it. docs/widget-protocol.md, "Push modes".
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
_QUIET_AFTER = 100
"""Turns of the fast timer without a message before it slows down."""


class Outbox:
    """Messages on their way out, in order. Anyone may post; who sends is decided by how the last message came in."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: deque[tuple[dict[str, Any], Sequence[bytes]]] = deque()
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._quiet_turns = 0
        self._closed = False

    @property
    def way(self) -> str:
        """``"loop"`` or ``"thread"``, as the answer to ``hello`` says."""
        return "loop" if self._loop is not None else "thread"

    def heard(self) -> None:
        """A message came in, on the thread that calls this: what goes out takes the way that suits it."""
        loop = None
        if threading.current_thread() is not threading.main_thread():
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                loop = None
        with self._lock:
            self._quiet_turns = 0
            if loop is None or loop is not self._loop:
                self._stop_timer()
                self._loop = loop
            if loop is not None:
                self._turn_in(_SOON)

    def post(self, message: dict[str, Any], packets: Sequence[bytes] = ()) -> None:
        """Send a message, now or at the next turn of the loop."""
        with self._lock:
            if self._closed:
                return
            if self._loop is not None and self._loop.is_closed():
                self._loop = None  # the subshell is gone, and with it who listened; a new hello decides anew
            self._queue.append((message, packets))
            self._quiet_turns = 0
            if self._loop is None:
                self._drain()

    def close(self) -> None:
        """Nothing leaves any more."""
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._loop = None
            # A timer belongs to its loop's thread; left alone it finds the box closed and does not come again.

    def _drain(self) -> None:
        while self._queue:
            self._send(*self._queue.popleft())

    def _turn_in(self, seconds: float) -> None:
        """Take the next turn after some time. Only on the loop's own thread."""
        self._stop_timer()
        assert self._loop is not None
        box = weakref.ref(self)
        self._timer = self._loop.call_later(seconds, _turn, box)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_turn(self) -> None:
        with self._lock:
            if self._closed or self._loop is None:
                return
            self._quiet_turns = 0 if self._queue else self._quiet_turns + 1
            try:
                self._drain()
            finally:
                self._turn_in(_SOON if self._quiet_turns < _QUIET_AFTER else _LATER)


def _turn(box: weakref.ref[Outbox]) -> None:
    outbox = box()
    if outbox is not None:
        outbox._take_turn()
