"""A task on a worker of Dask, which checks the version and can be cancelled."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from smdwidgets import _core
from smdwidgets.exceptions import VersionMismatch
from smdwidgets.executors.calls import call
from smdwidgets.executors.gc_lock import repair

#: Seconds between two looks at the state of a running task.
_POLL = 0.1


def check_version(expected: str) -> None:
    """Raise an error if the package in this process differs from the caller's."""
    if _core.__version__ != expected:
        raise VersionMismatch(
            f"this worker has smdwidgets {_core.__version__}, the client has {expected}; install the same version on both"
        )


def run_task(version: str, content: bytes) -> Any:
    """Call the function of a sweep for one task."""
    check_version(version)
    repair()
    with _cancellation() as cancel:
        return call(content, cancel)


@contextmanager
def _cancellation() -> Iterator[_core.Cancel]:
    """A flag that is set when nobody wants the result of this thread's task any more.

    The scheduler tells the worker when a client cancels a task, is closed, or is lost. Dask drops tasks that wait, and
    marks those that run. No message is needed for each poll.
    """
    import distributed

    worker = distributed.get_worker()
    key, cancel, ended = worker.get_current_task(), _core.Cancel(), False

    async def watch() -> None:
        while not ended and not cancel.is_set():
            task = worker.state.tasks.get(key)
            if task is None or task.state == "cancelled":
                cancel.set()
            await asyncio.sleep(_POLL)

    if worker.nanny is not None:
        worker.loop.add_callback(_ignore_interrupts)
    worker.loop.add_callback(watch)
    try:
        yield cancel
    finally:
        ended = True


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in this worker process, which its nanny ends when it should end.

    Ctrl-C in a terminal or a notebook reaches the workers of a LocalCluster, too. They would end, and would not be
    started again.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
