"""A thread that executes queued calls in order; the queue is bounded.

The training queues calls and continues. It waits when more than ``limit`` bytes are queued, or when the oldest call is
older than ``seconds``. A disk that is slower than the training therefore slows the training down but does not fill the
memory, and a process that is killed loses at most the steps of the last ``seconds``.

>>> done = []
>>> with Background(limit=1000) as background:
...     background.put(done.append, 1, nbytes=10)
...     background.put(done.append, 2, nbytes=10)
>>> done
[1, 2]
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

__all__ = ["Background"]

logger = logging.getLogger("smdwidgets.hooks")

#: Seconds after which a writer that has finished no call counts as stuck (for example on an unreachable network disk).
#: The training then continues until the queue is full.
_STUCK_AFTER = 10.0
#: A nudge wakes the thread if this many calls wait, or if one has waited for this many seconds.
_TOGETHER, _PATIENCE = 16, 0.25


class _Item(NamedTuple):
    call: Callable[..., object]
    args: tuple[Any, ...]
    nbytes: int
    since: float


class Background:
    """Executes calls in order on one thread, which starts with the first call.

    An exception in a call is logged once and never reaches the training.

    Args:
        limit: the maximum number of queued bytes.
        seconds: the age of the oldest queued call at which :meth:`put` waits; None for no limit.
        idle: called on the thread about every ``seconds`` while nothing is queued.
        look: called on the thread whenever it has slept and nothing is queued, several times in ``seconds``.
    """

    def __init__(
        self,
        limit: int,
        seconds: float | None = None,
        idle: Callable[[], object] | None = None,
        name: str = "smdwidgets-writer",
        look: Callable[[], object] | None = None,
    ) -> None:
        if limit <= 0:
            raise ValueError(f"the queue needs room for at least one byte, got {limit}")
        self._limit = limit
        self._seconds = seconds
        self._idle = idle
        self._look = look
        #: Longest time in seconds until a call is executed that does not wake the thread.
        self._patience = _PATIENCE if seconds is None else min(_PATIENCE, seconds / 4)
        self._name = name
        #: The first item is the one in progress.
        self._waiting: deque[_Item] = deque()
        self._bytes = 0
        self._progress = 0.0
        #: Time that callers of :meth:`put` have waited for room, in all.
        self.waited_seconds = 0.0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._logged: set[str] = set()

    @property
    def waiting_bytes(self) -> int:
        """Number of queued bytes, including those of the call in progress."""
        return self._bytes

    @property
    def is_waiting(self) -> bool:
        """Whether a call is queued or in progress."""
        return bool(self._waiting)

    def put(self, call: Callable[..., object], *args: Any, nbytes: int = 0, wakes: bool = True) -> None:
        """Queue ``call(*args)``.

        Waits until the queue has room if ``nbytes`` is not 0. A call larger than the limit is queued when the queue is
        empty. One that does not wake the thread is executed with the next that does, at a :meth:`nudge`, or after a
        part of ``seconds``, for which the thread sleeps.
        """
        with self._changed:
            if self._closed:
                return
            if nbytes and self._bytes:
                began = time.perf_counter()
                self._wait_for_room(nbytes)
                self.waited_seconds += time.perf_counter() - began
            self._start()
            now = time.monotonic()
            if not self._waiting:
                self._progress = now
            self._bytes += nbytes
            self._waiting.append(_Item(call, args, nbytes, now))
            if wakes:
                self._changed.notify_all()
        if self._thread is None:
            self._run_inline()

    def nudge(self) -> None:
        """Wake the thread if a few calls wait, or one for long.

        Both threads need the interpreter's lock, so the training calls this where it is about to compute without it.
        """
        with self._changed:
            waiting = self._waiting
            if waiting and (len(waiting) >= _TOGETHER or time.monotonic() - waiting[0].since >= self._patience):
                self._changed.notify_all()

    def start(self) -> None:
        """Start the thread, so that ``idle`` is called before the first :meth:`put`."""
        if self._thread is None:
            with self._changed:
                if not self._closed:
                    self._start()

    def wait(self) -> None:
        """Wait until all queued calls have finished."""
        with self._changed:
            self._changed.notify_all()
            while self._waiting:
                self._changed.wait()

    def close(self) -> None:
        """Finish the queued calls, then stop the thread.

        May be called again after an interrupt.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._thread is None or self._thread is threading.current_thread():
                return
            # join() alone is not enough: after an interrupt by Ctrl-C it treats a running thread as finished.
            while self._waiting:
                self._changed.wait()
        self._thread.join()

    def _wait_for_room(self, nbytes: int) -> None:
        """Wait until the item fits and no queued call is too old.

        The age is ignored while the writer is stuck.
        """
        while self._bytes:
            now = time.monotonic()
            if self._bytes + nbytes > self._limit:
                self._changed.notify_all()
                self._changed.wait()
                continue
            if self._seconds is None or not self._waiting or now - self._waiting[0].since <= self._seconds:
                return
            patience = self._progress + _STUCK_AFTER - now
            if patience <= 0:
                self._log_once(
                    f"the writer has been stuck for {_STUCK_AFTER:.0f} s; up to {self._limit:,} bytes stay queued in memory"
                )
                return
            self._changed.notify_all()
            self._changed.wait(patience)

    def _start(self) -> None:
        if self._thread is None:
            # A daemon thread does not delay the exit of a crashing interpreter; close() waits for it.
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # an interpreter that shuts down cannot start threads
                return
            self._thread = thread

    def _run_inline(self) -> None:
        """Execute the queued calls on this thread, because no other can be started."""
        while self._waiting:
            self._do(self._waiting[0])

    def _run(self) -> None:
        quiet_since = time.monotonic()
        while True:
            with self._changed:
                if not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait(self._patience)
                item = self._waiting[0] if self._waiting else None
            if item is not None:
                self._do(item)
                quiet_since = time.monotonic()
            else:
                if self._look is not None:
                    self._guarded(self._look)
                if self._idle is not None and time.monotonic() - quiet_since >= (self._seconds or 0):
                    self._guarded(self._idle)
                    quiet_since = time.monotonic()
            del item

    def _do(self, item: _Item) -> None:
        self._guarded(item.call, *item.args)
        with self._changed:
            self._waiting.popleft()
            self._bytes -= item.nbytes
            self._progress = time.monotonic()
            self._changed.notify_all()

    def _guarded(self, call: Callable[..., object], *args: Any) -> None:
        try:
            call(*args)
        except Exception as error:
            self._log_once(
                f"saving failed ({type(error).__name__}: {error}); the training continues without the data that was not saved",
                error,
            )

    def _log_once(self, message: str, error: BaseException | None = None) -> None:
        if (key := message[:200]) not in self._logged:  # once: it may come at every step
            self._logged.add(key)
            logger.log(logging.ERROR if error else logging.WARNING, message, exc_info=error)

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
