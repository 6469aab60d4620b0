"""Pyramids of large statistics that have none, kept in the user's cache.

They are built when a run is opened, in a fraction of the time that its rows would take to be read and compared.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from smdwidgets import _core
from smdwidgets._files import user_cache
from smdwidgets.exceptions import SMDebugError
from smdwidgets.naming.scalars import losses_of
from smdwidgets.trials.statistics.cache import trim
from smdwidgets.trials.statistics.file import StatisticsFile, pyramid_key

logger = logging.getLogger("smdwidgets.trials")

#: Rows of statistics from which on a pyramid is built. Fewer are compared row by row.
FEWEST_ROWS: Final = 1_000_000
#: Bytes of all pyramids; the least recently used ones are removed.
LIMIT: Final = 1 << 30


class KeptPyramids:
    """The pyramids of a local run in the user's cache.

    Args:
        path: directory of the run.
        root: directory of the cache; None: the user's cache directory.
    """

    def __init__(self, path: str, root: str | None = None) -> None:
        base = Path(root) if root is not None else user_cache("pyramids")
        self._directory = base / hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:32]
        self._opened: dict[str, _core.Pyramid] = {}

    def get(self, file: StatisticsFile, worker: str) -> _core.Pyramid | None:
        """Return the pyramid of a worker, or None if none belongs to its statistics."""
        if worker not in self._opened:
            if not self._path(worker).is_file():
                return None
            try:
                self._opened[worker] = _core.Pyramid(_core.Files(str(self._directory)), worker)
                os.utime(self._directory)
            except (SMDebugError, OSError):
                logger.debug("%s is not used", self._path(worker), exc_info=True)
                return None
        return self._opened[worker] if file.covers(self._opened[worker], worker) else None

    def make(self, file: StatisticsFile, worker: str, progress: Callable[[int, int], object]) -> _core.Pyramid | None:
        """Build and keep the pyramid of a worker, unless there is one.

        Return None if that is not possible.

        Args:
            file: the statistics.
            worker: a worker, by its name in files.
            progress: called with the number of rows read and their total; what it raises ends the work.
        """
        if (kept := self.get(file, worker)) is not None:
            return kept
        self._opened.pop(worker, None)
        path = self._path(worker)
        try:
            trim(self._directory.parent, LIMIT)
            path.parent.mkdir(parents=True, exist_ok=True)
            file.write_pyramid(worker, path, sorted(losses_of(file.names())), progress)
        except (SMDebugError, OSError, ValueError):  # the disk is full, or steps were written again: rows are read
            logger.debug("no pyramid of the statistics of %s", worker, exc_info=True)
            return None
        return self.get(file, worker)

    def _path(self, worker: str) -> Path:
        return self._directory.joinpath(*pyramid_key(worker).split("/"))
