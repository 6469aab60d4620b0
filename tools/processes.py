"""Start commands so that everything they start can be ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

#: A variable of the environment that marks all processes of a family.
MARK = "SMDWIDGETS_PROCESS_FAMILY"
#: Seconds between the request to end and the kill.
GRACE = 5.0


class ProcessFamily:
    """Commands and their descendants.

    Each command leads a process group. Descendants that leave it, such as Jupyter kernels and servers, are recognised
    by a variable that they inherit, on systems with /proc.
    """

    def __init__(self) -> None:
        self.mark = f"{os.getpid()}-{time.time_ns()}"
        self._groups: list[int] = []

    def start(self, command: Iterable[str], *, env: Mapping[str, str], **options: object) -> subprocess.Popen[bytes]:
        """Start a command as `subprocess.Popen` does, in a separate process group."""
        posix = os.name == "posix"
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            [*command], env={**env, MARK: self.mark}, start_new_session=posix, **options
        )
        if posix:
            self._groups.append(process.pid)
        return process

    def members(self) -> list[int]:
        """Return the ids of the processes that run."""
        mark = f"{MARK}={self.mark}".encode()
        members = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in environment.read_bytes().split(b"\0"):
                    members.append(int(environment.parent.name))
            except OSError:
                continue  # it ended, or belongs to another user
        return members

    def end(self) -> None:
        """End all processes: ask first, then kill those that remain."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + GRACE
        while self.members() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _signal(self, number: int) -> None:
        for pid in self.members():
            _send(os.kill, pid, number)
        for group in self._groups:
            _send(os.killpg, group, number)


def interrupt_on_termination() -> None:
    """Raise KeyboardInterrupt in the main thread on SIGTERM, as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _send(function: Callable[[int, int], None], target: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended
        function(target, number)
