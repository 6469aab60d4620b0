"""Log files of what a hook decided about the capture of a run.

``capture/<worker>/plan.jsonl`` has the plan, then a line for every change of an interval or a state;
``capture/<worker>/thinned.jsonl`` has a line for every step whose values were deleted. Each line is a JSON object,
written at once, and ends with a newline; a reader ignores an incomplete last line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from smdwidgets import _core

__all__ = ["CAPTURE", "PLAN_FILE", "THINNED_FILE", "CaptureLog"]

CAPTURE = "capture"
PLAN_FILE = "plan.jsonl"
THINNED_FILE = "thinned.jsonl"


class CaptureLog:
    """The log of one worker. The directory is created with the first line.

    Args:
        root: directory of the run.
        worker: name of the worker.
        send: uploads a file, given by its key, and keeps it.
    """

    def __init__(self, root: Path, worker: str, send: Callable[[str], object] | None = None) -> None:
        self._root, self._send = root, send
        self._folder = root / CAPTURE / _core.worker_file_name(worker)

    def plan(self, line: dict[str, Any]) -> None:
        """Append to ``plan.jsonl``. On a full disk, the line is dropped."""
        with suppress(OSError):
            self._append(PLAN_FILE, line)
            if self._send is not None:
                self._send((self._folder / PLAN_FILE).relative_to(self._root).as_posix())

    def thinned(self, line: dict[str, Any]) -> None:
        """Append to ``thinned.jsonl``.

        Raises OSError, because nothing is deleted without a line.
        """
        self._append(THINNED_FILE, line)

    def _append(self, name: str, line: dict[str, Any]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"time": round(time.time(), 3), **line}) + "\n"
        # A line that was cut off by a full disk or a kill must not swallow this one.
        with (self._folder / name).open("ab+", buffering=0) as file:
            end = file.seek(0, 2)
            if end and _last_byte(file, end) != b"\n":
                text = "\n" + text
            file.write(text.encode("ascii"))


def _last_byte(file: Any, end: int) -> bytes:
    file.seek(end - 1)
    return bytes(file.read(1))
