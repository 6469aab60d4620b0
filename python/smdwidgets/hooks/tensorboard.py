"""Scalars and histograms for TensorBoard: one event file a mode, with true checksums.

The files lie in ``<directory>/<MODE>/``, so that TensorBoard shows each mode as a run of its own. Nothing of TensorBoard
is needed to write them: an event is a few protobuf fields.

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
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smdwidgets._core import masked_crc
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
        self._event(tag, b"\x15" + struct.pack("<f", _as_float32(value)), step, mode, timestamp)

    def histogram(self, tag: str, values: NDArray[Any], step: int, mode: ModeKeys, timestamp: float) -> None:
        """How the finite elements are distributed; NaN and infinities have no place on its axis."""
        proto = _histogram(values)
        if proto is not None:
            self._event(tag, _field(5, proto), step, mode, timestamp)

    def close(self) -> None:
        """Close the files. What follows begins new ones."""
        files, self._files = self._files, {}
        for file in files.values():
            file.close()

    def _event(self, tag: str, value: bytes, step: int, mode: ModeKeys, timestamp: float) -> None:
        file = self._files.get(mode) or self._begin(step, mode, timestamp)
        summary = _field(1, _field(1, tag.encode("utf-8", "replace")) + value)
        _write(file, _wall_time(timestamp) + b"\x10" + _varint(step) + _field(5, summary))
        file.flush()  # TensorBoard follows the file while it grows

    def _begin(self, step: int, mode: ModeKeys, timestamp: float) -> io.BufferedWriter:
        folder = self._directory / mode.name
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{max(step, 0):012d}_{os.getpid()}_{socket.gethostname()}.tfevents"
        file = self._files[mode] = (folder / name).open("ab")
        _write(file, _wall_time(timestamp) + _field(3, b"brain.Event:2"))
        return file


def _write(file: io.BufferedWriter, event: bytes) -> None:
    length = struct.pack("<Q", len(event))
    file.write(length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event)))


def _wall_time(timestamp: float) -> bytes:
    return b"\x09" + struct.pack("<d", timestamp)


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


def _as_float32(value: float) -> float:
    """A number that the field can hold: float64 may go beyond float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _histogram(values: NDArray[Any]) -> bytes | None:
    flat = values.reshape(-1)
    if flat.dtype.kind == "f":
        finite = np.isfinite(flat)
        if not finite.all():
            flat = flat[finite]
    if not flat.size:
        return None
    numbers = flat.astype(np.float64, copy=False)
    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        counts, limits = np.array([float(numbers.size)]), np.array([high])
    else:
        found, edges = np.histogram(numbers, bins=_BINS, range=(low, high))
        counts, limits = found.astype(np.float64), edges[1:]
    with np.errstate(over="ignore"):
        total, squares = float(numbers.sum()), float(np.square(numbers).sum())
    numbers_of = (low, high, float(numbers.size), total, squares)
    fields = b"".join(bytes([number << 3 | 1]) + struct.pack("<d", one) for number, one in enumerate(numbers_of, 1))
    return fields + _field(6, limits.astype("<f8").tobytes()) + _field(7, counts.astype("<f8").tobytes())
