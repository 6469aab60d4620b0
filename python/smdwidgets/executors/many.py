"""Call a function for many runs, each on one worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from smdwidgets import _core
from smdwidgets.executors.processes import ProcessExecutor
from smdwidgets.executors.protocol import Task
from smdwidgets.executors.selection import current, executor_of


def call_many(
    function: Callable[..., Any],
    calls: Sequence[tuple[Any, ...]],
    client: Any = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Any]:
    """Return the results of a function for many arguments, in their order.

    Args:
        function: called with each tuple of arguments and ``cancel``.
        calls: the arguments.
        client: a client or an executor; None: that of :func:`smdwidgets.use`, else processes of this machine. One call
            without a client runs in this process.
        progress: called with the number of finished calls and their total.
    """
    executor = executor_of(client) or current()
    if executor is None and len(calls) <= 1:
        return [function(*arguments, cancel=_core.Cancel()) for arguments in calls]
    executor = executor or ProcessExecutor(min(len(calls), ProcessExecutor().slots))
    results: dict[int, Any] = {}
    found: Iterator[tuple[int, Any]] = executor.run(function, (Task(*task) for task in enumerate(calls)))
    with contextlib.closing(found):  # type: ignore[type-var]
        for number, result in found:
            results[number] = result
            if progress is not None:
                progress(len(results), len(calls))
    return [results[number] for number in range(len(calls))]
