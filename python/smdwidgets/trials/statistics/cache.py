"""Cache of statistics that were computed from the tensors of local runs.

A cache entry is a directory of statistics files. Besides the rows of tensors it has a row without a name per step and
worker, whose count identifies the event file. If an event file was rewritten, another run took the place of the cached
one, and the entry is dropped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np

from smdwidgets import _core
from smdwidgets._files import user_cache
from smdwidgets.exceptions import SMDebugError
from smdwidgets.storage.local import LocalStorage
from smdwidgets.trials.statistics.file import StatisticsFile
from smdwidgets.trials.tables import COUNTS, LIMITS, NUMBERS, REDUCTIONS_ONLY, Table, selected

#: Bytes of all entries; the least recently used ones are removed.
LIMIT = 2 << 30
#: Files of an entry; one that was extended more often is computed again.
_MOST_FILES = 3000
#: Name of the rows that identify event files.
_STAMP = ""


class StatisticsCache:
    """The cached statistics of one run and one selection of workers.

    Args:
        path: directory of the run.
        scope: selection of workers.
        root: directory of the cache; None: the user's cache directory.
    """

    def __init__(self, path: str, scope: str, root: str | None = None) -> None:
        self._path = path
        base = Path(root) if root is not None else user_cache("statistics")
        key = hashlib.sha256(f"{os.path.realpath(path)}\n{scope}".encode()).hexdigest()[:32]
        self._directory = base / key
        self._writers: dict[str, _core.StatisticsWriter] = {}
        self._open()

    def _open(self) -> None:
        self._file = StatisticsFile(LocalStorage(str(self._directory)), _core.Files(str(self._directory)))

    def records(self) -> int:
        """Return the number of cached rows."""
        try:
            self._file.refresh()
        except (SMDebugError, OSError):
            return 0
        return self._file.size()[1]

    def read(self, names: list[str]) -> Table | None:
        """Return the cached rows of these tensors, or None if none are valid."""
        try:
            self._file.refresh()
            table = self._file.read([_STAMP, *names])
        except (SMDebugError, OSError):
            return None
        is_stamp = table["name"] == _STAMP
        if not is_stamp.any():
            return None
        stamps = selected(table, is_stamp)
        places = zip(stamps["step"].tolist(), stamps["worker"].tolist(), stamps["count"].tolist(), strict=True)
        for step, worker, stamp in places:
            now = _stamp(self._path, step, worker)
            if now not in (None, stamp):
                self.drop()
                return None
        if table["error"]:
            self.drop()
            return None
        with contextlib.suppress(OSError):
            os.utime(self._directory)
        return selected(table, ~is_stamp)

    def add(self, table: Table, until: int) -> None:
        """Append computed rows of steps up to ``until``.

        Failures are ignored, because the rows can be computed again.
        """
        try:
            complete = (table["step"] <= until) & (table["flags"] & REDUCTIONS_ONLY == 0)
            if complete.any():
                self._add(selected(table, complete))
        except (SMDebugError, OSError):
            self.drop()

    def _add(self, table: Table) -> None:
        order = np.lexsort((table["worker"].astype(str), table["step"]))
        steps, workers = table["step"][order], table["worker"][order]
        starts = np.flatnonzero(np.append(True, (steps[1:] != steps[:-1]) | (workers[1:] != workers[:-1])))
        ends = np.append(starts[1:], len(order))
        places = zip(steps[starts].tolist(), workers[starts].tolist(), strict=True)
        stamps = [_stamp(self._path, step, worker) for step, worker in places]
        # The row that identifies the event file follows the rows of its step.
        rows = np.insert(order, ends, order[starts])
        is_stamp = np.zeros(len(rows), bool)
        is_stamp[ends + np.arange(len(ends))] = True
        columns = {name: np.where(is_stamp, 0, table[name][rows]) for name in (*COUNTS, *LIMITS, *NUMBERS)}
        columns["count"][is_stamp] = [stamp or 0 for stamp in stamps]
        names = np.where(is_stamp, _STAMP, table["name"][rows])
        has_file = np.repeat([stamp is not None for stamp in stamps], ends - starts + 1)
        for worker in dict.fromkeys(workers.tolist()):
            writer = self._writer(worker)
            chosen = has_file & (table["worker"][rows] == worker)
            numbers = {name: writer.add(name) for name in dict.fromkeys(names[chosen].tolist())}
            steps_of, modes, mode_steps = (table[name][rows][chosen].tolist() for name in ("step", "mode", "mode_step"))
            writer.append_steps(
                steps_of,
                modes,
                mode_steps,
                [numbers[name] for name in names[chosen].tolist()],
                {name: column[chosen] for name, column in columns.items()},
            )
            writer.flush()

    def _writer(self, worker: str) -> _core.StatisticsWriter:
        if worker not in self._writers:
            if not self._writers:
                trim(self._directory.parent, LIMIT)
                if sum(1 for _ in self._directory.rglob("*")) > _MOST_FILES:
                    self.drop()
            self._writers[worker] = _core.StatisticsWriter(self._directory, worker, seconds=3600)
        return self._writers[worker]

    def drop(self) -> None:
        """Remove the entry."""
        for writer in self._writers.values():
            with contextlib.suppress(SMDebugError, OSError):
                writer.close()
        self._writers.clear()
        shutil.rmtree(self._directory, ignore_errors=True)
        self._open()


def _stamp(path: str, step: int, worker: str) -> int | None:
    """Return a number that identifies the event file of a step.

    None if the file does not exist.
    """
    number = f"{step:012d}"
    try:
        # A path of pathlib takes three times as long, for each step of a run.
        about = os.stat(f"{path}/events/{number}/{number}_{_core.worker_file_name(worker)}.tfevents")  # noqa: PTH116
    except OSError:
        return None
    digest = hashlib.blake2b(f"{about.st_size} {about.st_mtime_ns} {about.st_ino}".encode(), digest_size=7)
    return int.from_bytes(digest.digest(), "big")


def trim(root: Path, limit: int) -> None:
    """Remove the least recently used entries of a cache above a size."""
    with contextlib.suppress(OSError):
        entries = sorted((entry.stat().st_mtime, entry) for entry in root.iterdir() if entry.is_dir())
        sizes = {entry: sum(file.stat().st_size for file in entry.rglob("*") if file.is_file()) for _, entry in entries}
        total = sum(sizes.values())
        for _, entry in entries:
            if total <= limit:
                break
            shutil.rmtree(entry, ignore_errors=True)
            total -= sizes[entry]
