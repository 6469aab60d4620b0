"""The lowest layer of a hook.

One thread at a time is inside, a forked process never is, and each kind of failure is logged once.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from smdwidgets.hooks import process

__all__ = ["GuardedHook", "guarded"]

logger = logging.getLogger("smdwidgets.hooks")

#: Failures that a hook notes in the run at most.
_MOST_FAILURES = 50

_P = ParamSpec("_P")
_H = TypeVar("_H", bound="GuardedHook")
_T = TypeVar("_T")


def guarded(method: Callable[Concatenate[_H, _P], _T]) -> Callable[Concatenate[_H, _P], _T]:
    """Let one thread at a time run a method.

    The hook's signal handlers do not interrupt it.
    In a forked process the hook is not alive, and the method must do nothing.
    """

    @functools.wraps(method)
    def call(hook: _H, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if hook._pid != os.getpid():  # another thread may have locked the gate when the process was forked
            return method(hook, *args, **kwargs)
        with hook._gate:
            return method(hook, *args, **kwargs)

    return call


class GuardedHook:
    """Whether a hook may record, and how it reports failures."""

    def __init__(self) -> None:
        self._gate = process.Gate()
        self._pid = os.getpid()
        #: Nothing more is saved; everything that was saved is written.
        self._closed = self._finished = False
        #: Why nothing is saved, unless the hook was closed.
        self._inactive = ""
        #: What was warned of already.
        self._warned: set[str] = set()
        #: Failures to save something, one of each kind.
        self._failures: list[str] = []

    def _alive(self) -> bool:
        """Whether the hook is open, and this process created it."""
        return not self._closed and self._pid == os.getpid()

    def _warn_once(self, key: str, message: str, *args: object) -> None:
        """Log a warning once per key."""
        if key not in self._warned:
            self._warned.add(key)
            logger.warning(message, *args)

    def _report_failure(self, kind: str, message: str) -> None:
        """Log the first failure of a kind, and note it in the run."""
        kind = f"failure {kind[:300]}"
        if kind not in self._warned:
            self._warn_once(kind, "%s; further failures of this kind are not logged", message)
            if len(self._failures) < _MOST_FAILURES:
                self._failures.append(message[:1000])
