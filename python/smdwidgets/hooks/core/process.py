"""Close the open hooks when the process ends, forks or receives a signal.

Open hooks are held strongly: a hook that lives only in a function, or only in a model's callbacks, still records until
it is closed. At the end of the process every open hook is closed, however the process ends:

* end of the script, uncaught exception, ``sys.exit``, Ctrl-C: ``atexit``;
* end of a ``multiprocessing`` child, which skips ``atexit``: a finalizer of ``multiprocessing``;
* SIGTERM and SIGHUP: a signal handler, where the process has no other handler. A handler that the script had installed
  before is called after the hooks are flushed; one that it installs later replaces ours;
* SIGUSR1: nothing ends; the flight recorders write their steps. Outside SLURM, where the signal announces the end of
  the time limit to libraries that handle it only if nothing else does;
* ``os._exit``, SIGKILL: nothing can run. The writer's thread bounds what is lost (``flush_seconds``).

A forked child has no open hooks: it never writes to its parent's run.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol

from smdwidgets.run_end import RunEnd

__all__ = ["Gate", "close_all", "closed", "open_hooks", "opened"]

logger = logging.getLogger("smdwidgets.hooks")

_ENDS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
#: The signal that asks the flight recorders for their steps.
_DUMP = getattr(signal, "SIGUSR1", None)


class Closeable(Protocol):
    """What this module needs of a hook."""

    def end(self, end: RunEnd) -> None: ...

    def interrupted(self, end: RunEnd) -> None: ...

    def dump(self, why: str) -> None: ...


_open: dict[int, Closeable] = {}  # by id, in the order of their creation
#: Handlers that ours took the place of, by signal.
_previous: dict[int, Any] = {}
#: All gates. A signal handler runs on the main thread between any two instructions, and asks them whether it is inside.
_gates: weakref.WeakSet[Gate] = weakref.WeakSet()
#: Signals that arrived while the main thread was inside a gate.
_pending: list[int] = []
_main_thread = threading.main_thread().ident
#: The number of this process. Asking the system for it takes longer than most callbacks.
pid = os.getpid()
_finalized_by_multiprocessing = False


class Gate:
    """A re-entrant lock around a hook's state.

    A signal that arrives while the main thread holds it is handled afterwards. ``seconds`` is the time that the
    training has spent inside, which is what the hook costs it.
    """

    __slots__ = ("__weakref__", "_depth", "_lock", "_since", "seconds")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: How often the thread that is inside has entered; 0 without one.
        self._depth = 0
        self._since = 0.0
        self.seconds = 0.0
        _gates.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is inside."""
        return self._lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    @property
    def elapsed(self) -> float:
        """The time that the training has spent inside, up to now."""
        return self.seconds + (time.perf_counter() - self._since if self._depth else 0.0)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1
        if self._depth == 1:
            self._since = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._since
        self._lock.release()
        if _pending:
            _handle_pending()

    def around(self, function: Callable[..., bool]) -> Callable[..., bool]:
        """Return a function that calls another one inside.

        It returns False instead if its thread is inside already. A ``with`` statement takes three times as long.
        """
        lock, clock = self._lock, time.perf_counter

        def call(*args: Any) -> bool:
            try:
                with lock:
                    if self._depth:
                        return False
                    self._depth, self._since = 1, clock()
                    try:
                        return function(*args)
                    finally:
                        self.seconds += clock() - self._since
                        self._depth = 0
            finally:
                if _pending:
                    _handle_pending()

        return call


def _handle_pending() -> None:
    """Handle a signal that arrived inside a gate, if the main thread has left it."""
    if threading.get_ident() == _main_thread and not _is_inside():
        _handle(_pending.pop(0), None)


def _is_inside() -> bool:
    """Whether the calling thread is inside a gate."""
    return any(gate.is_mine for gate in list(_gates))


# ------------------------------------------------------------------------------------------------------------- registry


def open_hooks() -> list[Any]:
    """The open hooks of this process, oldest first."""
    return list(_open.values())


