"""Watch the workers of a cluster that computes a survey."""

from __future__ import annotations

import time
from typing import Final

from smdwidgets._text import visible
from smdwidgets.exceptions import ExecutorError, SMDebugError
from smdwidgets.executors import Executor

#: Seconds between two looks at the workers, and seconds without any after which the cluster is given up.
LOOK_EVERY: Final = 1.0
WITHOUT_WORKERS = 60.0


class ClusterWatch:
    """Counts the workers of an executor.

    >>> from smdwidgets.executors import ProcessExecutor
    >>> ClusterWatch(ProcessExecutor(2)).workers
    2
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.workers = executor.workers
        self._next = time.monotonic() + LOOK_EVERY
        self._seen = time.monotonic()

    def look(self) -> bool:
        """Count the workers if it is time to; return whether their number changed.

        Raises ExecutorError if there have been none for a minute.
        """
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + LOOK_EVERY
        before, self.workers = self.workers, self._executor.workers
        if self.workers:
            self._seen = now
        elif now - self._seen > WITHOUT_WORKERS:
            raise ExecutorError(f"the cluster has had no workers for {WITHOUT_WORKERS:.0f} s")
        return self.workers != before


def failure_text(error: BaseException) -> str:
    """Return why a cluster does not read, as a sentence.

    >>> failure_text(ExecutorError("the Dask client is closed"))
    'Read without the cluster: the Dask client is closed'
    """
    # Errors of others say little without their type.
    known = isinstance(error, SMDebugError)
    reason = str(error).strip() or type(error).__name__
    return visible(f"Read without the cluster: {reason if known else f'{type(error).__name__}: {reason}'}", 400)
