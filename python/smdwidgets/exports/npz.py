"""numpy's archive: one array a record, and a list of what is what.

``numpy.load`` opens it without unpickling anything. Members are called ``<tensor>/<step>.<worker>``, with the step in twelve digits
and everything percent-encoded that a file's name can't hold everywhere; ``index.jsonl`` has a line of JSON for each, with the
true names.
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


class NpzWriter:
    """Appends arrays to an archive; the list waits in a temporary file."""

    def __init__(self, path: Path) -> None:
        self._archive = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._index = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    def write(self, batch: Sequence[Record]) -> None:
        """An array each. What was saved as reductions or as a shape alone is in the list, without a member."""
        for record in batch:
            told: dict[str, Any] = record._asdict()
            del told["value"], told["time"]
            if record.value is not None:
                array = _plain(record.value)
                told |= {"member": member_name(record), "dtype": record.value.dtype.name}
                with self._archive.open(f"{told['member']}.npy", "w", force_zip64=True) as file:
                    npy.write_array(file, array, allow_pickle=False)
            self._index.write(json.dumps(told).encode() + b"\n")

    def close(self) -> None:
        """The list, and the archive's own directory."""
        with self._archive, self._index:
            self._index.seek(0)
            with self._archive.open("index.jsonl", "w", force_zip64=True) as file:
                while piece := self._index.read(1 << 20):
                    file.write(piece)


def member_name(record: Record) -> str:
    """What the array of a record is called in the archive.

    >>> member_name(Record("../a b", 3, "TRAIN", 3, "worker_0", None, None, {}, None))
    '..%2Fa%20b/000000000003.worker_0'
    """
    return f"{file_name(record.tensor)}/{record.step:012d}.{file_name(record.worker)}"


def _plain(value: NDArray[Any]) -> NDArray[Any]:
    """The same as an array that needs no pickle and no other package to be read."""
    if value.dtype == object:
        cells = value.reshape(-1).tolist()
        kind: type[np.str_] | type[np.bytes_] = np.bytes_ if all(isinstance(cell, bytes) for cell in cells) else np.str_
        if kind is np.str_:
            cells = [cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell) for cell in cells]
        return np.array(cells, dtype=kind).reshape(value.shape)
    if value.dtype.kind == "V":
        return value.astype(np.float32)  # bfloat16 and its kin
    return value
