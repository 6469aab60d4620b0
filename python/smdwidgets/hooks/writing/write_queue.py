"""The queue between a training and the writer's thread.

Tensors are queued in batches, because waking the writer for each tensor would cost more than copying most of them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from smdwidgets.hooks.capture.arrays import Staging, TensorCopy
from smdwidgets.hooks.capture.captured import Captured, StepKey, StepObserver
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.hooks.writing.background import Background
from smdwidgets.hooks.writing.number_steps import Column, Number, NumberLayout, NumberStep
from smdwidgets.hooks.writing.step_files import StepFiles
from smdwidgets.modes import ModeKeys

__all__ = ["SuspendedStep", "WriteQueue"]

#: Bytes of copied tensors in a batch. A smaller batch is queued at the end of the step.
_BATCH_BYTES = 8 << 20
#: A step has numbers only if its copies take so many bytes at most.
_FEW_BYTES = 64 << 10
#: A loss is unusual from this multiple of the last ones on, of which the last has this weight.
_ODD, _LEARNING = 2.0, 0.1


@dataclass(frozen=True, slots=True)
class SuspendedStep:
    """A suspended step, with its tensors that are not queued yet."""

    key: StepKey
    batch: list[Captured]
    nbytes: int
    begun: bool


class WriteQueue:
    """Queues steps for the writer's thread, in order.

    Tensors may come from several threads, because autograd runs one thread per device.

    Args:
        queue_bytes: the maximum number of queued bytes before the training waits.
        flush_seconds: the maximum age of a complete step that is not on disk, before the training waits.
        held_bytes: the number of bytes that observers may keep beside that.
    """

    def __init__(self, queue_bytes: int, flush_seconds: float = 1.0, held_bytes: int = 0) -> None:
        self.staging = Staging(max(queue_bytes, held_bytes))
        #: The names of all tensors that were added.
        self.names: set[str] = set()
        self._queue_bytes = queue_bytes
        self._flush_seconds = flush_seconds
        self._background = Background(queue_bytes)
        self._files: StepFiles | None = None
        self._touch: Callable[[], None] = lambda: None
        self._key: StepKey = (-1, ModeKeys.GLOBAL, -1)
        self._batch: list[Captured] = []
        self._bytes = 0
        self._begun = False
        #: Whether a loss of the current step is unusual, and what it usually is.
        self.is_odd, self._usual = False, 0.0
        #: Bytes that were copied at this step.
        self.copied = 0
        self._settled = False
        self._published = True
        self._last_put = 0.0
        self._lock = threading.Lock()
        self._collections: str | None = None
        self._observers: list[StepObserver] = []
        #: The layout of a series of steps that have numbers only, or None outside of one.
        self.series: NumberLayout | None = None
        #: Its steps that are not queued yet, and whether the last of them has ended.
        self._numbers: list[NumberStep] = []
        self.last_has_ended = False
        #: Ends the series, because a tensor is added to its last step.
        self._leave_series: Callable[[], object] = lambda: None
        #: The step that was the oldest of the series, and the last one, when the writer's thread looked before.
        self._oldest: NumberStep | None = None
        self._newest: NumberStep | None = None

    def observe(self, observer: StepObserver) -> None:
        """Call an observer with every step. Must be called before the first step."""
        self._observers.append(observer)
        if self._files is not None:
            self._files.observe(observer)

    @property
    def is_observed(self) -> bool:
        """Whether an observer needs the values of all tensors."""
        return bool(self._observers)

    def keeps(self, name: str, nbytes: int) -> bool:
        """Whether an observer would keep a copy of a tensor of this step."""
        return any(observer.keeps(name, nbytes, self.copied) for observer in self._observers)

    @property
    def step(self) -> int:
        """Global number of the current step."""
        return self._key[0]

    @property
    def files(self) -> StepFiles:
        """The writer of the steps, for observers.

        Use it on the writer's thread only.
        """
        if self._files is None:
            raise RuntimeError("the queue is not open")
        return self._files

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function on the writer's thread, after the steps that are queued."""
        if self._files is not None:
            self._background.put(function, *args)

    @property
    def hold_bytes(self) -> int:
        """Size of a step's tensors that may be held until the step is complete."""
        return self._queue_bytes // 2

    @property
    def writes(self) -> bool:
        """Whether the queue is open, that is, whether tensors are written."""
        return self._files is not None

    def open(self, files: StepFiles, touch: Callable[[], None], uploads: bool) -> None:
        """Write to these files from now on. Without a call, everything is dropped.

        Args:
            files: writes the steps.
            touch: called from time to time while the directory is open.
            uploads: whether finished files are uploaded. The training then waits because of the number of queued bytes
                only, never because of their age.
        """
        for observer in self._observers:
            files.observe(observer)
        self._files, self._touch = files, touch
        self._background = Background(
            self._queue_bytes,
            None if uploads else self._flush_seconds,
            None if uploads else self._idle,
            look=self._collect_numbers,
        )

    @property
    def waited_seconds(self) -> float:
        """Time that the training has waited for room in the queue, in all."""
        return self._background.waited_seconds

    def begin(self, key: StepKey) -> None:
        """Begin a step, to which the tensors added from now on belong."""
        self._key = key
        self.copied = 0
        self._begun = self._settled = False
        self._background.nudge()

    def suspend(self) -> SuspendedStep:
        """Suspend the current step, so that another one can be queued before it ends."""
        with self._lock:
            state = SuspendedStep(self._key, self._batch, self._bytes, self._begun)
            self._batch, self._bytes = [], 0
            self._begun, self._settled, self._published = False, False, True
        return state

    def resume(self, state: SuspendedStep) -> None:
        """Continue a suspended step. The step before has ended."""
        with self._lock:
            self._key, self._batch, self._bytes, self._begun = state.key, state.batch, state.nbytes, state.begun
            self._settled, self._published = False, not state.batch

    def shape(self, name: str, shape: tuple[int, ...], spec: SaveSpec) -> None:
        """Add the shape of a tensor, without its value."""
        if self.series is not None:
            self._leave_series()
        if self._files is not None:
            with self._lock:
                self._add(Captured(name, None, shape, spec, time.time()))

    def tensor(self, name: str, copy: TensorCopy, spec: SaveSpec, timestamp: float | None = None) -> None:
        """Add the copy of a tensor."""
        if self.series is not None:
            self._leave_series()
        if self._files is not None:
            one = Captured(name, copy, copy.shape, spec, time.time() if timestamp is None else timestamp)
            with self._lock:
                self._add(one)
                self._bytes += copy.nbytes
                self.copied += copy.nbytes
                if self._bytes > _BATCH_BYTES:
                    self._queue_batch()

    def attend(self, number: float) -> None:
        """Have the writer look at a step at once if a loss of it is unusual."""
        size = abs(number)
        if size <= _ODD * self._usual:
            self._usual += _LEARNING * (size - self._usual)
        else:  # also NaN
            self.is_odd = True
            self._usual = size if size < math.inf else self._usual

    def settle(self) -> None:
        """Mark the step as probably complete.

        It is published unless more tensors follow within ``flush_seconds``.
        """
        self._settled = True
        if not self.empty:
            self._background.start()

    # ---------------------------------------------------------------------------------------------- steps of numbers

    def begin_series(self, names: Sequence[str], leave: Callable[[], object]) -> list[Column] | None:
        """Begin a series of steps that have the same few numbers.

        The current step is the first. The steps of a series are kept as numbers, and queued together. Returns what the
        numbers are, or None if the series has not begun, because the current step is incomplete or has other tensors.

        Args:
            names: names of the numbers, in order.
            leave: called before a tensor is added to the last step of the series; calls :meth:`end_series`.
        """
        with self._lock:
            batch = self._batch
            if (
                self._begun
                or not self._settled
                or [one.name for one in batch] != names
                or len(copies := [one.copy for one in batch if one.copy is not None]) < len(batch)
            ):
                return None
            columns = [Column(name, copy.dtype, copy.shape) for name, copy in zip(names, copies, strict=True)]
            self._numbers = [NumberStep(self._key, batch[-1].time, [*copies])]
            self._batch, self._bytes = [], 0
            self.last_has_ended = False
            self._leave_series = leave
            self.series = NumberLayout(columns, [one.spec for one in batch])
        return columns

    def add_numbers(self, step: NumberStep, losses: Sequence[float]) -> bool:
        """Add a step, complete, to the series; the one before has ended.

        Returns False if the series has ended, because the writer's thread has published its last step.
        """
        with self._lock:
            if self.series is None:
                return False
            self._numbers.append(step)
            self.last_has_ended = False
        for loss in losses:
            self.attend(loss)
        return True

    def add_number(self, step: NumberStep, number: Number) -> bool:
        """Add a number to the last step of the series.

        Returns False if the series has ended.
        """
        with self._lock:
            if self.series is None:
                return False
            step.numbers.append(number)
        return True

    def queue_numbers(self) -> None:
        """Queue the steps of the series that have ended."""
        with self._lock:
            series, steps = self.series, self._take_ended()
        if series is not None and steps:
            self._background.put(self._write_numbers, series, steps, nbytes=len(steps) * steps[-1].nbytes)
            self.is_odd = False

    def end_series(self) -> bool:
        """Queue the steps of the series.

        Return whether the last one has not ended. It is the current step then.
        """
        self.queue_numbers()
        with self._lock:
            series, self.series = self.series, None
            if series is not None:
                last = self._numbers.pop() if self._numbers else None
                self._leave_series = lambda: None
                self._oldest = self._newest = None
                if last is None:
                    self._batch, self._bytes, self._begun = [], 0, False
                    return False
                self._reopen(series, last)
        return True

    def _reopen(self, series: NumberLayout, last: NumberStep) -> None:
        """Make the last step of the series the current one."""
        self._key = last.key
        self._batch = series.captured(last)
        self._bytes = self.copied = sum(one.copy.nbytes for one in self._batch if one.copy is not None)
        self._begun, self._settled, self._published = False, True, False
        self._last_put = time.monotonic()

    def _take_ended(self) -> list[NumberStep]:
        """Return the steps of the series that have ended, which the caller writes."""
        end = len(self._numbers) if self.last_has_ended else len(self._numbers) - 1
        ended, self._numbers = self._numbers[: max(end, 0)], self._numbers[max(end, 0) :]
        return ended

    def _write_numbers(self, series: NumberLayout, steps: Sequence[NumberStep]) -> None:
        self.files.write_steps([(step.key, series.captured(step)) for step in steps])

    def _collect_numbers(self) -> None:
        """Write the steps of the series that the training has not queued for some time.

        Runs on the writer's thread whenever it wakes and nothing is queued. What lies in the series is later than
        everything that was queued.
        """
        with self._lock:
            series, oldest = self.series, self._numbers[0] if self._numbers else None
            is_late = oldest is not None and oldest is self._oldest
            self._oldest = oldest
            if series is None or not is_late or self._background.is_waiting:
                return
            steps = self._take_ended()
        self._write_numbers(series, steps)

    def _show_numbers(self) -> None:
        """Have the last step of the series published if it has not ended for some time."""
        with self._lock:
            newest = self._numbers[-1] if self._numbers else None
            is_late = newest is not None and newest is self._newest and not self.last_has_ended
            self._newest = newest
            if self.series is None or newest is None or not is_late or self._background.is_waiting:
                return
            series, steps = self.series, self._take_ended()
            self._numbers.clear()
            self._reopen(series, newest)
            self._last_put = -math.inf
            self.series = self._oldest = self._newest = None
        self._write_numbers(series, steps)

    # ------------------------------------------------------------------------------------------------------- the end

    @property
    def empty(self) -> bool:
        """Whether no tensor was added since the step began."""
        return not (self._batch or self._begun)

    def end(self) -> None:
        """End the step. The writer makes its files visible after it has written them."""
        if self._files is not None and not self.empty:
            with self._lock:
                batch, nbytes = self._batch, self._bytes
                self._batch, self._bytes = [], 0
            # A step of a few numbers waits for others: waking the writer takes longer than queueing them.
            self._background.put(
                self._finish,
                self._key,
                batch,
                nbytes=nbytes if batch else 0,
                wakes=self.is_odd or self._begun or nbytes > _FEW_BYTES,
            )
            self.is_odd = False

    def _finish(self, key: StepKey, batch: list[Captured]) -> None:
        if batch:
            self.files.write(key, batch)
        self.files.finish(key)

    def publish(self) -> None:
        """Make the current step visible to readers, although more tensors may follow."""
        if self._files is not None and not self.empty:
            with self._lock:
                self._queue_batch()
                self._published = True
            self._background.put(self._files.publish, self._key)

    def collections(self, content: str) -> None:
        """Write the collection file if its content has changed."""
        if self._files is not None and content != self._collections:
            self._collections = content
            self._background.put(self._files.collections, content)

    def wait(self) -> None:
        """Wait until every ended step is on disk."""
        self._background.wait()

    def close(self) -> None:
        """Write what is queued, then stop the writer's thread."""
        if self._files is not None:
            self._background.put(self._files.close)
        self._background.close()
        self.staging.clear()

    def _add(self, one: Captured) -> None:
        self._batch.append(one)
        self.names.add(one.name)
        self._published = False
        self._last_put = time.monotonic()

    def _idle(self) -> None:
        """Publish a settled step.

        Runs on the writer's thread every ``flush_seconds`` while nothing is queued.
        """
        self._touch()
        files = self._files
        if files is not None:
            files.idle()
        self._show_numbers()
        with self._lock:
            quiet = time.monotonic() - self._last_put >= self._flush_seconds
            if files is None or self._published or not self._settled or not quiet:
                return
            key, batch = self._key, self._batch
            self._batch, self._bytes, self._published = [], 0, True
            self._begun = self._begun or bool(batch)
        # This runs on the writer's thread, so batches that the training queues meanwhile are written after this one.
        if batch:
            files.write(key, batch)
        files.publish(key)

    def _queue_batch(self) -> None:
        if self._files is not None and self._batch:
            batch, nbytes = self._batch, self._bytes
            self._batch, self._bytes = [], 0
            self._begun = True
            self._background.put(self._files.write, self._key, batch, nbytes=max(nbytes, 1))
