"""The recording of a launch: a hook per training, and a line at both ends.

What goes wrong here ends the recording, never the script.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from smdwidgets.exceptions import SMDebugError, TrainingStopped
from smdwidgets.hooks.core import process
from smdwidgets.hooks.core.hook import Hook, current_hook, set_current_hook
from smdwidgets.launch.console import keep_logs_off_stdout, say, short_path
from smdwidgets.launch.directories import directory_of
from smdwidgets.launch.options import Options
from smdwidgets.run_end import RunEnd

__all__ = ["Recording"]

#: Trainings that a process records at most. A search over parameters has thousands.
_MOST = 100

_P = ParamSpec("_P")
_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hook)


class Recording:
    """Records the trainings of this process.

    Args:
        options: what to record, and where.
        launch: identifies all processes of the launch.
        noticed: called for each training that is recorded, or of which a line says why it is not.
    """

    def __init__(self, options: Options, launch: str, noticed: Callable[[], None]) -> None:
        self._options = options
        self._launch = launch
        self._noticed = noticed
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._hooks: list[Hook] = []
        self._trainings = 0
        self._said: set[str] = set()
        #: Whether nothing is recorded any more.
        self.is_over = False
        keep_logs_off_stdout()

    @property
    def is_active(self) -> bool:
        """Whether a training that begins now is recorded in this process."""
        return not self.is_over and self._pid == os.getpid()

    @property
    def only_checks(self) -> bool:
        """Whether trainings are checked and not recorded."""
        return bool(self._options.checks_only)

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The open hooks of this recording."""
        return tuple(self._hooks)

    # ------------------------------------------------------------------------------------------------------- guarding

    def guarded(self, call: Callable[_P, _T]) -> Callable[_P, _T | None]:
        """Return a function that never raises. Its first failure ends the recording."""

        @functools.wraps(call)
        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
            if not self.is_active:
                return None
            with self._lock:
                try:
                    return call(*args, **kwargs)
                except TrainingStopped:
                    raise
                except Exception as error:
                    self.fail(error)
                    return None

        return guarded

    def fail(self, error: Exception) -> None:
        """Record no further training; the script continues."""
        self.is_over = True
        text = str(error) if isinstance(error, SMDebugError | OSError) else f"{type(error).__name__}: {error}"
        self.say_once(f"nothing is recorded from now on, and the script continues: {text}")

    def say_once(self, message: str) -> None:
        """Print a line that was not printed before."""
        self._noticed()
        if message not in self._said:
            self._said.add(message)
            say(message)

    # ------------------------------------------------------------------------------------------------------ trainings

    def begin(self, kind: type[_H], what: str, **options: Any) -> _H | None:
        """Open a hook for a training that begins; return None if it is not to be recorded.

        Args:
            kind: class of the hook.
            what: the model, for the line that is printed.
            options: further arguments of the hook.
        """
        if not self.is_active:
            return None
        if own := [hook for hook in process.open_hooks() if hook not in self._hooks]:
            self.say_once(
                f"nothing is recorded twice: the script has its own hook, which saves to {short_path(own[0].out_dir)}"
            )
            return None
        if self._trainings == _MOST:
            self.say_once(f"{_MOST} trainings were recorded; further ones of this process are not")
            return None
        self._trainings += 1
        import smdwidgets.diagnosis  # noqa: F401 - when the process ends, modules that start threads cannot be imported

        current = current_hook()
        try:
            hook = self._open(kind, options)
        finally:
            set_current_hook(current)  # the script's `get_hook()` must not return ours
        hook.when_closed = self._ended
        self._hooks.append(hook)
        self._noticed()
        if self._options.checks_only:
            if _is_first(hook):
                say(f"checking {what}: the first {self._options.checks_only} updates")
        elif _is_first(hook) and not hook.guard.inactive:
            say(f"recording {what} to {short_path(hook.out_dir)}: {self._options.describe(kind)}")
        return hook

    def _open(self, kind: type[_H], options: dict[str, Any]) -> _H:
        _, workers = kind.current_worker()
        key: dict[str, object] = {"launch": self._launch, "training": self._trainings}
        if workers == 1:
            key["process"] = self._pid
        else:  # the same in all processes of a group; torchrun restarts all of them if one fails
            names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT")
            key["group"] = [os.environ.get(name, "") for name in names]
        return self._options.hook(kind, directory_of(self._options.out, key), **options)

    def end(self, hook: Hook, error: BaseException | None = None) -> None:
        """Close the hook of a training that has ended."""
        hook.end(RunEnd.of(error))

    def _ended(self, hook: Hook, end: RunEnd) -> None:
        if hook in self._hooks:
            self._hooks.remove(hook)
        if _is_first(hook) and not hook.guard.inactive and not self._options.checks_only:
            say(_summary(hook, end))


def _is_first(hook: Hook) -> bool:
    return hook.worker == "worker_0"


def _summary(hook: Hook, end: RunEnd) -> str:
    """Return the line at the end of a run: what was found, and how to look."""
    path = short_path(hook.out_dir)
    steps = hook.parts.steps.last + 1
    if not steps:
        return f"nothing was recorded in {path}: {hook.why_no_step()}"
    # A user who interrupts a training does not wait for its diagnosis.
    interrupted = end.how == "signal" or end.detail.startswith("KeyboardInterrupt")
    found = f"Ended by {end.detail}." if interrupted else _finding(hook)
    return (
        f"recorded {steps:,} step{'s' if steps > 1 else ''} in {path}. {found} "
        f"Look at it: smdwidgets diagnose {path}, or smdwidgets.explore({path!r}) in a notebook"
    )


def _finding(hook: Hook) -> str:
    """Return the first finding of a diagnosis, or its summary."""
    from smdwidgets.diagnosis import diagnose
    from smdwidgets.trials import create_trial

    try:
        with create_trial(hook.out_dir) as trial:
            if hook.num_workers == 1:
                trial.reader.end_delay = 0.0  # this process has written everything
            result = diagnose(trial)
    except Exception as error:
        return f"It could not be diagnosed ({type(error).__name__}: {error})."
    if not result.findings:
        return result.summary
    more = len(result.findings) - 1
    return result.findings[0].text + (f" ({more} more finding{'s' if more > 1 else ''})" if more else "")
