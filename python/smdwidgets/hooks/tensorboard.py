"""Scalars and histograms for TensorBoard: one event file a mode, with true checksums.

The files lie in ``<directory>/<MODE>/``, so that TensorBoard shows each mode as a run of its own. Nothing of TensorBoard
is needed to write them.

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
from smdwidgets.hooks.arrays import Held
from smdwidgets.hooks.keep import Keep
from smdwidgets.modes import ModeKeys

__all__ = ["TensorBoardExport"]

#: More would not be seen: TensorBoard draws 30.
_BINS = 64


class TensorBoardExport:
    """Appends to one event file a mode. Not for use by several threads."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._files: dict[ModeKeys, io.BufferedWriter] = {}

    def add(self, name: str, held: Held, keep: Keep, step: int, mode: ModeKeys, timestamp: float) -> None:
        """What of a tensor is to be shown: one number as a scalar, any other as a histogram."""
        values = _numbers(held)
        if values is None or not values.size:
            return
        if keep.scalar and values.size == 1:
            self.scalar(name, float(values.reshape(-1)[0]), step, mode, timestamp)
        elif keep.histogram is not None:
            self.histogram(f"{keep.histogram}/{name}", values, step, mode, timestamp)

    def scalar(self, tag: str, value: float, step: int, mode: ModeKeys, timestamp: float) -> None:
        """One number."""
        self._write(_core.scalar_record(tag, step, timestamp, value), step, mode, timestamp)

    def histogram(self, tag: str, values: NDArray[Any], step: int, mode: ModeKeys, timestamp: float) -> None:
        """How the finite elements are distributed; NaN and infinities have no place on its axis."""
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
        """Text, a line an element."""
        plugin = _field(9, _field(1, _field(1, b"text")))
        shape = _field(2, _field(2, b"\x08" + _varint(len(lines))))
        strings = b"\x08\x07" + shape + b"".join(_field(8, line) for line in lines)  # 7: the type of strings
        summary = _field(1, _field(1, tag.encode()) + plugin + _field(8, strings))
        event = b"\x09" + struct.pack("<d", timestamp) + b"\x10" + _varint(step) + _field(5, summary)
        self._write(_core.write_record(event), step, mode, timestamp)

    def close(self) -> None:
        """Close the files. What follows begins new ones."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _write(self, record: bytes, step: int, mode: ModeKeys, timestamp: float) -> None:
        file = self._files.get(mode) or self._begin(step, mode, timestamp)
        file.write(record)
        file.flush()  # TensorBoard follows the file while it grows

    def _begin(self, step: int, mode: ModeKeys, timestamp: float) -> io.BufferedWriter:
        folder = self._directory / mode.name
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{max(step, 0):012d}_{os.getpid()}_{socket.gethostname()}.tfevents"
        file = self._files[mode] = (folder / name).open("ab")
        file.write(_core.version_record(timestamp))
        return file


def _varint(number: int) -> bytes:
    """A whole number as protobuf writes it: seven bits a byte, the lowest first.

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
    """A field with a length: text, bytes or a message."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _numbers(held: Held) -> NDArray[Any] | None:
    """The tensor's numbers as numpy can count them; of complex ones the magnitudes."""
    if held.dtype in ("bool", "str"):
        return held.array if held.dtype == "bool" and held.array.size == 1 else None
    if held.dtype == "bfloat16":
        wide: NDArray[np.uint32] = held.array.view(np.uint16).astype(np.uint32) << np.uint32(16)
        return wide.view(np.float32)
    return np.abs(held.array) if held.array.dtype.kind == "c" else held.array
