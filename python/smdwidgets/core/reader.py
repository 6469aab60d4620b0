"""Read an event file of a run directly, without its index."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from numpy.typing import NDArray

from smdwidgets import _core
from smdwidgets._text import shown
from smdwidgets.core.modes import MODE_PLUGIN_NAME, MODE_STEP_PLUGIN_NAME
from smdwidgets.core.utils import match_inc
from smdwidgets.exceptions import CorruptDataError, DataError, SMDebugNotImplementedError
from smdwidgets.modes import ModeKeys

__all__ = ["FileReader"]

#: Bytes before and after the payload of a record.
_HEADER, _FOOTER = 12, 4


class FileReader:
    """Reads the tensors of one event file, in the order they were written.

    Args:
        fname: the event file.
        wtype: the file's format. "tfevent" is the only one.

    >>> with FileReader("run/events/000000000000/000000000000_worker_0.tfevents") as reader:    # doctest: +SKIP
    ...     for name, step, value, mode, mode_step in reader.read_tensors():
    ...         print(name, step, value.shape)
    """

    def __init__(self, fname: str | os.PathLike[str], wtype: str = "tfevent") -> None:
        if wtype != "tfevent":
            raise SMDebugNotImplementedError(f"invalid wtype {shown(wtype)}; choose 'tfevent'")
        self._path = Path(fname)
        self._data = self._path.read_bytes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        """Do nothing: the file is closed already."""

    def read_tensors(self, check: str | bool = "minimal") -> Iterator[tuple[str, int, NDArray[Any], ModeKeys, int]]:
        """Yield name, global step, value, mode and mode step of each tensor.

        Args:
            check: accepted for compatibility. Checksums are verified where the file has them.
        """
        for event in self._events():
            yield event.name, event.step, event.value, event.mode, event.mode_step

    def read_events(
        self, check: str | bool = "minimal", regex_list: Sequence[str] | None = None
    ) -> list[dict[str, Any]]:
        """Return timestamp, step, name and value of each tensor as a dictionary.

        Args:
            check: accepted for compatibility. Checksums are verified where the file has them.
            regex_list: return only tensors whose name matches one of these patterns (`re.search`).
        """
        return [
            {"timestamp": event.wall_time, "step": event.step, "name": event.name, "value": event.value}
            for event in self._events()
            if regex_list is None or match_inc(event.name, regex_list)
        ]

    def _events(self) -> Iterator[_Event]:
        for offset, size in self._records():
            event = _Event(self._data, offset, size)
            if event.name:
                event.value = self._value(offset)
                yield event

    def _records(self) -> Iterator[tuple[int, int]]:
        """Offset and size of each record.

        A record is a length, its checksum, the content and its checksum.
        """
        data, offset = self._data, 0
        while offset < len(data):
            head = data[offset : offset + _HEADER]
            size = _HEADER + int.from_bytes(head[:8], "little") + _FOOTER
            location = f"{shown(str(self._path), 400)}, byte {offset}"
            stored, computed = int.from_bytes(head[8:], "little"), _core.masked_crc(head[:8])
            if len(head) == _HEADER and stored != computed:
                raise CorruptDataError(
                    f"{location}: record header checksum mismatch: stored {stored:#010x}, computed {computed:#010x}"
                )
            expected = size if len(head) == _HEADER else _HEADER
            if expected > len(data) - offset:
                raise CorruptDataError(
                    f"{location}: truncated data: expected {expected} bytes, got {len(data) - offset}"
                )
            yield offset, size
            offset += size

    def _value(self, offset: int) -> NDArray[Any]:
        try:
            return _core.decode(self._data, offset)
        except DataError as error:
            raise type(error)(f"{shown(str(self._path), 400)}: {error}") from error


class _Event:
    """One record: an Event message of TensorFlow with one Summary.Value."""

    value: NDArray[Any]

    def __init__(self, data: bytes, offset: int, size: int) -> None:
        self.wall_time, self.step, self.name = 0.0, 0, ""
        plugins: dict[str, bytes] = {}
        for number, value in _fields(memoryview(data)[offset + _HEADER : offset + size - _FOOTER]):
            if number == 1 and isinstance(value, memoryview):
                self.wall_time = struct.unpack("<d", value)[0]
            elif number == 2 and isinstance(value, int):
                self.step = value
            elif number == 5 and isinstance(value, memoryview):
                self._read_summary(value, plugins)
        self.mode = ModeKeys(int(plugins.get(MODE_PLUGIN_NAME, str(ModeKeys.GLOBAL.value))))
        self.mode_step = int(plugins.get(MODE_STEP_PLUGIN_NAME, str(self.step)))

    def _read_summary(self, summary: memoryview, plugins: dict[str, bytes]) -> None:
        for number, value in _fields(summary):
            if number != 1 or not isinstance(value, memoryview):
                continue
            for part, content in _fields(value):
                if part == 1 and isinstance(content, memoryview):
                    self.name = bytes(content).decode("utf-8", "replace")
                elif part == 9 and isinstance(content, memoryview):
                    # smdebug repeats plugin_data: one holds the mode, another the mode step.
                    for _, plugin in _fields(content):
                        if isinstance(plugin, memoryview):
                            plugin_fields = {n: bytes(v) for n, v in _fields(plugin) if isinstance(v, memoryview)}
                            plugins[plugin_fields.get(1, b"").decode("utf-8", "replace")] = plugin_fields.get(2, b"")


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield number and value of each field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise CorruptDataError(f"invalid protobuf field at byte {at} of a message of {len(message)} bytes")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise CorruptDataError(f"invalid protobuf integer at byte {at} of a message of {len(message)} bytes")
