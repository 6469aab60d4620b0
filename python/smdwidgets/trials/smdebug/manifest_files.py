"""Write the files of a compacted index, while others may write or delete them.

Folder files are named after their content, so that two compactions never overwrite each other's. The root file is
replaced only if it is still the one that the compaction found, or the placeholder that it wrote, when it began.
Otherwise another compaction finished first, or a hook that continues or overwrites the run has deleted the compacted
index.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from smdwidgets._atomic import replace_file, replacing, temporary_sibling
from smdwidgets.exceptions import CompactionSuperseded, RunIOError
from smdwidgets.trials.smdebug.manifest import PLACEHOLDER, ROOT, FolderEntry, Manifest

if TYPE_CHECKING:
    from smdwidgets.storage.protocol import Storage
    from smdwidgets.storage.remote import RemoteStorage

#: Attempts to write a placeholder while other compactions do the same.
_ATTEMPTS = 5


class ManifestFiles(ABC):
    """The files of a compacted index, as one compaction writes them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._written: list[str] = []

    @abstractmethod
    def begin(self) -> None:
        """Note the root file; write a placeholder if there is none."""

    def add(self, folder: FolderEntry, content: bytes) -> None:
        """Write a folder file."""
        self._add(folder.key, content)
        self._written.append(folder.key)

    def check(self) -> None:
        """Raise an error if the root file is not that of :meth:`begin`."""
        if not self._is_unchanged():
            raise self._superseded()

    def end(self, root: bytes, replaced: Iterable[str]) -> None:
        """Replace the root file, and delete the files that it no longer names.

        Raises :class:`CompactionSuperseded` if it is not that of :meth:`begin`.
        """
        if not self._replace(root):
            raise self._superseded()
        with suppress(RunIOError):  # they are of no use, and do no harm
            self._delete(list(replaced))

    @abstractmethod
    def _add(self, key: str, content: bytes) -> None:
        """Write a file."""

    @abstractmethod
    def _is_unchanged(self) -> bool:
        """Return whether the root file is the noted one."""

    @abstractmethod
    def _replace(self, root: bytes) -> bool:
        """Replace the root file if it is the noted one; return whether it was."""

    @abstractmethod
    def _delete(self, keys: list[str]) -> None:
        """Delete files."""

    def _superseded(self) -> CompactionSuperseded:
        """Delete what this compaction wrote and no root file names."""
        now = Manifest(self._storage)
        found = now.read_root()
        named = {folder.key for folder in now.folders}
        with suppress(RunIOError):
            self._delete([key for key in self._written if key not in named])
        return CompactionSuperseded(self._storage.url, found or now.is_being_written)


class BucketFiles(ManifestFiles):
    """Those in a bucket.

    The store compares the ETag of the root file when it is written. Servers that ignore or refuse the condition replace
    it in any case; the ETag is then compared just before.
    """

    _storage: RemoteStorage

    def begin(self) -> None:
        """Note size, time and ETag of the root file."""
        for _ in range(_ATTEMPTS):
            found = self._storage.head(ROOT)
            if found is not None:
                self._found = found
                return
            self._put(_placeholder(), "")
        raise CompactionSuperseded(self._storage.url, by_compaction=True)

    def _add(self, key: str, content: bytes) -> None:
        self._storage.put(key, content)

    def _is_unchanged(self) -> bool:
        return self._storage.head(ROOT) == self._found

    def _replace(self, root: bytes) -> bool:
        # Some servers ignore conditions of uploads, and some have no ETags.
        return self._is_unchanged() and self._put(root, self._found[2] or None)

    def _put(self, content: bytes, etag: str | None) -> bool:
        """Write the root file over the one with this ETag; over none if it is empty."""
        from smdwidgets.storage.conditional import put_if  # imported for stores only

        return put_if(self._storage, ROOT, content, etag)

    def _delete(self, keys: list[str]) -> None:
        self._storage.delete(keys)


class LocalFiles(ManifestFiles):
    """Those in a directory.

    A hook renames the directory before it deletes it, so that the root file cannot be written into a new one.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        super().__init__(storage)
        self._path = Path(path)
        self._root = self._path / ROOT

    def begin(self) -> None:
        """Note the content of the root file."""
        if not self._root.is_file():
            replace_file(self._root, _placeholder())
        self._found = self._root.read_bytes()

    def _is_unchanged(self) -> bool:
        try:
            return self._root.read_bytes() == self._found
        except OSError:
            return False

    def _add(self, key: str, content: bytes) -> None:
        try:
            with replacing(self._path / key) as partial:
                partial.write_bytes(content)
        except FileNotFoundError:
            raise self._superseded() from None

    def _replace(self, root: bytes) -> bool:
        partial = temporary_sibling(self._root)
        try:
            partial.write_bytes(root)
            if not self._is_unchanged():
                return False
            partial.replace(self._root)
        except FileNotFoundError:
            return False
        finally:
            partial.unlink(missing_ok=True)
        return True

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            with suppress(OSError):
                (self._path / key).unlink()


def _placeholder() -> bytes:
    """Return a root file of a compaction that has not ended, unlike any other."""
    return PLACEHOLDER + secrets.token_bytes(16)
