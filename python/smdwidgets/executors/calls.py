"""Calls as bytes: how a task is sent, and how a worker calls it."""

from __future__ import annotations

import pickle
from typing import Any

from smdwidgets import _core
from smdwidgets.exceptions import ExecutorError
from smdwidgets.executors.scope import HERE, of_call


def dumps(call: Any) -> bytes:
    """Pickle a call or a result; classes of a notebook or script need cloudpickle.

    >>> call(dumps((lambda number, cancel: -number, (1,))), _core.Cancel())
    -1
    """
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(call)
    content: bytes = cloudpickle.dumps(call)
    return content


def call(content: bytes, cancel: _core.Cancel) -> Any:
    """Call the function of a task, in this process.

    What ends a process, such as the KeyboardInterrupt of a cancelled sweep, would end the worker.
    """
    function, arguments = pickle.loads(content)
    token = of_call.set(HERE)
    try:
        return function(*arguments, cancel=cancel)
    except (KeyboardInterrupt, SystemExit) as error:
        raise ExecutorError(f"the task ended with {error!r}") from error
    finally:
        of_call.reset(token)
