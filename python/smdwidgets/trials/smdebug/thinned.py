"""The steps whose values were deleted.

A hook does it within its disk budget, and `smdwidgets thin` for old runs.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from typing import Final

from smdwidgets.exceptions import RunIOError
from smdwidgets.storage.protocol import Storage, beginning

__all__ = ["ThinnedSteps"]

#: Files of a run, one for each worker: a JSON object a line.
_FOLDER: Final = "capture/"
_FILE: Final = re.compile(r"capture/([^/]+)/thinned\.jsonl")
#: Bytes of a file that are read at once.
_PIECE: Final = 1 << 20


class ThinnedSteps:
    """Reads what was appended to the files since it was asked last.

    Args:
        storage: the files of the run.
        seconds: how long an answer is used.
    """

    def __init__(self, storage: Storage, seconds: float = 0.0) -> None:
        self._storage = storage
        self._seconds, self._next = seconds, 0.0
        self._every: dict[int, int] = {}
        self._workers: set[tuple[int, str]] = set()
        self._read: dict[str, int] = {}

    def every(self, step: int) -> int | None:
        """Return the spacing of steps with values; None if a step was not thinned."""
        self._read_all()
        return self._every.get(step)

    def by_worker(self) -> frozenset[tuple[int, str]]:
        """Return the steps that were thinned, each with a worker by its name in files."""
        self._read_all()
        return frozenset(self._workers)

    def _read_all(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        with suppress(RunIOError):
            for key in self._storage.list(_FOLDER):
                if name := _FILE.fullmatch(key):
                    self._follow(key, name[1])

    def _follow(self, key: str, worker: str) -> None:
        while piece := beginning(self._storage, key, _PIECE, self._read.get(key, 0)):
            whole = piece.rpartition(b"\n")[0]
            if not whole:  # an incomplete line, or one that is too long to be ours
                return
            self._read[key] = self._read.get(key, 0) + len(whole) + 1
            for line in whole.split(b"\n"):
                with suppress(ValueError, TypeError, KeyError, RecursionError):
                    entry = json.loads(line)
                    self._every[int(entry["step"])] = int(entry["every"])
                    self._workers.add((int(entry["step"]), worker))
