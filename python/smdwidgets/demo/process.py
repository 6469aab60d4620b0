"""Run the demo training as a child process that ends with its parent."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import SMDebugRuntimeError

#: How many steps must be saved before the run is shown, so that the step slider has a range.
_FIRST_STEPS = 5
_TIMEOUT = 60.0


class TrainingProcess:
    """`python -m smdwidgets.demo.training`, running.

    >>> process = TrainingProcess("runs/demo", seconds=120)    # doctest: +SKIP
    >>> process.stop()                                         # doctest: +SKIP
    """

    def __init__(self, directory: str, seconds: float) -> None:
        self.directory = directory
        # The training deletes an earlier run once it has started. Until then, that run's steps are not its first steps.
        self._earlier = self._saved_steps()
        command = [sys.executable, "-m", "smdwidgets.demo.training", directory, "--seconds", str(seconds)]
        # In a separate process group, the training does not receive Ctrl-C; closing its standard input stops it. If
        # this process is killed, the operating system closes the pipe.
        own_group: dict[str, Any] = {"process_group": 0}
        if sys.platform == "win32":
            own_group = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            **own_group,
        )

    @property
    def running(self) -> bool:
        """Whether the training process is running."""
        return self._process.poll() is None

    def wait_for_first_steps(self, timeout: float = _TIMEOUT) -> None:
        """Wait until a few steps are saved.

        Raises if the training ends or the timeout expires first.
        """
        end = time.monotonic() + timeout
        while len(self._saved_steps() - self._earlier) < _FIRST_STEPS:
            if not self.running:
                raise SMDebugRuntimeError(f"the demo training exited before its first steps: {self._exit_reason()}")
            if time.monotonic() > end:
                self.stop()
                raise SMDebugRuntimeError(
                    f"timeout: the demo training saved fewer than {_FIRST_STEPS} steps in {timeout:.0f} s"
                )
            time.sleep(0.05)

    def _saved_steps(self) -> set[tuple[str, int, int]]:
        """Return the index files of the first steps: name, inode and time of each."""
        found = set()
        for path in Path(self.directory, "index", "000000000").glob("*.json"):
            with suppress(FileNotFoundError):  # the training has just deleted it
                about = path.stat()
                found.add((path.name, about.st_ino, about.st_mtime_ns))
        return found

    def _exit_reason(self) -> str:
        stderr = self._process.stderr.read().decode("utf-8", "replace") if self._process.stderr else ""
        lines = stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the training ends and return its exit code."""
        return self._process.wait(timeout)

    def stop(self, timeout: float = 10.0) -> None:
        """Stop the training after the current step, so that the run is complete."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(timeout)
        if self._process.stderr is not None:
            self._process.stderr.close()
