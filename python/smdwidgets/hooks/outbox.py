"""The training's side of writing: what it has captured of a step waits here for the writer's thread.

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

#: What is captured goes to the writer when it is more than this, and at the end of the step.
_PORTION = 8 << 20


class Outbox:
    """Steps on their way to the disk, one after the other.

    Tensors may come from several threads: gradients arise on one a device.

    Args:
        queue_bytes: how much may wait before the training waits.
    """

    def __init__(self, queue_bytes: int) -> None:
        self.staging = Staging(queue_bytes)
        self._background = Background(queue_bytes)
        self._recorder: Recorder | None = None
        self._at: At = (-1, ModeKeys.GLOBAL, -1)
        self._portion: list[Captured] = []
        self._bytes = 0
        self._begun = False
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
    ) -> None:
        """Where it all goes to. Without an address it goes nowhere."""
        export = None if tensorboard is None else TensorBoardExport(tensorboard)
        self._recorder = Recorder(root, worker, self.staging, export, fsync, send)

    def begin(self, at: At) -> None:
        """What comes now belongs to this step."""
        self._at = at
        self._begun = False

    def shape(self, name: str, shape: tuple[int, ...], keep: Keep) -> None:
        """A tensor of which only the shape is wanted."""
        if self._recorder is not None:
            with self._lock:
                self._portion.append(Captured(name, None, shape, keep, time.time()))

    def tensor(self, name: str, held: Held, keep: Keep, timestamp: float | None = None) -> None:
        """A tensor, copied."""
        if self._recorder is not None:
            one = Captured(name, held, held.shape, keep, time.time() if timestamp is None else timestamp)
            with self._lock:
                self._portion.append(one)
                self._bytes += held.array.nbytes
                if self._bytes > _PORTION:
                    self._hand_over()

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

    def _hand_over(self) -> None:
        if self._recorder is not None and self._portion:
            portion, nbytes = self._portion, self._bytes
            self._portion, self._bytes = [], 0
            self._begun = True
            self._background.put(self._recorder.write, self._at, portion, nbytes=nbytes)
