"""The tasks of one sweep on the workers of a Dask cluster.

All waiting is done by coroutines on the loop of the client. Each puts what it got into one queue, which the caller's
thread reads with a time limit, so that Ctrl-C and the caller's cancellation are noticed while a worker or the scheduler
does not respond.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import queue
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, NamedTuple

from smdwidgets import _core
from smdwidgets.executors.calls import dumps
from smdwidgets.executors.protocol import Task

#: What a task evaluates. The scheduler unpickles tasks, too, and need not have the package; a worker compares the
#: versions before it unpickles the call.
_RUN = "__import__('importlib').import_module('smdwidgets.executors.task').run_task(version, content)"
#: Tasks that are submitted ahead for each thread of the workers. They take about one second each, and an adaptive
#: cluster ends workers that have less than five seconds of work.
AHEAD = 16
#: How often a task that raised is repeated.
RETRIES = 3
#: Seconds between two polls of the caller's cancellation, and between two requests for the number of threads.
_POLL, _ASK = 0.1, 1.0
#: Seconds that a cancelled sweep waits until the scheduler knows.
_CANCEL = 5.0
#: Seconds between two messages that there are no workers.
_REMIND = 60.0

logger = logging.getLogger("smdwidgets")


class Ended(NamedTuple):
    """The end of a task: its number, and its result or its error."""

    number: int
    result: Any
    error: BaseException | None


class DaskSweep:
    """Submits tasks, waits for their results, and cancels them.

    Args:
        client: the ``distributed.Client``.
        function: what each task calls.
        tasks: the tasks.
        check: called while waiting; it may raise.
    """

    def __init__(
        self, client: Any, function: Callable[..., Any], tasks: Iterable[Task], check: Callable[[], None]
    ) -> None:
        self._client = client
        self._function = function
        self._tasks = iter(tasks)
        self._check = check
        self._name = uuid.uuid4().hex
        #: Tasks that were submitted and have not ended, by number.
        self._running: dict[int, Any] = {}
        self._ended: queue.SimpleQueue[Ended] = queue.SimpleQueue()
        #: Threads of all workers, as last answered, and the request for them.
        self._threads = 0
        self._asking: Future[dict[str, int]] | None = None
        self._asked = self._reminded = -math.inf

    def call(self, function: Callable[[], Any]) -> Any:
        """Return the result of a function that returns a coroutine on the loop."""
        started = self._start(function)
        while not started.done():
            wait([started], _POLL)
            self._check()
        return started.result()

    def workers(self) -> list[str]:
        """Return the addresses of the workers."""
        threads = self.call(self._client.nthreads)
        self._threads, self._asked = sum(threads.values()), time.monotonic()
        return list(threads)

    def next(self) -> Ended | None:
        """Return the next task that ended, or None after the last one."""
        self._submit()
        while self._running:
            self._ask()
            with suppress(queue.Empty):
                ended = self._ended.get(timeout=_POLL)
                self._running.pop(ended.number).release()
                return ended
            self._check()
            self._submit()
        return None

    def cancel(self) -> None:
        """Cancel all tasks: those that wait, and those that run."""
        running = list(self._running.values())
        if running and self._client.status == "running":
            wait([self._start(lambda: self._client.cancel(running, force=True))], _CANCEL)

    def _start(self, function: Callable[[], Any]) -> Future[Any]:
        async def called() -> Any:
            return await function()

        return asyncio.run_coroutine_threadsafe(called(), self._client.loop.asyncio_loop)

    def _submit(self) -> None:
        """Submit tasks, so that enough are ahead for the threads of the workers."""
        missing = AHEAD * max(1, self._threads) - len(self._running)
        for number, arguments in itertools.islice(self._tasks, max(0, missing)):
            names = {"content": dumps((self._function, arguments)), "version": _core.__version__}
            key = f"smdwidgets-{self._name}-{number}"
            future = self._client.submit(eval, _RUN, names, key=key, retries=RETRIES, pure=False)
            self._running[number] = future
            following = self._follow(number, future)
            asyncio.run_coroutine_threadsafe(following, self._client.loop.asyncio_loop)

    async def _follow(self, number: int, future: Any) -> None:
        """Wait for the result of a task.

        It is computed again if its worker is lost before the result is sent.
        """
        try:
            self._ended.put(Ended(number, await self._client.gather(future), None))
        except BaseException as error:
            self._ended.put(Ended(number, None, error))

    def _ask(self) -> None:
        """Ask for the number of threads from time to time, since workers join and leave."""
        now = time.monotonic()
        if self._asking is not None and self._asking.done():
            with suppress(Exception):  # the scheduler may be gone, which is noticed otherwise
                self._threads = sum(self._asking.result().values())
                self._remind(now)
            self._asking = None
        if self._asking is None and now - self._asked > _ASK:
            self._asking, self._asked = self._start(self._client.nthreads), now

    def _remind(self, now: float) -> None:
        if not self._threads and now - self._reminded > _REMIND:
            self._reminded = now
            logger.warning("the Dask cluster %s has no workers; waiting for one", self._client.scheduler.address)
