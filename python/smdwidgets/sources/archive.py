"""ZIP archives whose records are read by their position in the file."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

from smdwidgets._text import shown
from smdwidgets.exceptions import CorruptDataError, UnsupportedDataError
from smdwidgets.sources.tree import Tree

#: The first bytes of an archive.
ZIP: Final = b"PK\x03\x04"
#: Bytes of the header of a record, before its name.
LOCAL_HEADER: Final = 30
#: Most records of an archive.
_MOST_RECORDS: Final = 1_000_000
#: Bytes that are checked at once.
_PIECE: Final = 8 << 20


class Archive:
    """The records of an archive, by their place in the file.

    Args:
        tree: the files.
        key: the archive.
        inside: whether all records are in one directory of the archive, which is no part of their names.
        part: offset and length of an archive that is a part of the file.

    Raises :class:`~smdwidgets.exceptions.DataError`, with the path, for other archives.
    """

    def __init__(self, tree: Tree, key: str, *, inside: bool = True, part: tuple[int, int] | None = None) -> None:
        self._tree = tree
        self._key = key
        self.path = tree.path(key)
        self._begin, length = (0, tree.size(key) or 0) if part is None else part
        self._end = self._begin + length
        self._where = self.path if part is None else f"{self.path}, byte {self._begin}"
        try:
            with tree.open(key, part) as file, zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            raise CorruptDataError(f"{self._where}: damaged or incomplete archive: {error}") from None
        if len(entries) > _MOST_RECORDS:
            raise CorruptDataError(f"{self._where}: {len(entries):,} records exceed the limit of {_MOST_RECORDS:,}")
        self._entries = {entry.filename.partition("/")[2] if inside else entry.filename: entry for entry in entries}
        #: Whether the records have checksums, which PyTorch writes by default.
        self.has_checksums = any(entry.CRC for entry in entries)

    def names(self) -> list[str]:
        """Return the names of the records."""
        return list(self._entries)

    def has(self, name: str) -> bool:
        """Return whether there is a record of this name."""
        return name in self._entries

    def place(self, name: str) -> tuple[int, int]:
        """Return offset and size of a record."""
        entry = self._entries.get(name)
        if entry is None:
            raise CorruptDataError(f"{self._where}: record {shown(name)} is missing")
        if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
            raise UnsupportedDataError(f"{self._where}: record {shown(name)} is compressed")
        begin = self._begin + max(entry.header_offset, 0)
        header = self._tree.read_exactly(self._key, begin, LOCAL_HEADER)
        if entry.header_offset < 0 or not header.startswith(ZIP):
            raise CorruptDataError(f"{self.path}, byte {begin}: record {shown(name)} has no header")
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        offset = begin + LOCAL_HEADER + lengths
        if offset + entry.file_size > self._end:
            raise CorruptDataError(f"{self.path}, byte {offset}: record {shown(name)} exceeds the file")
        return offset, entry.file_size

    def checksum(self, name: str) -> int | None:
        """Return the CRC-32 of a record, or None if the archive has no checksums."""
        return self._entries[name].CRC if self.has_checksums else None

    def read(self, name: str, largest: int) -> bytes:
        """Return a record, whose checksum is verified."""
        offset, size = self.place(name)
        if size > largest:
            raise UnsupportedDataError(
                f"{self._where}: record {shown(name)} of {size:,} bytes exceeds the limit of {largest:,}"
            )
        data = self._tree.read_exactly(self._key, offset, size)
        check_crc(data, self.checksum(name), f"{self.path}, byte {offset}: record {shown(name)}")
        return data

    def faults(self) -> Iterator[str]:
        """Read all records and yield what is damaged."""
        for name in self._entries if self.has_checksums else ():
            try:
                offset, size = self.place(name)
            except UnsupportedDataError:
                continue  # it is not read, either
            except CorruptDataError as error:
                yield str(error)
                continue
            computed = 0
            for at in range(offset, offset + size, _PIECE):
                computed = zlib.crc32(self._tree.read(self._key, at, min(_PIECE, offset + size - at)), computed)
            if computed != self.checksum(name):
                yield f"{self.path}, byte {offset}: record {shown(name)}: {_mismatch(self.checksum(name), computed)}"


def check_crc(data: bytes, stored: int | None, what: str) -> None:
    """Raise CorruptDataError if data do not have their stored CRC-32.

    >>> check_crc(b"a", zlib.crc32(b"a"), "a.pt, byte 64")
    """
    if stored is not None and (computed := zlib.crc32(data)) != stored:
        raise CorruptDataError(f"{what}: {_mismatch(stored, computed)}")


def _mismatch(stored: int | None, computed: int) -> str:
    return f"checksum mismatch: stored {stored or 0:08x}, computed {computed:08x}"
