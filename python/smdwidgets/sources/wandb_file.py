"""Files of W&B runs: protobuf messages in the framing of LevelDB's logs.

Only what a run's history and settings need is interpreted. Nothing is imported from W&B.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from smdwidgets.sources.tree import TAIL, Tree

#: What a file begins with: a name, a number, and the version 0.
MAGIC: Final = b":W&B\xe1\xbe\x00"
_BLOCK: Final = 32 << 10
_HEADER: Final = struct.Struct("<IHB")
#: Kinds of fragments.
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
#: Checksums of the byte of the kind, with which those of the data begin.
_BEGIN: Final = tuple(zlib.crc32(bytes([kind])) for kind in range(5))
#: Bytes that are read at once: whole blocks.
_PIECE: Final = 128 * _BLOCK
#: Larger records hold no history of numbers; they are not kept.
_LARGEST: Final = 64 << 20


class Damage(NamedTuple):
    """Where a file could not be read, and why."""

    offset: int
    reason: str


class RecordFile:
    """The records of one file that grows, each read once."""

    def __init__(self, tree: Tree, key: str) -> None:
        self._tree = tree
        self.key = key
        self.start_over()

    def start_over(self) -> None:
        """Read the file from its beginning again."""
        #: Offset of the first record that was not read whole.
        self.end = len(MAGIC)
        self._tail = b""
        self.damage: list[Damage] = []

    def is_replaced(self) -> bool:
        """Return whether the file is another one than the one that was read."""
        return not self._tree.still_has(self.key, self._tail, self.end)

    def new(self) -> Iterator[bytes]:
        """Yield the complete records that were not read.

        A damaged block is skipped and noted. Raises :class:`~smdwidgets.exceptions.RunIOError`.
        """
        at, parts, size = self.end, list[bytes](), 0
        while True:
            start = at - at % _BLOCK
            piece = self._tree.read(self.key, start, _PIECE)
            for data, kind, after in self._fragments(piece, start, at):
                at = after
                if kind in (_FULL, _FIRST):
                    parts, size = [], 0
                if kind == 0:
                    parts, size = [], 0
                    continue
                size += len(data)
                parts.append(data if size <= _LARGEST else b"")
                if kind in (_FULL, _LAST):
                    self.end, self._tail = at, data[-TAIL:]
                    if size <= _LARGEST:
                        yield parts[0] if len(parts) == 1 else b"".join(parts)
            if len(piece) < _PIECE:
                return
            at = start + _PIECE

    def _fragments(self, piece: bytes, start: int, at: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield data, kind and end of each complete fragment.

        The kind is 0 where a block is skipped.
        """
        place, length = at - start, len(piece)
        while place < length:
            left = _BLOCK - place % _BLOCK
            if left < _HEADER.size:
                place += left
                continue
            if place + _HEADER.size > length:
                return
            checksum, size, kind = _HEADER.unpack_from(piece, place)
            begin = place + _HEADER.size
            if begin + size > length and size <= left - _HEADER.size:
                return  # being written
            data = piece[begin : begin + size]
            if size > left - _HEADER.size or not 1 <= kind <= 4:
                reason = "invalid record header"
            elif zlib.crc32(data, _BEGIN[kind]) != checksum:
                reason = "record checksum mismatch"
            else:
                place = begin + size
                yield data, kind, start + place
                continue
            damage = Damage(start + place, reason)
            if damage not in self.damage:
                self.damage.append(damage)
            place += left
            yield b"", 0, start + place


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and content of the valid fields of a message.

    >>> list(fields(b"\\x08\\x96\\x01\\x12\\x02hi"))
    [(1, 150), (2, b'hi')]
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if at < 0:
            return
        if wire == 0:
            value, at = _varint(data, at)
            if at < 0:
                return
            yield number, value
        elif wire == 2:
            length, at = _varint(data, at)
            if at < 0 or at + length > end:
                return
            yield number, data[at : at + length]
            at += length
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            if at + width > end:
                return
            yield number, data[at : at + width]
            at += width
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number and the offset after it, which is -1 if it is cut or too long."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    return 0, -1
