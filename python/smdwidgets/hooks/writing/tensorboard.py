"""Write scalars, histograms and text to TensorBoard event files.

There is one file per mode.

The files are in ``<directory>/<MODE>/``, so that TensorBoard shows each mode as a separate run. TensorBoard does not
need to be installed.

>>> import tempfile
>>> export = TensorBoardExport(tempfile.mkdtemp())
>>> export.scalar("loss", 0.5, step=3, mode=ModeKeys.TRAIN, timestamp=0.0)
>>> export.close()
"""

from __future__ import annotations

import io
import os
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets.hooks.capture.arrays import TensorCopy, numbers_of
from smdwidgets.hooks.capture.save_spec import SaveSpec
from smdwidgets.modes import ModeKeys

__all__ = ["TensorBoardExport"]

#: Number of histogram bins. TensorBoard displays only 30.
_BINS = 64


class TensorBoardExport:
    """Appends to one event file per mode. Not thread-safe."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._files: dict[ModeKeys, io.BufferedWriter] = {}

    def add(self, name: str, copy: TensorCopy, spec: SaveSpec, step: int, mode: ModeKeys, timestamp: float) -> None:
        """Write a tensor as its configuration requires.

        A single number is written as a scalar, any other tensor as a histogram.
        """
        values = _numbers(copy)
        if values is None or not values.size:
            return
        if spec.scalar and values.size == 1:
            self.scalar(name, float(values.reshape(-1)[0]), step, mode, timestamp)
        elif spec.histogram is not None:
            self.histogram(f"{spec.histogram}/{name}", values, step, mode, timestamp)

    def scalar(self, tag: str, value: float, step: int, mode: ModeKeys, timestamp: float) -> None:
        """Write one number."""
        self._write(_core.scalar_record(tag, step, timestamp, value), step, mode, timestamp)

    def histogram(self, tag: str, values: NDArray[Any], step: int, mode: ModeKeys, timestamp: float) -> None:
        """Write a histogram of the finite elements; NaN and infinities are omitted."""
        finite = values if values.dtype.kind != "f" or np.isfinite(values).all() else values[np.isfinite(values)]
        if not finite.size:
            return
        found, stats = _core.histogram(finite, bins=_BINS), _core.stats(finite)
        with np.errstate(over="ignore"):
            total, squares = float(finite.sum(dtype=np.float64)), float(np.square(finite, dtype=np.float64).sum())
        record = _core.histogram_record(
            tag,
            step,
            timestamp,
            found["edges"][1:].tolist(),
            found["counts"].tolist(),
            min=stats["min"],
            max=stats["max"],
            num=finite.size,
            sum=total,
            sum_squares=squares,
        )
        self._write(record, step, mode, timestamp)

    def text(self, tag: str, lines: Sequence[bytes], step: int, mode: ModeKeys, timestamp: float) -> None:
        """Write lines of text."""
        plugin = _field(9, _field(1, _field(1, b"text")))
        shape = _field(2, _field(2, b"\x08" + _varint(len(lines))))
        strings = b"\x08\x07" + shape + b"".join(_field(8, line) for line in lines)  # 7: the type of strings
        summary = _field(1, _field(1, tag.encode()) + plugin + _field(8, strings))
        event = b"\x09" + struct.pack("<d", timestamp) + b"\x10" + _varint(step) + _field(5, summary)
        self._write(_core.write_record(event), step, mode, timestamp)

    def close(self) -> None:
        """Close the files. Later records start new files."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _write(self, record: bytes, step: int, mode: ModeKeys, timestamp: float) -> None:
        file = self._files.get(mode) or self._begin(step, mode, timestamp)
        file.write(record)
        file.flush()  # TensorBoard reads the file while it grows

    def _begin(self, step: int, mode: ModeKeys, timestamp: float) -> io.BufferedWriter:
        folder = self._directory / mode.name
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{max(step, 0):012d}_{os.getpid()}_{socket.gethostname()}.tfevents"
        file = self._files[mode] = (folder / name).open("ab")
        file.write(_core.version_record(timestamp))
        return file


def _varint(number: int) -> bytes:
    """Encode an integer as a protobuf varint: seven bits per byte, lowest bits first.

    >>> _varint(300).hex()
    'ac02'
    """
    out = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited protobuf field: a string, bytes or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _numbers(copy: TensorCopy) -> NDArray[Any] | None:
    """Return the tensor's numbers as a NumPy array.

    Complex numbers are replaced by their magnitudes. Returns None for strings, and for booleans other than a
    single one.
    """
    if copy.dtype in ("bool", "str"):
        return copy.array if copy.dtype == "bool" and copy.array.size == 1 else None
    numbers = numbers_of(copy)
    return np.abs(numbers) if numbers.dtype.kind == "c" else numbers
