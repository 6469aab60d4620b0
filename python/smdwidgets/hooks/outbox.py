"""The training's side of writing: tensors captured in a step wait here for the writer's thread.

Tensors are handed over in portions: waking the writer for each would cost more than most of them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from smdwidgets.hooks.arrays import Held, Staging
from smdwidgets.hooks.background import Background
from smdwidgets.hooks.keep import Keep
from smdwidgets.hooks.recorder import At, Captured, Recorder
from smdwidgets.hooks.tensorboard import TensorBoardExport
from smdwidgets.modes import ModeKeys

__all__ = ["Outbox"]

#: Captured tensors go to the writer when they are more than this, and at the end of the step.
_PORTION = 8 << 20


class Outbox:
    """Steps on their way to the disk, one after the other.

    Tensors may come from several threads: autograd runs one per device.

    Args:
        queue_bytes: how much may wait before training waits.
        flush_seconds: how long a complete step may wait before it is on disk, or training waits for it.
    """

    def __init__(self, queue_bytes: int, flush_seconds: float = 1.0) -> None:
        self.staging = Staging(queue_bytes)
        self._queue_bytes = queue_bytes
        self._flush_seconds = flush_seconds
        self._background = Background(queue_bytes)
        self._recorder: Recorder | None = None
        self._touch: Callable[[], None] = lambda: None
        self._at: At = (-1, ModeKeys.GLOBAL, -1)
        self._portion: list[Captured] = []
        self._bytes = 0
        self._begun = False
        self._settled = False
        self._published = True
        self._last_put = 0.0
        self._lock = threading.Lock()
        self._collections: str | None = None

    @property
    def writes(self) -> bool:
        """Whether what is put in goes anywhere."""
        return self._recorder is not None

    def address(
        self,
        root: Path,
        worker: str,
        tensorboard: str | None,
        fsync: bool,
        send: Callable[..., object] | None,
        touch: Callable[[], None] = lambda: None,
        lost: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Where it all goes to. Without an address it goes nowhere.

        ``send`` takes finished files to another machine: training never waits for that in time, only in bytes.
        """
        export = None if tensorboard is None else TensorBoardExport(tensorboard)
        self._recorder = Recorder(root, worker, self.staging, export, fsync, send, lost)
        self._touch = touch
        self._background = Background(
            self._queue_bytes, self._flush_seconds if send is None else None, self._idle if send is None else None
        )

    def begin(self, at: At) -> None:
        """A step begins: tensors put in from now on belong to it."""
        self._at = at
        self._begun = self._settled = False

    def shape(self, name: str, shape: tuple[int, ...], keep: Keep) -> None:
        """A tensor of which only the shape is wanted."""
        if self._recorder is not None:
            with self._lock:
                self._add(Captured(name, None, shape, keep, time.time()))

    def tensor(self, name: str, held: Held, keep: Keep, timestamp: float | None = None) -> None:
        """A tensor, copied."""
        if self._recorder is not None:
            one = Captured(name, held, held.shape, keep, time.time() if timestamp is None else timestamp)
            with self._lock:
                self._add(one)
                self._bytes += held.array.nbytes
                if self._bytes > _PORTION:
                    self._hand_over()

    def settle(self) -> None:
        """The step is most likely complete, though the next has not begun: it is published if nothing follows soon."""
        self._settled = True
        if not self.empty:
            self._background.start()

    @property
    def empty(self) -> bool:
        """Whether nothing was put in since the step began."""
        return not (self._portion or self._begun)

    def end(self) -> None:
        """The step's files are complete; the writer makes them visible when it has got so far."""
        if self._recorder is not None and not self.empty:
            with self._lock:
                self._hand_over()
            self._background.put(self._recorder.finish)

    def publish(self) -> None:
        """Make the step visible as it is now, although it goes on."""
        if self._recorder is not None and not self.empty:
            with self._lock:
                self._hand_over()
                self._published = True
            self._background.put(self._recorder.publish)

    def collections(self, content: str) -> None:
        """The collection file, if it says something new."""
        if self._recorder is not None and content != self._collections:
            self._collections = content
            self._background.put(self._recorder.collections, content)

    def wait(self) -> None:
        """Until every step that has ended is on disk."""
        self._background.wait()

    def close(self) -> None:
        """Write what waits, then end the writer."""
        if self._recorder is not None:
            self._background.put(self._recorder.close)
        self._background.close()
        self.staging.clear()

    def _add(self, one: Captured) -> None:
        self._portion.append(one)
        self._published = False
        self._last_put = time.monotonic()

    def _idle(self) -> None:
        """On the writer's thread, about every ``flush_seconds`` while nothing is queued."""
        self._touch()
        recorder = self._recorder
        with self._lock:
            quiet = time.monotonic() - self._last_put >= self._flush_seconds
            if recorder is None or self._published or not self._settled or not quiet:
                return
            at, portion = self._at, self._portion
            self._portion, self._bytes, self._published = [], 0, True
            self._begun = self._begun or bool(portion)
        # This is the writer's thread: whatever training queues meanwhile is written after this.
        if portion:
            recorder.write(at, portion)
        recorder.publish()

    def _hand_over(self) -> None:
        if self._recorder is not None and self._portion:
            portion, nbytes = self._portion, self._bytes
            self._portion, self._bytes = [], 0
            self._begun = True
            self._background.put(self._recorder.write, self._at, portion, nbytes=max(nbytes, 1))
