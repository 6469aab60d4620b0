"""What runs on a worker: one task, which checks the version and can be cancelled."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from smdwidgets import _core
from smdwidgets.exceptions import VersionMismatch

#: Sweeps whose cancellation is remembered, so that a task that starts late is cancelled, too.
_REMEMBERED = 256

_lock = threading.Lock()
_flags: OrderedDict[str, _core.Cancel] = OrderedDict()


def _flag(sweep: str) -> _core.Cancel:
    with _lock:
        flag = _flags.setdefault(sweep, _core.Cancel())
        _flags.move_to_end(sweep)
        while len(_flags) > _REMEMBERED:
            _flags.popitem(last=False)
        return flag


def cancel_sweep(sweep: str) -> None:
    """Cancel the running and later tasks of a sweep in this process."""
    _flag(sweep).set()


def check_version(expected: str) -> None:
    """Raise an error if the package in this process differs from the caller's."""
    if _core.__version__ != expected:
        raise VersionMismatch(
            f"this worker has smdwidgets {_core.__version__}, the client has {expected}; install the same version on both"
        )


def run_task(version: str, sweep: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Call the function of a sweep for one task."""
    check_version(version)
    return function(*arguments, cancel=_flag(sweep))
