"""Executor over a client of Dask's distributed scheduler.

Cancellation is pushed to the workers with one message each. Polling an event of the scheduler ten times a second from each of
128 workers would be 1,280 requests a second.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from smdwidgets import _core
from smdwidgets._text import listed
from smdwidgets.exceptions import ExecutorError, SMDebugTypeError, VersionMismatch
from smdwidgets.executors.protocol import Task
from smdwidgets.executors.task import cancel_sweep, run_task

#: Tasks that are submitted ahead for each thread of the workers.
AHEAD = 4
#: How often a task that raised is repeated.
RETRIES = 3
#: Seconds between two polls of the caller's cancellation.
_POLL = 0.1
#: Asks a worker for its version. It must work on workers without the package.
_VERSION = "__import__('importlib').import_module('smdwidgets._core').__version__"


class DaskExecutor:
    """Runs tasks on the workers of a ``distributed.Client``.

    >>> executor = DaskExecutor(Client("tcp://scheduler:8786"))     # doctest: +SKIP
    """

    def __init__(self, client: Any) -> None:
        if getattr(client, "asynchronous", False):
            raise SMDebugTypeError("client must be synchronous; create it with Client(..., asynchronous=False)")
        self.client = client
        #: Workers whose version was compared.
        self._checked: set[str] = set()

    def __repr__(self) -> str:
        return f"DaskExecutor({self.client!r})"

    @property
    def slots(self) -> int:
        """Number of threads of all workers."""
        self._check_open()
        return max(1, sum(int(worker["nthreads"]) for worker in self._workers().values()))

    def run(
        self, function: Callable[..., Any], tasks: Iterable[Task], cancelled: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Run tasks on the cluster; see :class:`~smdwidgets.executors.Executor`."""
        import distributed

        self._check_open()
        self._check_versions()
        sweep = uuid.uuid4().hex
        waiting = iter(tasks)
        numbers: dict[Any, int] = {}
        done = distributed.as_completed(with_results=True, raise_errors=False, loop=self.client.loop)

        def submit(count: int) -> None:
            for number, arguments in itertools.islice(waiting, count):
                future = self.client.submit(
                    run_task,
                    _core.__version__,
                    sweep,
                    function,
                    arguments,
                    key=f"smdwidgets-{sweep}-{number}",
                    retries=RETRIES,
                    pure=False,
                )
                numbers[future] = number
                done.add(future)

        try:
            submit(AHEAD * self.slots)
            while numbers:
                self._wait(done, cancelled)
                future, result = next(done)
                number = numbers.pop(future)
                if future.status != "finished":
                    raise self._failure(future, number, result)
                future.release()
                submit(1)
                yield number, result
        except (distributed.CancelledError, OSError, RuntimeError) as error:
            self._check_open(error)
            raise
        finally:
            if numbers:
                self._cancel(sweep, list(numbers))

    def _wait(self, done: Any, cancelled: Callable[[], bool] | None) -> None:
        """Wait for a result."""
        while not done.has_ready():
            if cancelled is not None and cancelled():
                raise KeyboardInterrupt("cancelled")
            self._check_open()
            with done.thread_condition:
                if not done.has_ready():
                    done.thread_condition.wait(_POLL)

    def _failure(self, future: Any, number: int, result: Any) -> BaseException:
        """Return the error of a task that did not finish."""
        import distributed

        self._check_open()
        error = future.exception() if future.status == "error" else None
        if isinstance(error, distributed.scheduler.KilledWorker):
            return ExecutorError(
                f"the workers that ran part {number} of the sweep ended {error.allowed_failures + 1} times; see the log of "
                f"worker {error.last_worker.address}. A common reason is the memory limit of the workers"
            )
        if isinstance(error, ModuleNotFoundError) and "smdwidgets" in str(error):
            return VersionMismatch(f"a worker cannot import the client's smdwidgets {_core.__version__}: {error}")
        if isinstance(error, BaseException):
            return error
        return ExecutorError(f"part {number} of the sweep was cancelled on the cluster; call the function again")

    def _cancel(self, sweep: str, futures: list[Any]) -> None:
        with suppress(Exception):  # the client may be closed, and the original error is what matters
            if self.client.status == "running":
                self.client.cancel(futures, force=True)
                self.client.run(cancel_sweep, sweep, on_error="ignore")

    def _check_open(self, error: BaseException | None = None) -> None:
        if self.client.status != "running":
            raise ExecutorError(
                f"the Dask client is {self.client.status}; create a client, and pass it as client= or to smdwidgets.use"
            ) from error

    def _workers(self) -> dict[str, Any]:
        return dict(self.client.scheduler_info(n_workers=-1)["workers"])

    def _check_versions(self) -> None:
        """Compare the versions of workers that were not seen before."""
        new = [address for address in self._workers() if address not in self._checked]
        if not new:
            return
        found = self.client.run(eval, _VERSION, workers=new, on_error="return")
        different = {
            address: version if isinstance(version, str) else f"no usable smdwidgets ({version})"
            for address, version in found.items()
            if version != _core.__version__ and not isinstance(version, OSError)
        }
        if different:
            which = listed([f"{address}: {version}" for address, version in sorted(different.items())], 4)
            raise VersionMismatch(
                f"the client has smdwidgets {_core.__version__}, workers have other versions: {which}; install the same "
                "version on all"
            )
        self._checked |= found.keys()
