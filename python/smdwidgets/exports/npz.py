"""NumPy ``.npz`` export: one array per record, and an index of the records.

``numpy.load`` opens the archive without pickle. Members are named ``<tensor>/<step>.<worker>``, with the step in twelve
digits. Characters that are not portable in file names are percent-encoded. ``index.jsonl`` has one JSON line per
record, with the original names.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from smdwidgets.exports.names import file_name
from smdwidgets.exports.records import Record
from smdwidgets.trials.widening import widened


class NpzWriter:
    """Append arrays to an archive.

    The index is kept in a temporary file until the archive is closed.
    """

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._index = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    def write(self, batch: Sequence[Record]) -> None:
        """Write one array per record.

        Records without a value (reductions or shape only) appear in the index only.
        """
        for record in batch:
            entry: dict[str, Any] = record._asdict()
            del entry["value"], entry["time"]
            if record.value is not None:
                array = _plain(record.value)
                entry |= {"member": member_name(record), "dtype": record.value.dtype.name}
                with self._archive.open(f"{entry['member']}.npy", "w", force_zip64=True) as file:
                    npy.write_array(file, array, allow_pickle=False)
            self._index.write(json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        """Write the index and close the archive."""
        with self._archive, self._index:
            self._index.seek(0)
            with self._archive.open("index.jsonl", "w", force_zip64=True) as file:
                while piece := self._index.read(1 << 20):
                    file.write(piece)


def member_name(record: Record) -> str:
    """Return the name of a record's array in the archive.

    >>> member_name(Record("../a b", 3, "TRAIN", 3, "worker_0", None, None, {}, None))
    '..%2Fa%20b/000000000003.worker_0'
    """
    return f"{file_name(record.tensor)}/{record.step:012d}.{file_name(record.worker)}"


def _plain(value: NDArray[Any]) -> NDArray[Any]:
    """Convert an array so that it can be read without pickle or other packages."""
    if value.dtype == object:
        cells = value.reshape(-1).tolist()
        kind: type[np.str_] | type[np.bytes_] = np.bytes_ if all(isinstance(cell, bytes) for cell in cells) else np.str_
        if kind is np.str_:
            cells = [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
        return np.array(cells, dtype=kind).reshape(value.shape)
    return widened(value)
