"""Executor over a client of Dask's distributed scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from typing import Any

from smdwidgets import _core
from smdwidgets._text import listed
from smdwidgets.exceptions import ExecutorError, SMDebugTypeError, VersionMismatch
from smdwidgets.executors.dask_sweep import DaskSweep
from smdwidgets.executors.protocol import Task

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
        """Number of threads of all workers; 1 while there are none."""
        self._check_open()
        try:
            threads: dict[str, int] = self.client.nthreads()
        except OSError as error:
            self._check_open(error)
            raise _lost(error) from error
        return max(1, sum(threads.values()))

    @property
    def workers(self) -> int:
        """Number of workers of the cluster at the moment."""
        self._check_open()
        return len(self.client.nthreads())

    def run(
        self, function: Callable[..., Any], tasks: Iterable[Task], cancelled: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Run tasks on the cluster; see :class:`~smdwidgets.executors.Executor`."""

        def check() -> None:
            if cancelled is not None and cancelled():
                raise KeyboardInterrupt("cancelled")
            self._check_open()

        check()
        sweep = DaskSweep(self.client, function, tasks, check)
        try:
            self._check_versions(sweep)
            while (ended := sweep.next()) is not None:
                if ended.error is not None:
                    check()
                    self._check_versions(sweep)  # of workers that joined, which is a better reason
                    raise _failure(ended.number, ended.error)
                yield ended.number, ended.result
        except Exception as error:
            from distributed.comm import CommClosedError

            self._check_open(error)
            if isinstance(error, CommClosedError):  # of a question to the scheduler; the client has not noticed yet
                raise _lost(error) from error
            raise
        finally:
            sweep.cancel()

    def _check_open(self, error: BaseException | None = None) -> None:
        if self.client.status == "connecting":
            raise _lost(error) from error
        if self.client.status != "running":
            raise ExecutorError(
                f"the Dask client is {self.client.status}; create a client, and pass it as client= or to smdwidgets.use"
            ) from error

    def _check_versions(self, sweep: DaskSweep) -> None:
        """Compare the versions of workers that were not seen before."""
        new = [address for address in sweep.workers() if address not in self._checked]
        if not new:
            return
        found = sweep.call(lambda: self.client.run(eval, _VERSION, workers=new, on_error="return"))
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
        self._checked |= {address for address, version in found.items() if isinstance(version, str)}


def _failure(number: int, error: BaseException) -> BaseException:
    """Return the error of a task that has no result."""
    from distributed.scheduler import KilledWorker

    if isinstance(error, KilledWorker):
        return ExecutorError(
            f"the workers that ran part {number} of the sweep ended {error.allowed_failures + 1} times; see the log of "
            f"worker {error.last_worker.address}. A common reason is the memory limit of the workers"
        )
    if isinstance(error, ModuleNotFoundError) and "smdwidgets" in str(error):
        return VersionMismatch(f"a worker cannot import the client's smdwidgets {_core.__version__}: {error}")
    if isinstance(error, CancelledError):
        reason = getattr(error, "reason", "unknown")
        if reason == "scheduler-connection-lost":
            return _lost(error)
        because = "" if reason == "unknown" else f" ({reason})"
        return ExecutorError(
            f"part {number} of the sweep was cancelled on the cluster{because}; call the function again"
        )
    return error


def _lost(error: BaseException | None) -> ExecutorError:
    """Return the error of a sweep whose scheduler is gone."""
    because = f" ({error})" if error is not None and str(error) else ""
    return ExecutorError(
        f"the Dask client lost the connection to its scheduler{because}; the results of the sweep are lost. See whether "
        "the scheduler runs, and call the function again"
    )
