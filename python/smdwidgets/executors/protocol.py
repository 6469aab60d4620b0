"""Interface of executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Task(NamedTuple):
    """One call of the function: its identity and its arguments, which can be pickled."""

    number: int
    arguments: tuple[Any, ...]


@runtime_checkable
class Executor(Protocol):
    """Calls a function for many tasks.

    The function is importable on every worker. It is called as ``function(*task.arguments, cancel=cancel)``, where
    ``cancel`` is a :class:`smdwidgets._core.Cancel` that is set when the caller gives up. It is pure: a task may be
    repeated.
    """

    @property
    def slots(self) -> int:
        """Number of tasks that run at the same time."""

    @property
    def workers(self) -> int:
        """Number of processes that run tasks at the moment."""

    def run(
        self, function: Callable[..., Any], tasks: Iterable[Task], cancelled: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Any]]:
        """Yield the number and the result of each task once, in order of completion.

        Tasks are taken from the iterable as workers become free. Closing the iterator, or any error, cancels the rest.

        Args:
            function: what each task calls.
            tasks: the tasks; their numbers differ.
            cancelled: polled while waiting; True cancels the tasks and raises KeyboardInterrupt.
        """
