"""The demo's training as a process: it is started, followed, and never outlives us."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from smdwidgets.exceptions import SMDebugRuntimeError

#: How many steps are there before a person is shown the run: a slider over none is no slider.
_FIRST_STEPS = 5
_PATIENCE = 60.0


class TrainingProcess:
    """`python -m smdwidgets.demo.training`, running.

    >>> process = TrainingProcess("runs/demo", seconds=120)    # doctest: +SKIP
    >>> process.stop()                                         # doctest: +SKIP
    """

    def __init__(self, directory: str, seconds: float) -> None:
        self.directory = directory
        command = [sys.executable, "-m", "smdwidgets.demo.training", directory, "--seconds", str(seconds)]
        # Ctrl-C at the terminal is for us: in a group of its own the training ends when we say so, by closing its standard
        # input. If we are killed, the pipe is closed by the operating system.
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
        """Whether it still trains."""
        return self._process.poll() is None

    def wait_for_first_steps(self, timeout: float = _PATIENCE) -> None:
        """Return once the run can be opened and holds a few steps."""
        end = time.monotonic() + timeout
        folder = Path(self.directory, "index", "000000000")
        while len(list(folder.glob("*.json"))) < _FIRST_STEPS:
            if not self.running:
                raise SMDebugRuntimeError(f"The demo's training ended at once: {self._last_words()}")
            if time.monotonic() > end:
                self.stop()
                raise SMDebugRuntimeError(f"The demo's training wrote nothing within {timeout:.0f} s.")
            time.sleep(0.05)

    def _last_words(self) -> str:
        said = self._process.stderr.read().decode("utf-8", "replace") if self._process.stderr else ""
        lines = said.strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.returncode}"

    def wait(self, timeout: float | None = None) -> int:
        """Until the training has ended; its exit code."""
        return self._process.wait(timeout)

    def stop(self, timeout: float = 10.0) -> None:
        """End it after the step that is being written, so that the run is whole."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait(timeout)
        if self._process.stderr is not None:
            self._process.stderr.close()
