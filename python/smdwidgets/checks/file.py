"""The file that the checks of one worker are appended to."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from smdwidgets._core import worker_file_name
from smdwidgets.checks.record import CHECKS_PREFIX

__all__ = ["CheckFile"]

logger = logging.getLogger("smdwidgets.hooks")


class CheckFile:
    """Appends lines; a failure is logged once, and ends the writing.

    Args:
        root: directory of the run.
        worker: name of the worker.
        send: uploads the file, given by its key, and keeps it.
    """

    def __init__(self, root: Path, worker: str, send: Callable[[str], object] | None = None) -> None:
        self._path = root / CHECKS_PREFIX / f"{worker_file_name(worker)}.jsonl"
        self._key = f"{CHECKS_PREFIX}/{self._path.name}"
        self._send = send
        self._failed = False

    def append(self, lines: bytes) -> None:
        """Append lines; the first ones create the file."""
        if self._failed:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(lines)
            if self._send is not None:
                self._send(self._key)
        except OSError as error:
            self._failed = True
            logger.warning("cannot write %s: %s; checks are printed only", self._path, error)
