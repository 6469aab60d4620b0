"""One thread that does the slow half of saving, in order, and a bound on how much may wait for it.

The training hands over work and goes on. When more than ``limit`` bytes wait, it waits too: a disk that is slower than
the training slows it down, but never eats its memory.

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
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any

__all__ = ["Background"]

logger = logging.getLogger("smdwidgets.hooks")


class Background:
    """Runs calls one after the other on a thread of its own, which starts with the first of them.

    A call that raises is logged and forgotten: nothing that happens here may end a training.
    """

    def __init__(self, limit: int, name: str = "smdwidgets-writer") -> None:
        if limit <= 0:
            raise ValueError(f"The queue must have room for some bytes, not {limit}.")
        self._limit = limit
        self._name = name
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...], int]] = deque()
        self._bytes = 0
        self._unfinished = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._told: set[str] = set()

    @property
    def waiting_bytes(self) -> int:
        """Bytes handed over and not yet dealt with."""
        return self._bytes

    def put(self, call: Callable[..., object], *args: Any, nbytes: int = 0) -> None:
        """Have ``call(*args)`` done later. Blocks while more than the limit waits; a single huge item goes in alone."""
        with self._changed:
            if self._closed:
                return
            while self._bytes and self._bytes + nbytes > self._limit:
                self._changed.wait()
            self._bytes += nbytes
            self._unfinished += 1
            self._waiting.append((call, args, nbytes))
            if self._thread is None:
                # A daemon, so that a crashing interpreter is not held up; close() is what waits for it.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self) -> None:
        """Until all that was put has been done."""
        with self._changed:
            while self._unfinished:
                self._changed.wait()

    def close(self) -> None:
        """Finish what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._closed:
                        return
                    self._changed.wait()
                call, args, nbytes = self._waiting.popleft()
            try:
                call(*args)
            except Exception as error:
                if (told := repr(error)[:200]) not in self._told:  # once: it may come at every step
                    self._told.add(told)
                    logger.exception("Saving failed; the training goes on without what could not be saved.")
            finally:
                del call, args
                with self._changed:
                    self._bytes -= nbytes
                    self._unfinished -= 1
                    self._changed.notify_all()

    def __enter__(self) -> Background:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()
