"""Statistics files: the rows of a run, or of a cache directory, as columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from smdwidgets import _core
from smdwidgets.exceptions import RunFileMissing, TruncatedDataError
from smdwidgets.storage.protocol import Range, Storage, reads_at_once

#: The directory of a run that has the statistics.
DIRECTORY = "statistics"
#: Counts of all elements.
COUNTS = ("count", "nan", "neg_inf", "pos_inf", "zeros")
#: Numbers of the finite elements.
NUMBERS = ("min", "max", "mean", "std", "l1", "l2", "abs_max", "update")
#: The columns that identify a row.
KEYS = ("name", "step", "mode", "mode_step", "worker")

#: Flags of rows that were not computed from the elements: estimated, or from saved reductions, without counts.
APPROXIMATE = 16
REDUCTIONS_ONLY = 32

Table = dict[str, Any]

#: File, offset and reason in an error of the core.
_PLACE = re.compile(r"(.*), byte (\d+): (.*)", re.DOTALL)


class StatisticsFile:
    """The statistics files of a run, read incrementally.

    Args:
        storage: files of the run.
        files: event files of a local run; None: statistics are read through ``storage``.

    >>> from smdwidgets.storage import LocalStorage
    >>> file = StatisticsFile(LocalStorage("."))
    >>> file.refresh(), file.names()
    (False, [])
    """

    def __init__(self, storage: Storage, files: _core.Files | None = None) -> None:
        self._storage = storage
        self._source = _core.Fetched(self._fetch, reads_at_once(storage)) if files is None else files
        self._reader = _core.StatisticsReader()

    def refresh(self) -> bool:
        """Read what is new; return whether there was anything."""
        return self._reader.refresh(self._source, list(self._storage.list(f"{DIRECTORY}/")))

    def _fetch(self, key: str, offset: int, length: int) -> bytes:
        try:
            [data] = self._storage.read_ranges([Range(key, offset, length)])
        except (TruncatedDataError, RunFileMissing):  # S3's response to a range beyond the end of an object
            return b""
        return bytes(data)

    def names(self) -> list[str]:
        """Return the names of the tensors, in the order of the file."""
        return [name for name, *_ in self._reader.names()]

    def workers(self) -> list[str]:
        """Return the workers, by their names in files."""
        return self._reader.workers()

    def read(
        self,
        names: Sequence[str] | None = None,
        steps: Sequence[int] | None = None,
        workers: Sequence[str] | None = None,
        mode: int | None = None,
    ) -> Table:
        """Return rows as columns, sorted by name, step and worker."""
        files = None if workers is None else [_core.worker_file_name(worker) for worker in workers]
        return self._reader.read(self._source, names, steps, files, mode)

    def faults(self, ended: bool) -> list[tuple[str, int | None, str]]:
        """Check all batches; return file, offset and reason of each fault.

        Bytes after the last complete batch are a fault if the segment cannot grow.
        """
        faults: list[tuple[str, int | None, str]] = [(key, None, reason) for key, reason in self._reader.problems()]
        for key, count, superseded in self._reader.dropped(self._source):
            if ended or superseded:
                faults.append((key, None, f"{count} bytes dropped: the process that wrote them did not finish"))
        for error in self._reader.verify(self._source):
            at = _PLACE.fullmatch(str(error))
            faults.append((at[1], int(at[2]), at[3]) if at else (DIRECTORY, None, str(error)))
        return faults

    def size(self) -> tuple[int, int, int]:
        """Return the numbers of batches, rows and bytes."""
        return self._reader.size()


def selected(table: Table, rows: Any) -> Table:
    """Return some rows of a table: their numbers, or a mask.

    >>> selected({"step": np.arange(4), "error": []}, [2, 3])["step"]
    array([2, 3])
    """
    if isinstance(rows, np.ndarray) and rows.dtype == bool and rows.all():
        return dict(table)  # the usual case, in which nothing is copied
    return {name: column if name == "error" else column[rows] for name, column in table.items()}


def joined(tables: Iterable[Table]) -> Table:
    """Return one table with the rows of several tables with equal columns.

    >>> joined([{"step": np.array([1]), "error": []}, {"step": np.array([2]), "error": []}])["step"]
    array([1, 2])
    """
    tables = list(tables)
    if len(tables) == 1:
        return tables[0]
    return {
        name: [error for table in tables for error in table[name]]
        if name == "error"
        else np.concatenate([table[name] for table in tables])
        for name in tables[0]
    }
