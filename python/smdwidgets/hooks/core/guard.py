"""Whether a hook may record, and how it reports failures.

One thread at a time is inside a hook, a forked process never is, and each kind of failure is logged once.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from smdwidgets._suspend import suspended
from smdwidgets._text import shown
from smdwidgets.hooks.core import process
from smdwidgets.hooks.core.process import Gate

__all__ = ["Guard", "gated", "guarded"]

logger = logging.getLogger("smdwidgets.hooks")

#: Failures that a hook notes in the run at most.
_MOST_FAILURES = 50

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Guard:
    """The state of a hook that decides whether it records.

    Args:
        out_dir: the run, for messages.
        silent: whether this hook is not expected to save: a dry run, or a worker that does not save.
    """

    def __init__(self, out_dir: str = "", silent: bool = False) -> None:
        self.gate = Gate()
        #: Called before each method of the hook that may change a step, such as one of the script.
        self.before_call: Callable[[], object] = lambda: None
        self.pid = process.pid
        #: Whether nothing more is saved, and whether everything that was saved is written.
        self.closed = self.finished = False
        #: Why nothing is saved, unless the hook was closed.
        self.inactive = ""
        #: Failures to save something, one of each kind.
        self.failures: list[str] = []
        self.out_dir = out_dir
        self.silent = silent
        self._warned: set[str] = set()

    @property
    def in_own_process(self) -> bool:
        """Whether this process created the hook."""
        return self.pid == process.pid

    @property
    def alive(self) -> bool:
        """Whether the hook records: it is open and not suspended, in its process."""
        return not self.closed and self.pid == process.pid and not suspended()

    def warn_once(self, key: str, message: str, *args: object) -> bool:
        """Log a warning once per key; return whether it was logged now."""
        if key in self._warned:
            return False
        self._warned.add(key)
        logger.warning(message, *args)
        return True

    def warn_inactive(self) -> None:
        """Warn once that nothing is saved, and why."""
        if self.silent or suspended():
            return
        if not self.in_own_process:
            reason = "this process is a fork; only the process that created the hook records"
        else:
            reason = self.inactive or "the hook is closed"
        self.warn_once("inactive", "not saved (%s): %s", shown(self.out_dir, 200), reason)

    def report_failure(self, kind: str, message: str) -> None:
        """Log the first failure of a kind, and note it in the run."""
        kind = f"failure {kind[:300]}"
        if self.warn_once(kind, "%s; further failures of this kind are not logged", message):
            self.note_failure(message)

    def note_failure(self, message: str) -> None:
        """Note a failure in the run."""
        if len(self.failures) < _MOST_FAILURES:
            self.failures.append(message[:1000])

    def report_error(self, error: Exception) -> None:
        """Log and note an exception of a callback, which must not reach the training."""
        kind = f"{type(error).__name__}: {error}"
        self.report_failure(kind, f"recording failed, and the training continues: {kind[:300]}")

    def report_repeated(self, name: str, when: str, advice: str) -> None:
        """Warn once that a name was saved twice, and note it in the run."""
        message = f"{shown(name)} was saved twice {when}, and only the last value is kept; {advice}"
        if self.warn_once("repeated", "%s: %s", shown(self.out_dir, 200), message):
            self.note_failure(message)


class _Guarded(Protocol):
    @property
    def guard(self) -> Guard: ...


_H = TypeVar("_H", bound=_Guarded)


def guarded(method: Callable[Concatenate[_H, _P], _T]) -> Callable[Concatenate[_H, _P], _T]:
    """Let one thread at a time run a method.

    The hook's signal handlers do not interrupt it.
    In a forked process the hook is not alive, and the method must do nothing.
    """
    return _gated(method, is_announced=True)


def gated(method: Callable[Concatenate[_H, _P], _T]) -> Callable[Concatenate[_H, _P], _T]:
    """Guard a method that calls :attr:`Guard.before_call` itself if it has to."""
    return _gated(method, is_announced=False)


def _gated(method: Callable[Concatenate[_H, _P], _T], is_announced: bool) -> Callable[Concatenate[_H, _P], _T]:
    @functools.wraps(method)
    def call(hook: _H, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        guard = hook.guard
        if guard.pid != process.pid:  # another thread may have locked the gate when the process was forked
            return method(hook, *args, **kwargs)
        with guard.gate:
            if is_announced:
                guard.before_call()
            return method(hook, *args, **kwargs)

    return call
