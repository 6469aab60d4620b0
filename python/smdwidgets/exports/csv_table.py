"""CSV export of numbers and texts.

A long table has one row per value, a wide one has one column per tensor.

Values with several elements have no cell; Parquet and npz contain them.
"""

from __future__ import annotations

import csv
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from smdwidgets.exports.records import Record

#: Columns before those of the values.
_PLACE = ("step", "mode", "mode_step", "wall_time")


class LongCsvWriter:
    """Write the columns step, mode, mode_step, wall_time, worker, tensor and value."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", errors="backslashreplace", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow([*_PLACE, "worker", "tensor", "value"])

    def accepts(self, record: Record) -> bool:
        """Return whether the record is a number or a text."""
        return _is_cell(record)

    def write(self, batch: Sequence[Record]) -> None:
        """Append a row per record."""
        self._writer.writerows([*_place(record), record.worker, record.tensor, cell(record.value)] for record in batch)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class WideCsvWriter:
    """Write one row per step, and one column per tensor.

    If there are several workers, each has its columns.

    A column is known when its first value is read, so rows are kept in a temporary file until all are known.
    """

    def __init__(self, path: Path, workers: int) -> None:
        self._path = path
        self._several = workers > 1
        self._columns: dict[str, int] = {}
        self._rows: IO[str] = tempfile.TemporaryFile(  # noqa: SIM115 - closed by close()
            "w+", encoding="utf-8"
        )
        self._step: int | None = None
        self._place: list[Any] = []
        self._cells: dict[int, str] = {}

    def accepts(self, record: Record) -> bool:
        """Return whether the record is a number or a text."""
        return _is_cell(record)

    def write(self, batch: Sequence[Record]) -> None:
        """Append the cells of records, which are in the order of steps."""
        for record in batch:
            if record.step != self._step:
                self._end_row()
                self._step, self._place = record.step, _place(record)
            name = f"{record.tensor} ({record.worker})" if self._several else record.tensor
            self._cells[self._columns.setdefault(name, len(self._columns))] = cell(record.value)

    def _end_row(self) -> None:
        if self._cells:
            last = max(self._cells)
            # JSON, because the csv module does not read long texts back.
            row = [*self._place, *(self._cells.get(at, "") for at in range(last + 1))]
            self._rows.write(json.dumps(row) + "\n")
        self._cells = {}

    def close(self) -> None:
        """Write the header and the rows."""
        self._end_row()
        width = len(_PLACE) + len(self._columns)
        with self._rows, self._path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow([*_PLACE, *self._columns])
            self._rows.seek(0)
            writer.writerows(row + [""] * (width - len(row)) for row in map(json.loads, self._rows))


def _place(record: Record) -> list[Any]:
    return [record.step, record.mode, record.mode_step, "" if record.time is None else f"{record.time:.6f}"]


def _is_cell(record: Record) -> bool:
    return record.value is not None and record.value.size == 1


def cell(value: Any) -> str:
    """Return a number in the shortest form that is exact, or a text.

    >>> import numpy as np
    >>> cell(np.float32(0.1)), cell(np.array([np.nan])), cell(np.array("text"))
    ('0.1', 'NaN', 'text')
    """
    one = value.reshape(-1)[0]
    if isinstance(one, bytes):
        return one.decode("utf-8", "replace")
    if value.dtype.kind == "f" and not math.isfinite(one):
        return "NaN" if math.isnan(one) else "inf" if one > 0 else "-inf"
    return str(one)
