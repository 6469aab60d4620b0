"""Notice incidents of other workers by the records in the run's directory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from smdwidgets._core import worker_file_name
from smdwidgets.incident import INCIDENTS_PREFIX, LARGEST_RECORD, Incident

__all__ = ["PeerIncidents"]

_RECORD: Final = re.compile(r"\d+_\d+_\d+\.json")
#: Folders that are looked at after a step. In a training with more workers, each is looked at every few steps.
_MOST_LOOKED_AT: Final = 64


class PeerIncidents:
    """The records that other workers have added.

    Looking costs a system call for each worker.

    Args:
        root: directory of the run.
        worker: name of this worker.
        workers: number of workers.
    """

    def __init__(self, root: Path, worker: str, workers: int) -> None:
        folder = root / INCIDENTS_PREFIX
        #: The folder of this worker.
        self.folder = folder / worker_file_name(worker)
        self._folders = [
            folder / worker_file_name(name) for number in range(workers) if (name := f"worker_{number}") != worker
        ]
        self._next = 0
        self._changed: dict[Path, int] = {}
        self._seen = {path for one in self._folders for path in _records(one)}

    def new(self) -> list[tuple[str, int]]:
        """Return the name of each new record, and the step of its incident.

        The name is without its ending.
        """
        added = []
        for _ in range(min(len(self._folders), _MOST_LOOKED_AT)):
            folder = self._folders[self._next]
            self._next = (self._next + 1) % len(self._folders)
            try:
                changed = folder.stat().st_mtime_ns
            except OSError:
                continue
            if self._changed.get(folder) == changed:
                continue
            self._changed[folder] = changed
            for path in _records(folder):
                if path not in self._seen:
                    self._seen.add(path)
                    try:
                        content = path.read_bytes()[:LARGEST_RECORD]
                        added.append((path.stem, Incident.parse(content, folder.name).step))
                    except (OSError, ValueError):
                        continue
        return added


def _records(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if _RECORD.fullmatch(path.name))
    except OSError:
        return []
