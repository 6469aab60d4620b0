"""The file of one worker of a run that lines are appended to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from smdwidgets._core import worker_file_name

logger = logging.getLogger("smdwidgets.hooks")


class WorkerLines:
    """Appends lines; a failure is logged once, and ends the writing.

    Args:
        root: directory of the run.
        folder: name of the folder of such files.
        worker: name of the worker.
        without: what a failure means, for the message.
        written: called with the key of the file after each write.

    >>> import tempfile
    >>> lines = WorkerLines(Path(tempfile.mkdtemp()), "notes", "worker_0", "notes are lost")
    >>> lines.append(b"one\\n")
    >>> lines.key, lines.size
    ('notes/worker_0.jsonl', 4)
    """

    def __init__(
        self,
        root: Path,
        folder: str,
        worker: str,
        without: str,
        written: Callable[[str], object] | None = None,
    ) -> None:
        self.key = f"{folder}/{worker_file_name(worker)}.jsonl"
        #: Bytes of the file; 0 before the first write.
        self.size = 0
        self._path = root / self.key
        self._without, self._written = without, written
        self._failed = False

    def append(self, lines: bytes) -> None:
        """Append lines; the first ones create the file."""
        if self._failed:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a+b") as file:
                end = file.seek(0, 2)
                # A line that a killed process has left incomplete must not run into the next one.
                if end and not self.size:
                    file.seek(end - 1)
                    lines = lines if file.read(1) == b"\n" else b"\n" + lines
                file.write(lines)
                self.size = end + len(lines)
            if self._written is not None:
                self._written(self.key)
        except OSError as error:
            self._failed = True
            logger.warning("cannot write %s: %s; %s", self._path, error, self._without)