def opened(hook: Closeable) -> None:
    """Keep a hook until it is closed."""
    global _finalized_by_multiprocessing
    _open[id(hook)] = hook
    _install_handlers()
    multiprocessing = sys.modules.get("multiprocessing.process")
    if (
        not _finalized_by_multiprocessing
        and multiprocessing is not None
        and multiprocessing.parent_process() is not None
    ):
        from multiprocessing.util import Finalize

        _finalized_by_multiprocessing = True
        Finalize(None, close_all, exitpriority=0)


def closed(hook: Closeable) -> None:
    """Forget a hook that was closed."""
    _open.pop(id(hook), None)
    if not _open:
        _restore_handlers()


def close_all(end: RunEnd | None = None) -> None:
    """Close every open hook."""
    if end is None:
        end = RunEnd.of(_uncaught())
    for hook in open_hooks():
        try:
            hook.end(end)
        except Exception:
            logger.exception("a hook could not be closed")


atexit.register(close_all)


def _uncaught() -> BaseException | None:
    """The exception that ends the process, if one does."""
    if (current := sys.exc_info()[1]) is not None:  # a multiprocessing child runs its finalizers while it propagates
        return current
    if hasattr(sys, "ps1") or "get_ipython" in vars(sys.modules["builtins"]):
        return None  # in an interactive session the last exception was that of some cell
    found = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return found if isinstance(found, BaseException) else None


# -------------------------------------------------------------------------------------------------------------- signals


def _install_handlers() -> None:
    """Install the signal handlers, on the main thread and unless ignored."""
    if threading.get_ident() != _main_thread:
        return
    for number in _ENDS if _DUMP is None or "SLURM_JOB_ID" in os.environ else [*_ENDS, _DUMP]:
        current = signal.getsignal(number)
        # None is a handler that was not installed from Python, which could not be called afterwards.
        if current is not _handle and current is not signal.SIG_IGN and current is not None:
            try:
                signal.signal(number, _handle)
            except (ValueError, OSError):  # a subinterpreter, or a signal that cannot be handled here
                continue
            _previous[number] = current


def _restore_handlers() -> None:
    if threading.get_ident() == _main_thread:
        for number, previous in list(_previous.items()):
            if signal.getsignal(number) is _handle:
                signal.signal(number, previous)
                del _previous[number]


def _handle(number: int, frame: FrameType | None) -> None:
    """Flush and close the hooks, then do what the signal would have done without them."""
    if _is_inside():
        _pending.append(number)
        return
    if number == _DUMP:
        _handle_dump(number, frame)
        return
    end = RunEnd("signal", signal.Signals(number).name)
    previous: Callable[[int, FrameType | None], object] | Any = _previous.get(number, signal.SIG_DFL)
    if callable(previous) or signal.getsignal(number) is not _handle:
        # The script's own handler decides whether training goes on. One that was installed later may have called us.
        for hook in open_hooks():
            try:
                hook.interrupted(end)
            except Exception:
                logger.exception("a hook could not be flushed")
        if callable(previous):
            previous(number, frame)
        return
    signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
    close_all(end)
    signal.raise_signal(number)


def _handle_dump(number: int, frame: FrameType | None) -> None:
    """Ask the flight recorders for their steps, then call the script's own handler.

    Without one, training goes on: the signal was sent for the steps.
    """
    for hook in open_hooks():
        try:
            hook.dump(signal.Signals(number).name)
        except Exception:
            logger.exception("cannot dump the flight recorder")
    previous = _previous.get(number)
    if callable(previous):
        previous(number, frame)


# ---------------------------------------------------------------------------------------------------------------- forks


def _in_child() -> None:
    """Give a forked child no open hooks and its original signal handlers."""
    global _main_thread, _finalized_by_multiprocessing, pid
    pid = os.getpid()
    _main_thread = threading.get_ident()
    _gates.clear()
    _pending.clear()
    _finalized_by_multiprocessing = False
    _open.clear()
    _restore_handlers()
    _previous.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
