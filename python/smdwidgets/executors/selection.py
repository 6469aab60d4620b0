"""Selection of the executor: for the process, or for one call."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from smdwidgets.exceptions import ExecutorError, SMDebugTypeError
from smdwidgets.executors.dask_client import DaskExecutor
from smdwidgets.executors.protocol import Executor
from smdwidgets.executors.scope import HERE, of_call

#: The executor of the process, as set by `use`; threads share it.
_default: Executor | None = None
_of_client: weakref.WeakKeyDictionary[Any, DaskExecutor] = weakref.WeakKeyDictionary()


class use:  # noqa: N801 - it is called like a function
    """Run the following sweeps on a cluster.

    It takes effect at once, for all threads, until another call; ``smdwidgets.use(None)`` returns to this process. As a
    context manager it takes effect until the end of the block.

    Args:
        client: a ``distributed.Client``, another executor, or None.

    >>> from smdwidgets.executors import current, use
    >>> use(None)
    use(None)
    >>> with use(None):
    ...     current() is None
    True
    """

    def __init__(self, client: Any) -> None:
        global _default
        self._before, _default = _default, executor_of(client)
        self._executor = _default

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _default
        _default = self._before

    def __repr__(self) -> str:
        return f"use({self._executor!r})"


def current() -> Executor | None:
    """Return the executor of sweeps, or None if they run in this process.

    >>> current() is None
    True
    """
    chosen = of_call.get()
    return None if chosen is HERE else chosen or _default


@contextmanager
def using(client: Any) -> Iterator[Executor | None]:
    """Use a client in this thread within the block.

    None changes nothing, HERE selects this process.

    >>> with using(None) as executor:
    ...     executor is None
    True
    """
    if client is None:
        yield current()
        return
    token = of_call.set(HERE if client is HERE else executor_of(client))
    try:
        yield current()
    finally:
        of_call.reset(token)


def executor_of(client: Any) -> Executor | None:
    """Return the executor of a client.

    >>> executor_of(None) is None
    True
    """
    if client is None or isinstance(client, Executor):
        return client
    # Compared by name, because Dask is optional and takes long to import.
    if type(client).__name__ == "Client" and type(client).__module__.startswith("distributed"):
        return _of_client.setdefault(client, DaskExecutor(client))
    raise SMDebugTypeError(f"client must be a distributed.Client, an executor or None, got {type(client).__name__}")


@contextmanager
def connect(address: str | None) -> Iterator[None]:
    """Use the cluster of a scheduler's address within the block; None changes nothing.

    >>> with connect(None):
    ...     current() is None
    True
    """
    if address is None:
        yield
        return
    try:
        from distributed import Client
    except ImportError:
        raise ExecutorError("a cluster needs Dask; run: pip install 'smdwidgets[dask]'") from None
    try:
        client = Client(address)
    except (OSError, ValueError) as error:
        raise ExecutorError(f"cannot connect to the Dask scheduler {address!r}: {error}") from None
    with client, use(client):
        yield
