"""The file that the checks of one worker are appended to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from smdwidgets._lines import WorkerLines
from smdwidgets.checks.record import CHECKS_PREFIX

__all__ = ["CheckFile"]


class CheckFile(WorkerLines):
    """The lines of the checks.

    Args:
        root: directory of the run.
        worker: name of the worker.
        send: uploads the file, given by its key, and keeps it.
    """

    def __init__(self, root: Path, worker: str, send: Callable[[str], object] | None = None) -> None:
        super().__init__(root, CHECKS_PREFIX, worker, "checks are printed only", send)
