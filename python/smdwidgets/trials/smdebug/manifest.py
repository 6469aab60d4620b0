"""Read the compacted index of a run: one file for 1,000 steps.

The root file ``_smdwidgets/index-v1/root.bin`` names folder files, their hashes, and the index files that they stand
for. A folder is used only if these index files are still the same, which one listing shows. Otherwise its index files
are read, as without the compacted index.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Final, Literal, NamedTuple

from smdwidgets import _core
from smdwidgets._text import listed, shown
from smdwidgets.exceptions import DataError, RunIOError, SMDebugValueError
from smdwidgets.storage.protocol import OWN_PREFIX, Range, Storage, beginning

logger = logging.getLogger("smdwidgets")

MANIFEST_PREFIX: Final = OWN_PREFIX + "index-v1/"
ROOT: Final = MANIFEST_PREFIX + "root.bin"
#: Begins the file in the place of the root file while the first compaction of a run is in progress.
PLACEHOLDER: Final = b"smdwopen"
#: Runs with fewer new index files are read without a look for a compacted index, which costs a request.
WORTHWHILE = 256
#: Maximum size of the root file.
LARGEST_ROOT = 8 << 20
#: Maximum bytes of folder files that are fetched together.
_TOGETHER = 64 << 20

#: How a compacted index is checked before it is used.
Trust = Literal["listing", "root", "none"]

_TRUSTS: Final[tuple[Trust, ...]] = ("listing", "root", "none")


class Stamp(NamedTuple):
    """An index file, and what changes when it is overwritten.

    ``version`` is the ETag, or the modification time.
    """

    key: str
    size: int
    version: str


class FolderEntry(NamedTuple):
    """What the root file states of a folder file."""

    number: int
    size: int
    content: bytes
    etags: bytes
    times: bytes | None

    @property
    def key(self) -> str:
        """The key of the folder file: a file of another content has another key."""
        return f"{MANIFEST_PREFIX}{self.number:09d}-{self.content[:8].hex()}.bin"


def as_trust(trust: str) -> Trust:
    """Check the argument ``trust`` of :func:`smdwidgets.create_trial`.

    >>> as_trust("root")
    'root'
    """
    for known in _TRUSTS:
        if trust == known:
            return known
    raise SMDebugValueError(f"invalid trust {shown(trust)}; choose from {listed(_TRUSTS)}")


def folder_of(key: str) -> int:
    """Return the number of the folder of an index file, or -1 for other keys.

    >>> folder_of("index/000000012/000000012345_worker_0.json"), folder_of("index/notes.txt")
    (12, -1)
    """
    parts = key.split("/")
    return int(parts[1]) if len(parts) == 3 and parts[1].isdecimal() and parts[1].isascii() else -1


def digest(stamps: Iterable[Stamp]) -> bytes:
    """Return the SHA-256 hash of the stamps of a folder, sorted by key.

    >>> digest([Stamp("index/000000000/000000000000_worker_0.json", 90, "1")]).hex()[:8]
    '85bebf56'
    """
    lines = [f"{key}\0{size}\0{version}\n" for key, size, version in stamps]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogatepass")).digest()


def plain_etag(etag: str) -> str:
    """Return an ETag without quotes.

    >>> plain_etag('"d41d8cd98f00b204e9800998ecf8427e"')
    'd41d8cd98f00b204e9800998ecf8427e'
    """
    return etag.removeprefix("W/").strip('"')


def local_stamps(path: str) -> list[Stamp]:
    """Return the stamps of the index files of a local run, sorted by key."""
    found = []
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(Path(path, "index")) as folders:
        for folder in folders:
            if not folder.is_dir():
                continue
            with os.scandir(folder.path) as files:
                for file in files:
                    about = file.stat()
                    found.append(Stamp(f"index/{folder.name}/{file.name}", about.st_size, str(about.st_mtime_ns)))
    return sorted(found)


class Manifest:
    """The compacted index of one run, as far as it can be used.

    >>> from smdwidgets.storage import LocalStorage
    >>> Manifest(LocalStorage(".")).read_root()
    False
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._root: _core.ManifestRoot | None = None
        #: Size of the root file in bytes.
        self.root_size = 0
        #: Whether there is a placeholder instead of a root file.
        self.is_being_written = False
        #: All folders of the root file.
        self.folders: list[FolderEntry] = []
        #: Folders that can be loaded, and are not loaded yet.
        self._usable: dict[int, FolderEntry] = {}
        #: Why the compacted index, or a part of it, cannot be used.
        self.problems: list[tuple[str, str]] = []

    def read_root(self) -> bool:
        """Read the root file; return whether there is a valid one."""
        try:
            content = beginning(self._storage, ROOT, LARGEST_ROOT)
            self.is_being_written = content.startswith(PLACEHOLDER)
            if self.is_being_written:
                return False
            self.root_size = len(content)
            self._root = _core.ManifestRoot(ROOT, content)
        except RunIOError as error:
            if not isinstance(error, FileNotFoundError):
                self._report(ROOT, error)
            return False
        except DataError as error:
            self._report(ROOT, error)
            return False
        self.folders = list(map(FolderEntry._make, self._root.folders()))
        return True

    def keys(self) -> Iterator[str]:
        """Yield the keys of all index files of the compacted index, sorted by step."""
        for at in range(len(self.folders)):
            yield from self.keys_of(at)

    def keys_of(self, at: int) -> list[str]:
        """Return the keys of the index files of a folder, given its place in ``folders``."""
        return [] if self._root is None else self._root.keys(at)

    def end(self) -> str:
        """Return a key that sorts after the index files of the compacted index."""
        # The character sorts after the slash that follows the number of the folder.
        return f"index/{self.folders[-1].number:09d}0" if self.folders else "index/"

    def trust(self) -> None:
        """Use all folders without a comparison with the index files."""
        self._usable = {folder.number: folder for folder in self.folders}

    def compare(self, listed: Mapping[int, bytes]) -> None:
        """Use the folders whose index files have the ETags of a listing.

        ``listed`` has the digest of each folder.
        """
        self._usable = {folder.number: folder for folder in self.folders if listed.get(folder.number) == folder.etags}

    @property
    def usable(self) -> int:
        """Number of folders that can be loaded and are not loaded yet."""
        return len(self._usable)

    def load(self, catalog: _core.Catalog, keys: Iterable[str]) -> None:
        """Load the folders of these index files as a whole.

        Index files of folders that cannot be loaded stay unread.
        """
        if not self._usable:
            return
        numbers = dict.fromkeys(map(folder_of, keys))
        wanted = [self._usable.pop(number) for number in numbers if number in self._usable]
        for some in _portions(wanted):
            for folder, content in zip(some, self._read(some), strict=True):
                if content is not None:
                    self._load(catalog, folder, content)

    def content_of(self, folder: FolderEntry) -> bytes | None:
        """Return the content of a folder file, or None if it is damaged."""
        [content] = self._read([folder])
        return content if content is not None and self._is_intact(folder, content) else None

    def _is_intact(self, folder: FolderEntry, content: bytes) -> bool:
        if hashlib.sha256(content).digest() == folder.content:
            return True
        self._report(folder.key, "its content is not that which the root file names")
        return False

    def _load(self, catalog: _core.Catalog, folder: FolderEntry, content: bytes) -> None:
        if not self._is_intact(folder, content):
            return
        try:
            catalog.load_folder(folder.key, content)
        except DataError as error:
            self._report(folder.key, error)

    def _read(self, folders: Sequence[FolderEntry]) -> Sequence[bytes | None]:
        """Return the content of folder files, in order; None for unreadable ones."""
        with suppress(RunIOError, DataError):
            return list(map(bytes, self._storage.read_ranges([_whole(folder) for folder in folders])))
        found: list[bytes | None] = []
        for folder in folders:  # one of them is missing or cut, so they are read one by one
            try:
                found.append(bytes(self._storage.read_ranges([_whole(folder)])[0]))
            except (RunIOError, DataError) as error:
                self._report(folder.key, error)
                found.append(None)
        return found

    def _report(self, key: str, error: object) -> None:
        self.problems.append((key, str(error)))
        logger.warning("cannot use the compacted index %s: %s; reading the index files", shown(key), error)


def _whole(folder: FolderEntry) -> Range:
    return Range(folder.key, 0, folder.size)


def _portions(folders: Iterable[FolderEntry]) -> Iterator[list[FolderEntry]]:
    """Divide folder files into groups of bounded size."""
    some: list[FolderEntry] = []
    size = 0
    for folder in folders:
        if some and size + folder.size > _TOGETHER:
            yield some
            some, size = [], 0
        some.append(folder)
        size += folder.size
    if some:
        yield some


def digests(stamps: Iterable[Stamp]) -> dict[int, bytes]:
    """Return the digest of each folder; the stamps are sorted by key."""
    return {number: digest(some) for number, some in by_folder(stamps)}


def by_folder(stamps: Iterable[Stamp]) -> Iterator[tuple[int, list[Stamp]]]:
    """Group stamps of index files by folder, without unfinished files."""
    of_index = (stamp for stamp in stamps if stamp.key.endswith((".json", ".csv")))
    for number, some in groupby(of_index, key=lambda stamp: folder_of(stamp.key)):
        yield number, list(some)
