"""Executor over processes of this machine.

The processes are started as ``python -m smdwidgets.executors.worker`` and not by multiprocessing, which imports the
script of the caller in each of them. So notebooks and scripts need no ``if __name__ == "__main__"``.
"""

from __future__ import annotations

import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import IO, Any

from smdwidgets.exceptions import ExecutorError
from smdwidgets.executors.calls import dumps
from smdwidgets.executors.frames import read_frame, write_frame
from smdwidgets.executors.protocol import Task

#: How often a task is repeated after its process ended.
RETRIES = 3
_POLL = 0.1


def _cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class ProcessExecutor:
    """Runs tasks in processes of this machine, which end with the sweep.

    Args:
        processes: number of processes; None: one for each core.

    >>> ProcessExecutor(2).slots
    2
    """

    def __init__(self, processes: int | None = None) -> None:
        if processes is not None and processes < 1:
            raise ValueError(f"processes must be >= 1 or None, got {processes}")
        self._slots = _cores() if processes is None else processes

    @property
    def slots(self) -> int:
        """Number of processes."""
        return self._slots

    @property
    def workers(self) -> int:
        """Number of processes."""
        return self.slots

    def run(
        self, function: Callable[..., Any], tasks: Iterable[Task], cancelled: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Run tasks in processes; see :class:`~smdwidgets.executors.Executor`."""
        pool = _Pool(function, iter(tasks), self.slots)
        try:
            while pool.running:
                try:
                    number, error, result = pool.results.get(timeout=_POLL)
                except queue.Empty:
                    if cancelled is not None and cancelled():
                        raise KeyboardInterrupt("cancelled") from None
                    continue
                if error is not None:
                    raise error
                if number is None:
                    pool.running -= 1
                else:
                    yield number, result
        finally:
            pool.close()


class _Pool:
    """The processes of one sweep, each driven by a thread of this process."""

    def __init__(self, function: Callable[..., Any], tasks: Iterator[Task], slots: int) -> None:
        self._function = function
        self._tasks = tasks
        self._lock = threading.Lock()
        self._processes: set[_Process] = set()
        self._closed = False
        self.results: queue.SimpleQueue[tuple[int | None, BaseException | None, Any]] = queue.SimpleQueue()
        #: Number of threads.
        self.running = slots
        for number in range(slots):
            threading.Thread(target=self._drive, name=f"smdwidgets-process-{number}", daemon=True).start()

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            self._closed = True
            processes = list(self._processes)
        for process in processes:
            process.kill()

    def _next(self) -> Task | None:
        with self._lock:
            return None if self._closed else next(self._tasks, None)

    def _drive(self) -> None:
        process = None
        error: BaseException | None = None
        try:
            while (task := self._next()) is not None:
                for attempt in range(RETRIES + 1):
                    process = process or self._started()
                    if process is None:
                        return
                    try:
                        failed, result = process.call(self._function, task.arguments)
                        break
                    except (EOFError, OSError):
                        self._end(process)
                        process = None
                        if self._closed:
                            return
                        if attempt == RETRIES:
                            raise ExecutorError(
                                f"the processes that ran task {task.number} ended {RETRIES + 1} times. A common reason "
                                "is that the machine has no memory left"
                            ) from None
                self.results.put((task.number, result if failed else None, None if failed else result))
        except BaseException as caught:
            error = caught
        finally:
            if process is not None:
                self._end(process)
            self.results.put((None, error, None))

    def _started(self) -> _Process | None:
        process = _Process()
        with self._lock:
            if not self._closed:
                self._processes.add(process)
                return process
        process.kill()
        return None

    def _end(self, process: _Process) -> None:
        with self._lock:
            self._processes.discard(process)
        process.kill()


class _Process:
    """One process, which answers one call at a time."""

    def __init__(self) -> None:
        # A separate session, so that Ctrl-C interrupts the caller only, which then ends the process.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        write_frame(self._stdin, pickle.dumps(sys.path))

    @property
    def _stdin(self) -> IO[bytes]:
        return self._process.stdin  # type: ignore[return-value]

    def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """Return whether the call raised, and the exception or the result."""
        write_frame(self._stdin, dumps((function, arguments)))
        answer: tuple[bool, Any] = pickle.loads(read_frame(self._process.stdout))  # type: ignore[arg-type]
        return answer

    def kill(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


#: The first frame has the module search path, since the package may not be installed.
_START = """
import pickle, struct, sys
size, = struct.unpack(">Q", sys.stdin.buffer.read(8))
sys.path[:] = pickle.loads(sys.stdin.buffer.read(size))
from smdwidgets.executors.worker import main
main()
"""
